import pytest
import torch
from conv_tensors import of_direction, operands, truth

from lanewise import conv
from lanewise.audit.gate import gate, require
from lanewise.conv import vendor
from lanewise.conv.problem import Problem

SMALL = {torch.float32: 1e-6, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float64: 1e-14}


def run(problem, x, w, dy):
    first, second = of_direction(problem, x, w, dy)
    if problem.direction == "forward":
        return vendor.forward(first, second, None, problem, "fp32")
    return getattr(vendor, problem.direction)(first, second, problem, "fp32")


@pytest.mark.parametrize("dtype", SMALL)
@pytest.mark.parametrize("direction", ["forward", "input_grad", "weight_grad"])
def test_long_sums_on_a_cpu_are_not_rounded_to_half_precision(direction, dtype):
    space = (1, 8, 8)
    problem = Problem(
        n=1024, c=16, k=16, spatial_in=space, spatial_out=space, kernel=(1, 3, 3), padding=(0, 1, 1), dtype=dtype
    ).along(direction)
    tensors = operands(problem)
    require(gate(direction, run(problem, *tensors), truth(problem, *tensors), floor=SMALL[dtype]))


def test_a_bias_gradient_is_exact_to_the_last_place_at_any_length(monkeypatch):
    dy = torch.randn(43, 3, 64, 64) + 100
    want = dy.double().sum((0, 2, 3)).float()
    assert torch.equal(vendor.bias_grad(dy), want)
    monkeypatch.setattr(vendor, "SUM_ELEMENTS", 1)
    assert torch.equal(vendor.bias_grad(dy.contiguous(memory_format=torch.channels_last)), want)
    assert not vendor.bias_grad(dy[:0]).any()


def test_outputs_that_see_padding_alone():
    """torch 2.13 ends with a segmentation fault there, inside oneDNN, on processors with AVX-512."""
    x = torch.randn(2, 2, 2, 1, 1).contiguous(memory_format=torch.channels_last_3d)
    w, bias, how = (
        torch.randn(4, 2, 2, 2, 1),
        torch.randn(4),
        {"stride": (1, 3, 2), "padding": (1, 3, 1), "dilation": (1, 1, 2)},
    )
    want = torch.nn.functional.conv3d(x.double(), w.double(), bias.double(), **how)
    require(gate("y", conv.conv3d(x, w, bias, **how), want))
