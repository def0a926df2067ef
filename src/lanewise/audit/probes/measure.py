"""Inner products and norms in float64 of tensors that may be too large to be converted whole."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

CHUNK = 2**25  # elements that are converted to float64 at a time


def dot(a: Tensor, b: Tensor) -> float:
    """<a, b> in float64."""
    pairs = zip(a.detach().reshape(-1).split(CHUNK), b.detach().reshape(-1).split(CHUNK), strict=True)
    return sum(float(torch.dot(x.double(), y.double())) for x, y in pairs)


def norm(x: Tensor, *, minus: Tensor | None = None, scale: float = 1.0) -> float:
    """||scale x - minus|| in float64."""
    return math.sqrt(sum(float(torch.dot(d, d)) for d in _differences(x, minus, scale)))


def participation(x: Tensor, *, minus: Tensor | None = None, scale: float = 1.0) -> float:
    """How many elements make up the square of ||scale x - minus||: sum(d^2)^2 / sum(d^4), from 1 to all of them."""
    squares = fourths = 0.0
    for d in _differences(x, minus, scale):
        squares += float(torch.dot(d, d))
        fourths += float(d.square().square().sum())
    return squares**2 / fourths if fourths > 0 else float(x.numel())


def _differences(x: Tensor, minus: Tensor | None, scale: float) -> Iterator[Tensor]:
    parts = x.detach().reshape(-1).split(CHUNK)
    others = minus.detach().reshape(-1).split(CHUNK) if minus is not None else [None] * len(parts)
    for part, other in zip(parts, others, strict=True):
        yield part.double() * scale if other is None else part.double() * scale - other.double()


def norms(parts: Sequence[Tensor]) -> float:
    """The norm of several tensors together."""
    return math.sqrt(sum(norm(x) ** 2 for x in parts))


def numels(parts: Sequence[Tensor]) -> int:
    """The elements of several tensors together."""
    return sum(x.numel() for x in parts)
