"""Operators that the power of the audit is measured on: six of torch's, and sums that really are sequential."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numba
import torch
import torch.nn.functional as F
from torch import Tensor

from lanewise.audit.call import Call

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SIZES = (33, 96, 257)
LONG = (256, 1024, 65536)
Draw = Callable[..., Tensor]  # values of a shape


@dataclass(frozen=True)
class Operator:
    """A call to make at any size, and the argument whose gradient is looked at.

    Attributes:
        name: short name.
        argument: whose gradient.
        make: the call, from a way to draw values, a size and a dtype.
    """

    name: str
    argument: str
    make: Callable[[Draw, int, torch.dtype], Call]


def _linear(draw: Draw, n: int, dtype: torch.dtype) -> Call:
    return Call(F.linear, (draw(n, n), draw(n, n)), linear=("0", "1"), batch={"0": 0, "output": 0})


def _conv(draw: Draw, n: int, dtype: torch.dtype) -> Call:
    x, w = draw(4, 8, max(5, n // 8), max(5, n // 8)), draw(max(4, n // 8), 8, 3, 3)
    return Call(F.conv2d, (x, w), {"padding": 1}, linear=("0", "1"), batch={"0": 0, "output": 0})


def _embedding(draw: Draw, n: int, dtype: torch.dtype) -> Call:
    index = torch.randint(0, max(4, n // 4), (8 * n,), generator=torch.Generator().manual_seed(n))
    # On the CPU torch sums 16-bit rows in 16 bits.
    return Call(
        F.embedding, (index, draw(max(4, n // 4), 24)), linear=("1",), batch={"0": 0, "output": 0},
        accumulation=None if dtype == torch.float32 else dtype,
    )  # fmt: skip


def _cumsum(draw: Draw, n: int, dtype: torch.dtype) -> Call:
    return Call(torch.cumsum, (draw(n, 40),), {"dim": 0}, linear=("0",))


def _layer_norm(draw: Draw, n: int, dtype: torch.dtype) -> Call:
    return Call(F.layer_norm, (draw(64, n), (n,)), batch={"0": 0, "output": 0})


def _attention(draw: Draw, n: int, dtype: torch.dtype) -> Call:
    batch = {"0": 0, "1": 0, "2": 0, "output": 0}
    qkv = tuple(draw(2, 2, n, 16) for _ in range(3))
    return Call(F.scaled_dot_product_attention, qkv, linear=("2",), batch=batch)


OPERATORS = (
    Operator("linear", "1", _linear),
    Operator("conv2d", "1", _conv),
    Operator("embedding", "1", _embedding),
    Operator("cumsum", "0", _cumsum),
    Operator("layer_norm", "0", _layer_norm),
    Operator("attention", "0", _attention),
)


@numba.njit
def _sum_in_turn(x: Any, v: Any, out: Any) -> None:  # pragma: no cover
    for i in range(v.shape[1]):
        for j in range(x.shape[1]):
            total = out[i, j]
            for b in range(x.shape[0]):
                total = total + v[b, i] * x[b, j]
            out[i, j] = total


class _InTurn(torch.autograd.Function):
    """x w^T, whose weight gradient adds its terms one after the other in one float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x @ w.T

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x,), (v,) = ctx.saved_tensors, grads
        out = torch.zeros(v.shape[1], x.shape[1])
        _sum_in_turn(x.numpy(), v.contiguous().numpy(), out.numpy())
        return None, out


def _sequential(draw: Draw, n: int, dtype: torch.dtype) -> Call:
    w = draw(8, 6)
    return Call(
        _InTurn.apply, (draw(n, 6), w), wrt=("1",), linear=("0", "1"), batch={"0": 0, "output": 0}, reference=F.linear
    )


def _pairs(draw: Draw, n: int, dtype: torch.dtype) -> Call:
    return Call(F.layer_norm, (draw(32 * n, 2), (2,)))


PAIRS = Operator("layer_norm of pairs", "0", _pairs)  # whose gradient nearly cancels
SEQUENTIAL = Operator("sequential sum", "1", _sequential)


def drawn(operator: Operator, size: int, dtype: torch.dtype, seed: int, kind: str = "normal", **changes: Any) -> Call:
    """The call with values of a kind: "normal", "one-sided" (after a ReLU), "positive", "tiny", "huge"."""
    g = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        x = torch.randn(shape, generator=g)
        x = {"one-sided": x.relu(), "positive": x.abs() + 0.1, "tiny": x * 2**-8, "huge": x * 2**4}.get(kind, x)
        return x.to(dtype)

    return replace(operator.make(draw, size, dtype), seed=seed, **changes)
