"""Public reports of the same kind as the incident: right here, at a window that is shrunken with the problem."""

from dataclasses import replace

import pytest
import torch
from conv_reports import REPORTS, WINDOW
from conv_tensors import of_direction, operands, truth

from lanewise.audit.gate import gate, require
from lanewise.conv import op, sliced
from lanewise.conv.plan import plan

FLOOR = {torch.float32: 1e-6, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
by_name = pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.name)


@by_name
def test_the_real_size_is_planned_within_the_window(report):
    slices = plan(report.problem, WINDOW)
    assert len(slices) == report.slices
    for s in slices:
        assert max(s.problem.tensor_bytes.values()) <= WINDOW
        assert all(size // s.problem.dtype.itemsize < 2**31 for size in s.problem.tensor_bytes.values())


def run(problem, window, tensors):
    """Through the operators, so that everything between a model and a launch takes part."""
    first = 3 - problem.dims
    how = (problem.stride[first:], problem.padding[first:], problem.dilation[first:], problem.groups, "fp32", window)
    layout = sliced.memory_format(problem.dims, problem.channels_last)
    a, b = (t.contiguous(memory_format=layout) for t in of_direction(problem, *tensors))
    if problem.direction == "weight_grad":
        return op.weight_grad(a, b, problem.kernel[first:], False, *how)
    operator, spatial = (
        (op.forward, problem.spatial_out) if problem.direction == "forward" else (op.input_grad, problem.spatial_in)
    )
    return operator(a, b, None, spatial[first:], problem.channels_last, *how)


@by_name
def test_a_replay_is_right_and_the_same_every_time(report):
    problem, window = report.shrunken
    tensors = operands(problem)
    assert len(plan(problem, window)) >= report.slices
    got = run(problem, window, tensors)
    require(gate(report.name, got, truth(problem, *tensors), floor=FLOOR[problem.dtype]))
    assert torch.equal(got, run(problem, window, tensors))


@by_name
@pytest.mark.parametrize("direction", ["forward", "input_grad", "weight_grad"])
def test_the_other_directions_of_a_report_are_right_too(report, direction):
    problem, window = report.shrunken
    problem = replace(problem, direction=direction)
    tensors = operands(problem)
    got = run(problem, window, tensors)
    require(gate(report.name, got, truth(problem, *tensors), floor=FLOOR[problem.dtype]))
