"""Run by tests/conv/test_kernels.py in a process of its own: the convolution kernels in Triton's interpreter."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import torch
import triton
import triton.language as tl
from conv_problems import LIMITS, Layer, compared, gates, operands, run, truth, variants
from torch import Tensor

import lanewise  # noqa: F401 - before torch
from lanewise.audit.faults import FAULTS
from lanewise.audit.gate import gate, require
from lanewise.conv import (
    kernels,
    kernels_layout,
    kernels_weight,
    launch,
    launch_blocks,
    launch_correlate,
    launch_weight,
)

DENSE = (
    Layer(2, 5, 7, (6, 9), (3, 3), padding=1),
    Layer(1, 33, 17, (5, 7), (3, 2), stride=(2, 1), padding=(1, 0)),
    Layer(1, 3, 31, (11, 13), (4, 3), stride=(3, 2), padding=2, dilation=(2, 3)),
    Layer(2, 4, 6, (7, 5), (3, 3), stride=2, padding=1, groups=2),
    Layer(1, 4, 4, (5, 5), (1, 1), stride=2),  # an input gradient with pixels that no output sees
    Layer(1, 2, 3, (4, 4), (2, 2), stride=4, padding=3),  # whole phases without a weight
    Layer(2, 4, 5, (3, 5, 4), (2, 3, 2), stride=(1, 2, 1), padding=(1, 1, 0), dilation=(2, 1, 1)),
    Layer(1, 32, 32, (1, 17), (1, 5), padding=(0, 2)),
    Layer(5, 3, 2, (1, 1), (1, 1), padding=1),
    Layer(1, 64, 5, (3, 4), (3, 3), padding=1),  # sums in parts
    Layer(1, 3, 98, (3, 4), (3, 3), stride=(2, 1), padding=1),
)
POINTWISE = (
    Layer(2, 5, 7, (6, 9), (1, 1)),
    Layer(2, 96, 64, (8, 12), (1, 1)),
    Layer(1, 33, 160, (5, 13), (1, 1)),
    Layer(1, 1, 1, (1, 1), (1, 1)),
    Layer(2, 17, 48, (2, 3, 4), (1, 1, 1)),
)
DEPTHWISE = (
    Layer(2, 5, 5, (6, 9), (3, 3), padding=1, groups=5),
    Layer(1, 3, 6, (7, 8), (3, 2), stride=2, padding=1, dilation=(1, 2), groups=3),
    Layer(1, 2, 4, (3, 4, 3), (3, 2, 2), stride=(1, 2, 1), padding=1, groups=2),
)
EMPTY = (
    Layer(0, 3, 4, (5, 5), (3, 3)),
    Layer(0, 3, 3, (5, 5), (3, 3), groups=3),
    Layer(0, 3, 4, (5, 5), (1, 1)),
)


def poison(allocate: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`allocate`, with NaN in what nobody has written."""

    def allocate_and_fill(*args: object, **kwargs: object) -> Tensor:
        out = allocate(*args, **kwargs)
        return out.fill_(torch.nan) if out.is_floating_point() else out

    return allocate_and_fill


def dense() -> None:
    for layer in DENSE:
        for variant in variants(layer):
            require(*gates(variant))
    with without_windows():
        for layer in DENSE:
            require(*gates(layer))


def without_windows() -> mock._patch:
    """As for images that are too large to be copied."""
    return mock.patch.object(launch_weight, "takes", return_value=False)


def pointwise() -> None:
    for layer in POINTWISE:
        for variant in variants(layer):
            require(*gates(variant))


def depthwise() -> None:
    for layer in DEPTHWISE:
        for variant in variants(layer):
            require(*gates(variant))


def empty() -> None:
    for layer in EMPTY:
        for variant in variants(layer):
            y, dx, dw, db = run(variant, *operands(variant))
            assert y.shape[0] == dx.shape[0] == 0
            assert not dw.any()
            assert not db.any()
    nothing = Layer(2, 0, 3, (4, 4), (3, 3), padding=1)
    y, dx, dw, _ = run(nothing, *(given := operands(nothing)))
    assert torch.equal(y, given[2].view(1, 3, 1, 1).expand_as(y))
    assert dx.numel() == dw.numel() == 0


def dtypes() -> None:
    """bf16 only where there is no matrix product: the interpreter multiplies its bits."""
    for layer in (DENSE[0], DENSE[3], POINTWISE[0], DEPTHWISE[1]):
        require(*gates(replace(layer, dtype=torch.float16)))
    require(*gates(replace(DEPTHWISE[1], dtype=torch.bfloat16)))


