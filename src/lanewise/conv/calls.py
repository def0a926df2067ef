"""What a call of an operator is: its problem, its window, and who runs it."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from lanewise.conv import sliced
from lanewise.conv.backends import Launch
from lanewise.conv.problem import Direction, Problem, Triple
from lanewise.conv.sliced import is_channels_last, memory_format
from lanewise.target import detect


class Call(NamedTuple):
    """What a call is, which the shapes and strides of its tensors say: worked out once, since a small convolution takes
    no longer than working it out.

    Attributes:
        problem: all of it.
        whole: whether one launch is all of it, within the window, and both operands are packed.
        format: the result's layout.
        window_bytes: the largest tensor of a launch.
        launches: where one is all, whoever runs it, by the arithmetic and what else decides that.
    """

    problem: Problem
    whole: bool
    format: torch.memory_format
    window_bytes: int
    launches: dict[tuple[object, ...], Launch]


@functools.lru_cache(maxsize=4096)
def call_of(
    direction: Direction,
    first: tuple[int, ...],
    first_strides: tuple[int, ...],
    second: tuple[int, ...],
    second_strides: tuple[int, ...],
    extents: tuple[int, ...],
    channels_last: bool,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    dtype: torch.dtype,
    device: torch.device,
    window_bytes: int | None,
) -> Call:
    """The call of an operator.

    Args:
        direction: what it asks for.
        first, first_strides, second, second_strides: of its operands.
        extents: of the result: of y, of x, or of the weight.
        channels_last: the result's layout.
        stride, padding, dilation: one number a spatial dimension, as `extents`.
        groups: that do not mix.
        dtype: of the operands.
        device: theirs.
        window_bytes: the largest tensor of a launch; None for the device's.
    """
    a, b = (torch.empty_strided(*like, device="meta") for like in ((first, first_strides), (second, second_strides)))
    sizes = {
        "forward": (first[1], second[0], first[2:], extents, second[2:]),
        "input_grad": (second[1] * groups, first[1], extents, first[2:], second[2:]),
        "weight_grad": (first[1], second[1], first[2:], second[2:], extents),
    }[direction]
    layout = is_channels_last(a) or is_channels_last(b)
    problem = problem_of(direction, first[0], *sizes, stride, padding, dilation, groups, dtype, layout)
    window = window_of(device, window_bytes)
    packed = all(x.is_contiguous(memory_format=memory_format(problem.dims, layout)) for x in (a, b))
    whole = packed and sliced.whole(problem, window) is not None
    return Call(problem, whole, memory_format(problem.dims, channels_last), window, {})


def problem_of(
    direction: Direction,
    n: int,
    c: int,
    k: int,
    spatial_in: tuple[int, ...],
    spatial_out: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    dtype: torch.dtype,
    channels_last: bool,
) -> Problem:
    """A problem, whose numbers are given for the dimensions that the tensors have; see there."""

    def three(values: tuple[int, ...], missing: int) -> Triple:
        depth, height, width = (missing,) * (3 - len(values)) + values
        return depth, height, width

    return Problem(
        n=n,
        c=c,
        k=k,
        spatial_in=three(spatial_in, 1),
        spatial_out=three(spatial_out, 1),
        kernel=three(kernel, 1),
        stride=three(stride, 1),
        padding=three(padding, 0),
        dilation=three(dilation, 1),
        groups=groups,
        dtype=dtype,
        channels_last=channels_last,
        direction=direction,
        dims=len(kernel),
    )


@functools.cache
def _default_window(device: torch.device) -> int:
    return detect(device).window_bytes


def window_of(device: torch.device, window_bytes: int | None) -> int:
    """The window that was asked for, or the device's."""
    return _default_window(device) if window_bytes is None else window_bytes
