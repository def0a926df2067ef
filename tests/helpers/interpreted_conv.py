"""Run by tests/conv/test_kernels.py in a process of its own: the convolution kernels in Triton's interpreter."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace

import torch
from conv_problems import Layer, gates, operands, run, variants
from torch import Tensor

import lanewise  # noqa: F401 - before torch
from lanewise.audit.faults import FAULTS
from lanewise.audit.gate import GateError, GateResult, require
from lanewise.conv import kernels, launch, launch_blocks, launch_operands

DENSE = (
    Layer(2, 5, 7, (6, 9), (3, 3), padding=1),
    Layer(1, 33, 17, (5, 7), (3, 2), stride=(2, 1), padding=(1, 0)),
    Layer(2, 3, 31, (11, 13), (4, 4), stride=(3, 2), padding=2, dilation=(2, 3)),
    Layer(3, 8, 12, (7, 5), (3, 3), stride=2, padding=1, groups=4),
    Layer(1, 4, 4, (5, 5), (1, 1), stride=2),  # an input gradient with pixels that no output sees
    Layer(1, 2, 3, (4, 4), (2, 2), stride=4, padding=3),  # whole phases without a weight
    Layer(2, 4, 5, (3, 5, 4), (2, 3, 2), stride=(1, 2, 1), padding=(1, 1, 0), dilation=(2, 1, 1)),
    Layer(1, 32, 32, (1, 17), (1, 5), padding=(0, 2)),
    Layer(5, 3, 2, (1, 1), (1, 1), padding=1),
)
POINTWISE = (
    Layer(2, 5, 7, (6, 9), (1, 1)),
    Layer(3, 96, 64, (8, 12), (1, 1)),
    Layer(1, 33, 160, (5, 13), (1, 1)),
    Layer(1, 1, 1, (1, 1), (1, 1)),
    Layer(2, 17, 48, (2, 3, 4), (1, 1, 1)),
)
DEPTHWISE = (
    Layer(2, 5, 5, (6, 9), (3, 3), padding=1, groups=5),
    Layer(1, 3, 6, (7, 8), (3, 2), stride=2, padding=1, dilation=(1, 2), groups=3),
    Layer(1, 4, 8, (4, 5, 6), (3, 3, 2), stride=(1, 2, 1), padding=1, groups=4),
    Layer(2, 33, 33, (5, 5), (5, 5), padding=2, groups=33),
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
    for dtype in (torch.float16, torch.bfloat16):
        for layer in (DENSE[0], DENSE[3], POINTWISE[1], DEPTHWISE[1]):
            require(*gates(replace(layer, dtype=dtype)))


def main() -> None:
    warnings.simplefilter("ignore")  # the interpreter computes on numpy, masked lanes included
    torch.set_num_threads(1)
    Tensor.new_empty = poison(Tensor.new_empty)
    torch.empty_like = poison(torch.empty_like)
    torch.empty = poison(torch.empty)
    for check in (dense, pointwise, depthwise, empty, dtypes):
        check()
        print("ok", check.__name__, flush=True)


if __name__ == "__main__":
    sys.exit(main())