def layouts() -> None:
    """Slices of larger tensors that are NaN elsewhere, expanded gradients, outputs of other strides."""
    small = Layer(1, 5, 7, (5, 7), (3, 2), stride=(2, 1), padding=(1, 0))
    for layer in (small, POINTWISE[0], DEPTHWISE[1]):
        for variant in variants(layer):
            x, w, bias, dy = operands(variant)
            want, problem = truth(variant, x, w, bias, dy), variant.problem()
            got = run(variant, within_nan(x), within_nan(w), bias, within_nan(dy))
            y, dx = within_nan(torch.zeros_like(dy)), within_nan(torch.zeros_like(x))
            assert launch.forward(x, w, bias, problem, out=y).data_ptr() == y.data_ptr()
            launch.input_grad(dy, w, None, problem, out=dx)
            shift = torch.randn(x.shape[1])
            shifted = launch.input_grad(dy, w, shift, problem)  # a transposed convolution's output
            want_shifted = want[1] + shift.view(-1, *[1] * (x.dim() - 2))
            for a, b in zip((*got, y, dx, shifted), (*want, *want[:2], want_shifted), strict=True):
                require(gate(f"{variant} within NaN", a, b, floor=LIMITS[torch.float32]))
            mixed = [t.contiguous(memory_format=other_order(variant)) for t in (x, w, dy)]
            for a, b in zip(run(variant, x, mixed[1], bias, mixed[2]), want, strict=True):
                require(gate(f"{variant} mixed", a, b, floor=LIMITS[torch.float32]))
            ones = torch.ones(()).expand_as(dy)
            for a, b in zip(run(variant, x, w, bias, ones), truth(variant, x, w, bias, ones), strict=True):
                require(gate(f"{variant} expanded", a, b, floor=LIMITS[torch.float32]))


def within_nan(tensor: Tensor) -> Tensor:
    """The tensor as a part of a larger one, in the same memory order, that is NaN elsewhere."""
    last = tensor.stride(1) == 1
    moved = tensor.permute(0, *range(2, tensor.dim()), 1) if last else tensor
    larger = torch.full([size + 2 for size in moved.shape], torch.nan)
    part = larger[tuple(slice(1, size + 1) for size in moved.shape)]
    part.copy_(moved)
    return part.permute(0, -1, *range(1, tensor.dim() - 1)) if last else part


def other_order(layer: Layer) -> torch.memory_format:
    return replace(layer, channels_last=not layer.channels_last).order()


def mutants() -> None:
    """The gates are red when a direction or a kernel is broken."""
    small = Layer(1, 3, 4, (4, 5), (3, 3), stride=2, padding=1)
    given = operands(small)
    got, want = run(small, *given), truth(small, *given)
    require(*compared(small, got, want))
    for fault in FAULTS:
        red = [not result.ok for result in compared(small, tuple(map(fault.apply, got)), want)]
        assert all(red), f"{fault.name}: {red}"
    splits, steps = launch_blocks.splits, launch_correlate.transposed_steps
    for owner, name, wrong in (
        (launch_correlate, "transposed_steps", lambda *a: (steps(*a)[0], (1, 1, 1))),
        (kernels, "inside", everywhere),
        (kernels_layout, "inside", everywhere),
    ):
        with mock.patch.object(owner, name, wrong):
            assert not all(result.ok for result in compared(small, run(small, *given), want)), name
    for owner, name, wrong in (
        (launch_blocks, "splits", lambda *a: (splits(*a)[0], splits(*a)[1] - 1)),
        (kernels_weight, "inside", everywhere),
    ):
        with without_windows(), mock.patch.object(owner, name, wrong):
            assert not all(result.ok for result in compared(small, run(small, *given), want)), name


@triton.jit
def everywhere(position, size):
    """`inside` that hides nothing."""
    return tl.abs(position) >= 0


def main() -> None:
    warnings.simplefilter("ignore")  # the interpreter computes on numpy, masked lanes included
    torch.set_num_threads(1)
    Tensor.new_empty = poison(Tensor.new_empty)
    torch.empty_like = poison(torch.empty_like)
    torch.empty = poison(torch.empty)
    for check in (dense, pointwise, depthwise, empty, dtypes, layouts, mutants):
        check()
        print("ok", check.__name__, flush=True)


if __name__ == "__main__":
    sys.exit(main())
