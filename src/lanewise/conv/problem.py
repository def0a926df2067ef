"""What a convolution is, in numbers: the shapes of its three tensors and how they hang together."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch

Direction = Literal["forward", "input_grad", "weight_grad"]
Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Problem:
    """One convolution y[n, k, o] = sum over c and t of w[k, c, t] x[n, c, o stride - padding + t dilation], and which
    of its three tensors is asked for.

    Spatial numbers are always three, depth, height and width; in two dimensions the depth is 1. A convolution in one
    dimension is one in two of height 1; a transposed one is the input gradient of the convolution that it mirrors.

    Attributes:
        n: batch.
        c: input channels, of all groups.
        k: output channels, of all groups.
        spatial_in: extents of x.
        spatial_out: extents of y; what the padding at the far end is follows from both.
        kernel: extents of w.
        stride: steps of x for one of y.
        padding: zeros before the first position of x.
        dilation: steps of x for one of w.
        groups: x's and y's channels fall into this many groups that do not mix.
        dtype: of x, w and y.
        channels_last: whether x and y have their channels innermost in memory.
        direction: "forward" asks for y, "input_grad" for the gradient of x, "weight_grad" for that of w.
        dims: spatial dimensions that the tensors have, 2 or 3.
    """

    n: int
    c: int
    k: int
    spatial_in: Triple
    spatial_out: Triple
    kernel: Triple
    stride: Triple = (1, 1, 1)
    padding: Triple = (0, 0, 0)
    dilation: Triple = (1, 1, 1)
    groups: int = 1
    dtype: torch.dtype = torch.float32
    channels_last: bool = False
    direction: Direction = "forward"
    dims: int = 2

    @functools.cached_property
    def x_shape(self) -> tuple[int, ...]:
        """[n, c, *spatial_in], with `dims` spatial dimensions."""
        return (self.n, self.c, *self.spatial_in[3 - self.dims :])

    @functools.cached_property
    def w_shape(self) -> tuple[int, ...]:
        """[k, c / groups, *kernel]."""
        return (self.k, self.c // self.groups, *self.kernel[3 - self.dims :])

    @functools.cached_property
    def y_shape(self) -> tuple[int, ...]:
        """[n, k, *spatial_out]."""
        return (self.n, self.k, *self.spatial_out[3 - self.dims :])

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The shape of what `direction` asks for."""
        return {"forward": self.y_shape, "input_grad": self.x_shape, "weight_grad": self.w_shape}[self.direction]

    @property
    def reduction(self) -> int:
        """How many products one element of the result sums, at most."""
        taps = math.prod(self.kernel)
        if self.direction == "weight_grad":
            return self.n * math.prod(self.spatial_out)
        return taps * (self.c if self.direction == "forward" else self.k) // self.groups

    @functools.cached_property
    def tensor_bytes(self) -> Mapping[str, int]:
        """Bytes of every tensor that a launch touches, by name. The gradient of the weight is summed in fp32, whatever
        the tensors are."""
        size = self.dtype.itemsize
        weight_size = max(size, 4) if self.direction == "weight_grad" else size
        return {
            "input": math.prod(self.x_shape) * size,
            "weight": math.prod(self.w_shape) * weight_size,
            "output": math.prod(self.y_shape) * size,
        }

    @functools.cached_property
    def geometry(self) -> tuple[Any, ...]:
        """Stride, padding, dilation, transposed, output padding and groups as torch takes them, of the dimensions that
        the tensors have."""
        stride, padding, dilation = (list(v[3 - self.dims :]) for v in (self.stride, self.padding, self.dilation))
        return stride, padding, dilation, False, [0] * self.dims, self.groups

    @functools.cached_property
    def transposed(self) -> tuple[Any, ...] | None:
        """The same of the transposed convolution that gives the gradient of x; None where torch has no such, or another
        way to do it (depthwise)."""
        stride, padding, dilation, _, _, groups = self.geometry
        sizes = zip(self.x_shape[2:], self.y_shape[2:], self.w_shape[2:], stride, padding, dilation, strict=True)
        further = [x - ((y - 1) * s - 2 * p + d * (k - 1) + 1) for x, y, k, s, p, d in sizes]
        usual = all(0 <= more < max(s, d) for more, s, d in zip(further, stride, dilation, strict=True))
        depthwise = groups > 1 and groups == self.c
        return (stride, padding, dilation, True, further, groups) if usual and not depthwise else None

    def fits(self, window_bytes: int) -> bool:
        """Whether no tensor of this problem is larger than the window."""
        return max(self.tensor_bytes.values()) <= window_bytes

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:  # every call of a convolution looks its plan and its backend up
        return hash(tuple(getattr(self, field.name) for field in fields(self)))

    def along(self, direction: Direction) -> Problem:
        """The same convolution, with another of its tensors asked for."""
        return replace(self, direction=direction)


def output_extent(extent: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """How many positions y has for x's `extent`, with `padding` zeros at both ends."""
    return (extent + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
