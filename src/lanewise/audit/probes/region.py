"""Where a gradient is wrong, and what that looks like."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lanewise.audit.verdict import Region


def bounding_region(wrong: Tensor) -> Region | None:
    """The smallest box of indices that holds every wrong element; None when there is none."""
    if not bool(wrong.any()):
        return None
    box = []
    for dim in range(wrong.dim()):
        others = [d for d in range(wrong.dim()) if d != dim]
        at = (wrong.any(others[0]) if len(others) == 1 else wrong.sum(others) > 0 if others else wrong).nonzero()
        box.append((int(at.min()), int(at.max()) + 1))
    return tuple(box)


def search_region(shape: Sequence[int], wrong: Callable[[Region], bool]) -> Region:
    """The smallest box that holds every wrong element, by asking which boxes hold one: 2 log2(size) a dimension.

    Args:
        shape: of the gradient.
        wrong: whether a box holds a wrong element; it is asked of boxes that reach across all dimensions but one.
    """
    box = []
    for dim, size in enumerate(shape):

        def holds(start: int, stop: int, dim: int = dim) -> bool:
            return wrong(tuple((start, stop) if d == dim else (0, n) for d, n in enumerate(shape)))

        first = _smallest(size, lambda k: holds(0, k + 1))
        last = size - 1 - _smallest(size, lambda k, size=size: holds(size - 1 - k, size))
        box.append((first, max(first, last) + 1))
    return tuple(box)


def classify(gradient: Tensor, exact: Tensor, wrong: Tensor) -> str:
    """The finding that a wrong gradient looks like beside the right one (`lanewise explain CODE`)."""
    if not bool(gradient.isfinite().all()):
        return "LW102"
    if not bool(gradient.any()):
        return "LW101"
    a, b = gradient.double().flatten(), exact.flatten()
    ratio = float(torch.dot(a, b) / torch.dot(b, b).clamp_min(1e-300))
    rest = float((a - ratio * b).norm())
    if rest < 0.1 * float((a - b).norm()):
        return "LW105"
    if not bool(gradient[wrong].any()):
        return "LW103"
    if not bool(exact[wrong].any()):  # something where there is nothing
        return "LW104"
    if rest < 0.1 * float(b.norm()):
        return "LW105"
    # A part of the sum leaves what is there uncorrelated with what is missing; right values elsewhere do not.
    missing = b - a
    kept = float(torch.dot(a, b) / (a.norm() * b.norm()).clamp_min(1e-300))
    orthogonal = abs(float(torch.dot(a, missing))) < 0.2 * float(a.norm() * missing.norm())
    return "LW103" if orthogonal and kept > 0.2 else "LW104"


def _smallest(size: int, holds: Callable[[int], bool]) -> int:
    """The smallest k < size with holds(k), for a property that stays true once it is."""
    low, high = 0, size - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
