"""The one address planner: cuts a convolution into slices, none of which reaches further than a window of bytes.

A buffer access on an AMD GPU reaches 2^32 - 1 bytes, an int32 offset 2^31. A launch that passes its limit raises
nothing: it reads zeros and writes nowhere. So what may be launched is decided here, for every backend, from the bytes
of every tensor that a launch touches.

Axes are cut in a fixed order: the batch, then the rows (depth, height, width), then the groups and the channels. Pieces
of a batch are contiguous in memory, all others have to be copied, and the channels that are summed over cost an
addition of partial results besides. An axis is only cut when cutting those before it to single elements is not enough,
and into as few pieces as fit. The pieces need not divide the axis: they are equally long, the last one may be shorter.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from lanewise.conv.problem import Direction, Problem, output_extent
from lanewise.errors import InputError, LanewiseError, UnsupportedError

Range = tuple[int, int]  # half open
ROWS = ("depth", "height", "width")
# Channels that the result keeps come before those that it is a sum over. "k" and "c" are channels of one group.
AXES: dict[Direction, tuple[str, ...]] = {
    "forward": ("batch", *ROWS, "groups", "k", "c"),
    "input_grad": ("batch", *ROWS, "groups", "c", "k"),
    "weight_grad": ("batch", *ROWS, "groups", "k", "c"),
}
SUMMED: dict[Direction, tuple[str, ...]] = {
    "forward": ("c",),
    "input_grad": ("k",),
    "weight_grad": ("batch", *ROWS),
}


@dataclass(frozen=True)
class Slice:
    """One launch: which part of each tensor it takes, as half-open ranges, and the problem that it is by itself.

    Attributes:
        n: of the batch.
        k: of y's channels, and of w's first dimension.
        c: of x's channels.
        w_c: of w's second dimension.
        x_rows: three, of x's positions. Where an axis of rows is cut they may begin below 0 or end past the extent:
            what sticks out is padding, and is part of the launch's own tensor. The same where the padding at the far
            end is not that of the near one.
        y_rows: three, of y's positions; empty when no y sees what the slice owns.
        owned: three, of x's positions: those whose gradient this slice gives (`input_grad`); otherwise `x_rows`.
        problem: the launch; its padding is 0 along such rows.
    """

    n: Range
    k: Range
    c: Range
    w_c: Range
    x_rows: tuple[Range, Range, Range]
    y_rows: tuple[Range, Range, Range]
    owned: tuple[Range, Range, Range]
    problem: Problem

    @property
    def result(self) -> tuple[object, ...]:
        """Where the result goes: slices for which this is the same are summed."""
        return {
            "forward": (self.n, self.k, self.y_rows),
            "input_grad": (self.n, self.c, self.owned),
            "weight_grad": (self.k, self.w_c),
        }[self.problem.direction]


@functools.lru_cache(maxsize=4096)
def plan(problem: Problem, window_bytes: int) -> tuple[Slice, ...]:
    """The slices of a convolution.

    Together they cover it exactly once; of those that are summed the first comes first, one after the other.

    Args:
        problem: the whole convolution.
        window_bytes: how large a tensor of one launch may be; one of exactly this size fits.

    Returns:
        One slice where everything fits; none for a convolution without a single product.

    Raises:
        InputError: the window is not a positive whole number.
        UnsupportedError: a single row of one image with one channel is larger than the window.
    """
    check_window(window_bytes)
    lengths = _lengths(problem)
    if 0 in lengths.values():
        return ()
    pieces = _pieces(problem, window_bytes)
    summed = SUMMED[problem.direction]
    nested = [axis for axis in AXES[problem.direction] if axis not in summed] + list(summed)  # the last runs fastest
    ranges = itertools.product(*(_ranges(lengths[axis], pieces[axis]) for axis in nested))
    slices = tuple(_slice(problem, dict(zip(nested, taken, strict=True))) for taken in ranges)
    for launch in slices:
        check(launch.problem, window_bytes)
    return slices


def check_window(window_bytes: object) -> None:
    """Raise an InputError unless it is a positive whole number."""
    if not isinstance(window_bytes, int) or isinstance(window_bytes, bool) or window_bytes < 1:
        raise InputError("window_bytes", got=repr(window_bytes), expected="a whole number of bytes from 1 on")


def check(problem: Problem, window_bytes: int) -> None:
    """Raise a LanewiseError when a launch would touch a tensor that is larger than the window."""
    for name, size in problem.tensor_bytes.items():
        if size > window_bytes:
            raise LanewiseError(
                f"{name}: {size:,} bytes in one launch, at most {window_bytes:,} were planned: {problem}. "
                "Please report this; nothing is launched past the window."
            )


def _lengths(problem: Problem) -> dict[str, int]:
    """How long every axis is. The rows are those of the tensor that is not summed: y's, or x's for its gradient."""
    rows = problem.spatial_in if problem.direction == "input_grad" else problem.spatial_out
    return {
        "batch": problem.n,
        **dict(zip(ROWS, rows, strict=True)),
        "groups": problem.groups,
        "k": problem.k // problem.groups,
        "c": problem.c // problem.groups,
    }


def _pieces(problem: Problem, window_bytes: int) -> dict[str, int]:
    """How long a piece of every axis may be."""
    # A single row with all that it sees, padding included, may be larger than a short axis as a whole: where cutting
    # all rows does not help, cutting only some may.
    for uncut in _subsets(ROWS):
        axes = [axis for axis in AXES[problem.direction] if axis not in uncut]
        if pieces := _cut(problem, window_bytes, axes):
            return pieces
    raise _refusal(problem, window_bytes)


def _cut(problem: Problem, window_bytes: int, axes: list[str]) -> dict[str, int] | None:
    """How long a piece of every axis may be when only these are cut; None when nothing fits."""
    whole = _lengths(problem)
    pieces = dict(whole)

    def longest(axis: str) -> int:
        """The longest piece of an axis with which everything fits, the other axes as they are; 0: none does."""

        def fits(length: int) -> bool:
            return _largest(problem, {**pieces, axis: length}).fits(window_bytes)

        if fits(whole[axis]):
            return whole[axis]
        low, high = 0, whole[axis]  # low fits or is 0, high does not fit
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    in_vain = []
    for axis in axes:
        length = longest(axis)
        pieces[axis] = max(length, 1)
        if length:
            break
        in_vain.append(axis)
    else:
        return None
    # What was cut to single elements in vain may be long again. (Not the groups, where a group's channels are cut: two
    # groups are no smaller than one channel more, and that did not fit. So the channels of a slice are one range.)
    for axis in reversed(in_vain):
        pieces[axis] = longest(axis)
    return pieces


def _largest(problem: Problem, pieces: Mapping[str, int]) -> Problem:
    """The largest launch when every axis is cut into pieces of these lengths."""
    whole = _lengths(problem)
    rows = _whole_rows(problem)
    for axis, name in enumerate(ROWS):
        if pieces[name] == whole[name] and _padded_alike(problem, axis):
            continue
        outputs = pieces[name]
        if problem.direction == "input_grad":
            reach = problem.dilation[axis] * (problem.kernel[axis] - 1)
            outputs = min(problem.spatial_out[axis], (outputs - 1 + reach) // problem.stride[axis] + 1)
        rows[axis] = (_seen_by(problem, axis, outputs), outputs, 0)
    return _launch(problem, pieces["batch"], pieces["groups"], pieces["k"], pieces["c"], rows)


def _whole_rows(problem: Problem) -> list[tuple[int, int, int]]:
    """Extents of x and y and the padding, of three axes."""
    return list(zip(problem.spatial_in, problem.spatial_out, problem.padding, strict=True))


def _launch(problem: Problem, n: int, groups: int, k: int, c: int, rows: list[tuple[int, int, int]]) -> Problem:
    """A part of a problem, as a problem; k and c are channels of one group."""
    inputs, outputs, padding = zip(*rows, strict=True)
    return replace(
        problem,
        n=n,
        groups=groups,
        k=groups * k,
        c=groups * c,
        spatial_in=inputs,
        spatial_out=outputs,
        padding=padding,
    )


def _padded_alike(problem: Problem, axis: int) -> bool:
    """Whether the padding is the same at both ends, as libraries ask for; an output padding may be larger than that."""
    i, o = problem.spatial_in[axis], problem.spatial_out[axis]
    geometry = (values[axis] for values in (problem.kernel, problem.stride, problem.padding, problem.dilation))
    return output_extent(i, *geometry) == o


def _seen_by(problem: Problem, axis: int, outputs: int) -> int:
    """How many positions of x, padding included, so many neighbouring positions of y see."""
    return (outputs - 1) * problem.stride[axis] + problem.dilation[axis] * (problem.kernel[axis] - 1) + 1


def _ranges(length: int, piece: int) -> Iterator[Range]:
    """Equal ranges that cover 0..length, none longer than `piece`, as few as possible; the last may be shorter."""
    parts = -(-length // piece)
    piece = -(-length // parts)
    for start in range(0, length, piece):
        yield start, min(start + piece, length)


def _slice(problem: Problem, ranges: Mapping[str, Range]) -> Slice:
    """The launch for a range of every axis."""
    whole = _lengths(problem)
    rows = _whole_rows(problem)
    x_rows, y_rows, owned = ([(0, row[which]) for row in rows] for which in (0, 1, 0))
    for axis, name in enumerate(ROWS):
        if ranges[name] == (0, whole[name]) and _padded_alike(problem, axis):
            continue
        gradient = problem.direction == "input_grad"
        first, end = y_rows[axis] = _seeing(problem, axis, ranges[name]) if gradient else ranges[name]
        start = first * problem.stride[axis] - problem.padding[axis]
        extent = _seen_by(problem, axis, end - first) if end > first else 0
        x_rows[axis] = (start, start + extent)
        owned[axis] = ranges[name] if gradient else x_rows[axis]
        rows[axis] = (extent, end - first, 0)
    groups, k, c = (ranges[name] for name in ("groups", "k", "c"))
    n, *sizes = (end - start for start, end in (ranges["batch"], groups, k, c))
    return Slice(
        n=ranges["batch"],
        k=_channels(groups, k, whole["k"]),
        c=_channels(groups, c, whole["c"]),
        w_c=c,
        x_rows=(x_rows[0], x_rows[1], x_rows[2]),
        y_rows=(y_rows[0], y_rows[1], y_rows[2]),
        owned=(owned[0], owned[1], owned[2]),
        problem=_launch(problem, n, sizes[0], sizes[1], sizes[2], rows),
    )


def _seeing(problem: Problem, axis: int, positions: Range) -> Range:
    """The positions of y that see at least one of these of x; an empty range when none does."""
    stride, padding = problem.stride[axis], problem.padding[axis]
    reach = problem.dilation[axis] * (problem.kernel[axis] - 1)
    first = max(0, -((reach - positions[0] - padding) // stride))
    end = min(problem.spatial_out[axis], (positions[1] - 1 + padding) // stride + 1)
    return first, max(first, end)


def _channels(groups: Range, inside: Range, of_group: int) -> Range:
    """The range of all channels that a range of groups and one inside a group make; one of both is whole or single."""
    return groups[0] * of_group + inside[0], (groups[1] - 1) * of_group + inside[1]


def _refusal(problem: Problem, window_bytes: int) -> UnsupportedError:
    single = dict.fromkeys(AXES[problem.direction], 1)
    rows = {name: length for name, length in _lengths(problem).items() if name in ROWS}
    slices = [_largest(problem, {**single, **{name: rows[name] for name in some}}) for some in _subsets(ROWS)]
    name, size = min((max(s.tensor_bytes.items(), key=lambda item: item[1]) for s in slices), key=lambda item: item[1])
    return UnsupportedError(
        f"a convolution of {problem.dtype} with input {list(problem.x_shape)}, weight {list(problem.w_shape)} and "
        f"output {list(problem.y_shape)} in a window of {window_bytes:,} bytes",
        why=f"its smallest slice, of a single image, row and channel, still has {size:,} bytes of {name}",
        fix=f"window_bytes={size} or more, or a smaller kernel",
    )


def _subsets(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """All of them, the smaller ones first."""
    for count in range(len(names) + 1):
        yield from itertools.combinations(names, count)
