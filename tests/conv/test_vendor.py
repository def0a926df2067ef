import pytest
import torch
from conv_tensors import of_direction, operands, truth

from lanewise import conv
from lanewise.audit.gate import gate, require
from lanewise.conv import vendor
from lanewise.conv.problem import Problem, output_extent

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


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [7, 8, 9])
def test_the_gradient_of_an_input_is_the_transposed_convolution_of_the_gradient(
    size, stride, dilation, groups, channels_last
):
    """What a GPU is asked for, since that takes no x; here a CPU is."""
    steps = {"stride": (1, stride, stride), "padding": (0, 1, 0), "dilation": (1, dilation, dilation)}
    out = tuple(output_extent(size, 3, stride, padding, dilation) for padding in (1, 0))
    problem = Problem(
        n=2, c=4, k=6, spatial_in=(1, size, size), spatial_out=(1, *out), kernel=(1, 3, 3), groups=groups,
        dtype=torch.float64, channels_last=channels_last, direction="input_grad", **steps,
    )  # fmt: skip
    x, w, dy = operands(problem)
    assert problem.transposed is not None
    require(gate("dx", torch.convolution(dy, w, None, *problem.transposed), truth(problem, x, w, dy), floor=1e-14))


def test_what_no_transposed_convolution_gives_is_asked_for_otherwise():
    step = Problem(
        n=1, c=4, k=4, spatial_in=(1, 9, 9), spatial_out=(1, 2, 2), kernel=(1, 3, 3), stride=(1, 2, 2),
        direction="input_grad",
    )  # fmt: skip
    assert step.transposed is None  # x goes on for more than a stride behind what y sees: a part of something larger
    depthwise = Problem(
        n=1, c=4, k=8, spatial_in=(1, 9, 9), spatial_out=(1, 7, 7), kernel=(1, 3, 3), groups=4, direction="input_grad"
    )
    assert depthwise.transposed is None  # which torch does by kernels of its own
