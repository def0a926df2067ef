"""From the numbers that a caller gives to those of every axis, or to None where torch would refuse them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from lanewise.conv.problem import output_extent

Size = int | Sequence[int]
Geometry = tuple[list[int], list[int], list[int], list[int], list[int]]


def of_convolution(
    dims: int, x: Sequence[int], w: Sequence[int], stride: Size, padding: Size | str, dilation: Size, groups: int
) -> Geometry | None:
    """Stride, padding and dilation an axis, what `pad` has to do before, and y's extents; None where torch refuses."""
    steps, spread = _sizes(stride, dims), _sizes(dilation, dims)
    if steps is None or spread is None or x[-dims - 1] != w[1] * groups or w[0] % groups:
        return None
    extents, further = list(x[-dims:]), []
    if padding == "valid":
        padding = 0
    if padding == "same" and max(steps) == 1:
        both = [d * (extent - 1) for d, extent in zip(spread, w[2:], strict=True)]
        if any(total % 2 for total in both):  # one zero more at the far end
            further = [zeros for total in reversed(both) for zeros in (0, total % 2)]
            extents = [extent + total % 2 for extent, total in zip(extents, both, strict=True)]
        padding = [total // 2 for total in both]
    zeros = None if isinstance(padding, str) else _sizes(padding, dims, least=0)
    if zeros is None:
        return None
    spatial_out = [output_extent(*axis) for axis in zip(extents, w[2:], steps, zeros, spread, strict=True)]
    return (steps, zeros, spread, further, spatial_out) if min(spatial_out) >= 1 else None


def of_transposed(
    dims: int,
    x: Sequence[int],
    w: Sequence[int],
    stride: Size,
    padding: Size,
    output_padding: Size,
    dilation: Size,
    groups: int,
) -> tuple[list[int], list[int], list[int], list[int]] | None:
    """Stride, padding and dilation an axis, and the result's extents; None where torch refuses."""
    steps, spread = _sizes(stride, dims), _sizes(dilation, dims)
    zeros, extra = _sizes(padding, dims, least=0), _sizes(output_padding, dims, least=0)
    if steps is None or spread is None or zeros is None or extra is None or x[-dims - 1] != w[0] or w[0] % groups:
        return None
    axes = zip(x[-dims:], w[2:], steps, zeros, spread, extra, strict=True)
    extents = [(i - 1) * s - 2 * p + d * (t - 1) + e + 1 for i, t, s, p, d, e in axes]
    possible = all(e < max(s, d) for e, s, d in zip(extra, steps, spread, strict=True))
    return (steps, zeros, spread, extents) if possible and min(extents) >= 1 else None


def known(rule: Callable[..., Any], *sizes: Any) -> Any:
    """`rule` of these sizes, looked up where they are plain numbers: a call of a convolution may take microseconds."""
    if torch.compiler.is_compiling():
        return rule(*sizes)
    try:
        return _remembered(rule, *sizes)
    except TypeError:  # a list, or what is no size at all
        return rule(*sizes)


@functools.lru_cache(maxsize=4096)
def _remembered(rule: Callable[..., Any], *sizes: Any) -> Any:
    return rule(*sizes)


def _sizes(value: Any, dims: int, *, least: int = 1) -> list[int] | None:
    """One number an axis; None where torch would have something to say."""
    values = [value] * dims if isinstance(value, int | torch.SymInt) else value
    if not isinstance(values, Sequence) or not all(isinstance(v, int | torch.SymInt) for v in values):
        return None
    numbers = cast(list[int], list(values) * (dims if len(values) == 1 else 1))
    return numbers if len(numbers) == dims and min(numbers) >= least else None
