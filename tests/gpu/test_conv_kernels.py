"""The convolution kernels on a GPU: the gate in every direction, sizes around every boundary, the same bits."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from conv_problems import Layer, compared, gates, operands, run, truth

from lanewise.audit.faults import FAULTS
from lanewise.audit.gate import gate, require
from lanewise.conv import launch, recorded
from lanewise.conv.problem import Problem

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")]

LAYERS = (
    Layer(32, 64, 64, (56, 56), (3, 3), padding=1),
    Layer(8, 256, 256, (14, 14), (3, 3), padding=1),
    Layer(3, 512, 512, (7, 7), (3, 3), padding=1),
    Layer(4, 3, 64, (97, 101), (7, 7), stride=2, padding=3),
    Layer(2, 128, 128, (57, 55), (3, 3), stride=2, padding=1),
    Layer(5, 31, 33, (17, 19), (3, 5), stride=(1, 2), padding=(2, 1), dilation=(2, 1)),
    Layer(2, 20, 28, (13, 11), (4, 3), stride=(3, 2), padding=(1, 2), dilation=(1, 3), groups=4),
    Layer(4, 128, 128, (28, 28), (3, 3), padding=1, groups=32),
    Layer(1, 1, 1, (1, 1), (1, 1)),
    Layer(7, 96, 64, (64, 65), (1, 1)),
    Layer(2, 256, 129, (28, 28), (1, 1)),
    Layer(2, 1024, 256, (14, 14), (1, 1)),
    Layer(3, 64, 128, (56, 56), (1, 1), stride=2),
    Layer(2, 16, 24, (9, 10, 11), (3, 3, 3), padding=1),
    Layer(1, 32, 64, (16, 17, 18), (2, 3, 1), stride=(2, 1, 2), padding=(0, 1, 0), dilation=(1, 2, 1)),
    Layer(4, 96, 96, (56, 56), (7, 7), padding=3, groups=96),
    Layer(2, 33, 66, (31, 33), (3, 3), stride=2, padding=1, groups=33),
    Layer(1, 8, 8, (9, 10, 11), (3, 3, 3), padding=1, groups=8),
    Layer(2, 31, 32, (1, 1251), (1, 9), padding=(0, 4)),
    Layer(65537, 3, 5, (2, 2), (2, 2)),  # more images than a grid's second axis takes
)


@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_every_direction_passes_the_gate(layer: Layer, dtype: torch.dtype, last: bool):
    layer = replace(layer, dtype=dtype, channels_last=last)
    require(*gates(layer, "cuda"))


@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "NHWC"])
@pytest.mark.parametrize("layer", LAYERS[:12:3], ids=str)
def test_tf32_is_what_it_says(layer: Layer, last: bool):
    require(*gates(replace(layer, channels_last=last), "cuda", "tf32"))


@pytest.mark.parametrize("layer", LAYERS[:18:3], ids=str)
def test_the_same_bits_every_time(layer: Layer):
    given = operands(layer, device="cuda")
    first = run(layer, *given)
    assert all(torch.equal(a, b) for _ in range(10) for a, b in zip(run(layer, *given), first, strict=True))


@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_a_call_that_is_known_does_the_same_with_other_tensors(
    layer: Layer, dtype: torch.dtype, last: bool, monkeypatch: pytest.MonkeyPatch
):
    layer = replace(layer, dtype=dtype, channels_last=last)
    monkeypatch.setattr(recorded, "_known", {})
    run(layer, *operands(layer, seed=1, device="cuda"))
    given = operands(layer, seed=2, device="cuda")
    again = run(layer, *given)
    assert len(recorded._known) == 4
    assert all(recorded._known.values())
    monkeypatch.setattr(recorded, "_known", {})
    assert all(torch.equal(a, b) for a, b in zip(again, run(layer, *given), strict=True))


def test_a_known_call_takes_one_tensor_in_two_places(monkeypatch: pytest.MonkeyPatch):
    layer = Layer(2, 32, 32, (9, 9), (3, 3), padding=1)
    monkeypatch.setattr(recorded, "_known", {})
    x, _, _, dy = operands(layer, device="cuda")
    want = [launch.weight_grad(*pair, layer.problem()) for pair in ((x, x.clone()), (x, dy))]
    assert all(
        torch.equal(a, launch.weight_grad(*pair, layer.problem()))
        for a, pair in zip(want, ((x, x), (x, dy)), strict=True)
    )


def test_the_gate_is_red_where_a_direction_is_broken():
    given = operands(LAYERS[1], device="cuda")
    got, want = run(LAYERS[1], *given), truth(LAYERS[1], *given)
    for fault in FAULTS:
        assert not any(result.ok for result in compared(LAYERS[1], tuple(map(fault.apply, got)), want)), fault.name


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 1.0], ids=["centred", "shifted"])
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "NHWC"])
def test_a_sum_over_sixteen_million_pixels(kernel: int, last: bool, shift: float):
    """Numbers that are not around 0 make the errors of a long chain of additions add up."""
    size, one, pad = (1, 4096, 4096), (1, 1, 1), kernel // 2
    problem = Problem(1, 8, 16, size, size, (1, kernel, kernel), one, (0, pad, pad), one, 1, torch.float32, last)
    order = torch.channels_last if last else torch.contiguous_format
    x, dy = (torch.randn(1, c, 4096, 4096, device="cuda").add_(shift).contiguous(memory_format=order) for c in (8, 16))
    wide = torch.nn.functional.pad(x.double(), (pad,) * 4)
    views = [wide[0, :, i : i + 4096, j : j + 4096] for i in range(kernel) for j in range(kernel)]
    want = torch.stack([torch.einsum("khw,chw->kc", dy[0].double(), view) for view in views], -1)
    got = launch.weight_grad(x, dy, problem)
    require(gate("weight", got.flatten(2), want, floor=1e-6))
    require(gate("bias", launch.bias_grad(dy), dy.double().sum((0, 2, 3)), floor=1e-6))
