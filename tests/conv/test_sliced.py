import itertools
from dataclasses import replace

import pytest
import torch
from conv_shapes import incident, problems
from conv_tensors import of_direction, operands, truth
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.audit.faults import FAULTS
from lanewise.audit.gate import gate, require
from lanewise.conv import chooser, sliced
from lanewise.conv.plan import plan
from lanewise.conv.problem import Problem
from lanewise.errors import LanewiseError, UnsupportedError

HALF = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


def launch(problem, first, second, bias, out):
    """Torch's convolution, after the operands were found to be what the problem says."""
    shapes = {"forward": ("x", "w"), "input_grad": ("y", "w"), "weight_grad": ("x", "y")}[problem.direction]
    for tensor, name in zip((first, second), shapes, strict=True):
        assert tuple(tensor.shape) == getattr(problem, f"{name}_shape")
        assert tensor.is_contiguous(memory_format=sliced.memory_format(problem.dims, problem.channels_last))
    if out is not None:
        assert tuple(out.shape) == problem.result_shape
        assert out.is_contiguous(memory_format=sliced.memory_format(problem.dims, problem.channels_last))
    return chooser.convolve("fp32", problem, first, second, bias, out)


def run(problem, first, second, bias=None, *, window, channels_last=False, launch=launch):
    layout = {"channels_last": channels_last, "window_bytes": window}
    return sliced.run(problem, first, second, bias, **layout, launch=launch)


@settings(max_examples=40, deadline=None)
@given(problems(), st.integers(4, 4000), st.booleans(), st.booleans())
def test_slices_give_the_whole_convolution(problem, window, channels_last, biased):
    problem = replace(problem, channels_last=channels_last)
    x, w, dy = operands(problem)
    channels = {"forward": problem.k, "input_grad": problem.c}.get(problem.direction)
    bias = torch.randn(channels) if biased and channels else None
    try:
        got = run(problem, *of_direction(problem, x, w, dy), bias, window=window, channels_last=channels_last)
    except UnsupportedError:
        return
    want = truth(problem, x, w, dy)
    if bias is not None:
        want = want + bias.double().reshape(-1, *[1] * problem.dims)
    assert got.dtype == torch.float32
    assert got.is_contiguous(memory_format=sliced.memory_format(problem.dims, channels_last))
    # In one launch: what fp32 itself loses where a few products cancel.
    single = run(problem, *of_direction(problem, x, w, dy), bias, window=2**32, channels_last=channels_last)
    require(gate(problem.direction, got, want, single))


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("direction", ["forward", "input_grad", "weight_grad"])
def test_half_precision_is_rounded_once_and_not_at_every_addition(direction, dtype):
    problem = replace(incident(64, 3, 4, 6, direction), dtype=dtype)
    tensors = operands(problem)
    window = max(problem.tensor_bytes.values()) // 60
    got = run(problem, *of_direction(problem, *tensors), window=window)
    assert got.dtype == dtype
    require(gate(direction, got, truth(problem, *tensors), floor=HALF[dtype]))


@pytest.mark.parametrize("direction", ["forward", "input_grad"])
def test_a_bias_is_added_once_where_channels_are_summed(direction):
    problem = incident(2, 8, 8, 3, direction)
    x, w, dy = operands(problem)
    bias = torch.randn(8)
    got = run(problem, *of_direction(problem, x, w, dy), bias, window=12)
    slices = plan(problem, 12)
    assert len(slices) > len({s.result for s in slices})
    require(gate(direction, got, truth(problem, x, w, dy) + bias.double().reshape(-1, 1, 1)))


def test_partial_sums_of_a_weight_gradient_are_added_in_fp64():
    problem = incident(3, 2, 2, 2)
    x, _, dy = operands(problem)
    parts = iter([1e8, 1.0, -1e8])

    def constant(problem, *operands):
        return torch.full(problem.result_shape, next(parts))

    assert (run(problem, x, dy, window=problem.tensor_bytes["input"] // 3, launch=constant) == 1).all()


def test_a_weight_gradient_has_the_same_bits_every_time_and_in_every_layout_of_the_operands():
    problem = incident(13, 5, 3, 9)
    x, _, dy = operands(problem)
    window = problem.tensor_bytes["input"] // 4
    first = run(problem, x, dy, window=window)
    strided = torch.empty(13, 5, 9, 18)[..., ::2].copy_(x)
    again = run(problem, strided, dy, window=window)
    assert torch.equal(first, again)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_slice_that_goes_wrong_is_seen(fault):
    problem = incident(96, 5, 48, 9)
    x, w, dy = operands(problem)
    calls = itertools.count()

    def faulty(problem, *operands):
        out = launch(problem, *operands)
        return fault.apply(out) if next(calls) == 2 else out

    got = run(problem, x, dy, window=problem.tensor_bytes["output"] // 5, launch=faulty)
    assert next(calls) > 3
    assert not gate("dw", got, truth(problem, x, w, dy)).ok


@pytest.mark.parametrize("direction", ["forward", "input_grad"])
def test_pieces_of_the_batch_are_written_where_they_belong_and_nowhere_else(direction):
    problem = incident(7, 3, 4, 6, direction)
    x, w, dy = operands(problem)
    places = []

    def direct(problem, first, second, bias, out):
        places.append(out.data_ptr())
        return launch(problem, first, second, bias, out)

    window = max(problem.tensor_bytes.values()) // 2
    got = run(problem, *of_direction(problem, x, w, dy), window=window, launch=direct)
    image = got[0].numel() * got.element_size()
    assert [place - got.data_ptr() for place in places] == [n * image for n in (0, 3, 6)]
    require(gate(direction, got, truth(problem, x, w, dy)))


def test_a_launch_of_another_plan_is_refused_before_it_runs(monkeypatch):
    problem = incident(8, 3, 4, 6)
    x, _, dy = operands(problem)
    window = problem.tensor_bytes["input"] // 2
    monkeypatch.setattr(sliced, "plan", lambda problem, window: plan(problem, 10 * window))
    with pytest.raises(LanewiseError, match="in one launch"):
        run(problem, x, dy, window=window)


def test_positions_that_no_output_sees_get_the_bias_alone():
    space = {"spatial_in": (1, 9, 1), "spatial_out": (1, 3, 1), "kernel": (1, 1, 1), "stride": (1, 4, 1)}
    problem = Problem(n=1, c=2, k=2, **space, direction="input_grad")
    _, w, dy = operands(problem)
    for window in (2**20, 16, 8):
        got = run(problem, dy, w, torch.tensor([1.0, 2.0]), window=max(window, 16))
        want = truth(problem, *operands(problem)) + torch.tensor([1.0, 2.0]).reshape(-1, 1, 1)
        require(gate("dx", got, want))
        assert got[0, :, 1, 0].tolist() == [1, 2]
