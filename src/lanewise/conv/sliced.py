"""Running a convolution slice by slice: what each launch gets, and where its result goes."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from lanewise.conv.plan import Range, Slice, check, plan
from lanewise.conv.problem import Problem

# From a problem, its two operands (x and w, dy and w, or x and dy) and a bias, if it has one, to the result, which is
# written to the last argument where that is not None.
Launch = Callable[[Problem, Tensor, Tensor, Tensor | None, Tensor | None], Tensor]


def run(
    problem: Problem,
    first: Tensor,
    second: Tensor,
    bias: Tensor | None,
    *,
    channels_last: bool,
    window_bytes: int,
    launch: Launch,
) -> Tensor:
    """What `problem.direction` asks for, by launches of which none touches a tensor larger than the window.

    Partial results are added in the order of the plan, those of a weight's gradient in fp64 and others in at least
    fp32, so that the result is the same every time.

    Args:
        problem: the whole convolution.
        first: x, or dy for the gradient of x.
        second: w, or dy for the gradient of w.
        bias: [k], added to y, or [c], added to the gradient of x (a transposed convolution); or None.
        channels_last: whether the result's channels are innermost in memory.
        window_bytes: the largest tensor of a launch.
        launch: runs one.

    Raises:
        UnsupportedError: nothing fits the window.
    """
    format = memory_format(problem.dims, channels_last)
    if (one := whole(problem, window_bytes)) is not None:
        part = _launched(one, _packed(first, problem), _packed(second, problem), bias, None, window_bytes, launch)
        return part.to(first.dtype).contiguous(memory_format=format)
    slices = plan(problem, window_bytes)
    result = torch.empty(problem.result_shape, dtype=first.dtype, device=first.device, memory_format=format)
    if not slices:
        return result.copy_(column(bias, problem)) if bias is not None else result.zero_()
    for _, group in itertools.groupby(slices, key=lambda piece: piece.result):
        parts = list(group)
        own_bias = None if bias is None else bias[slice(*(parts[0].c if _transposed(problem) else parts[0].k))]
        place = _place(parts[0], result)
        if parts[0].owned != parts[0].x_rows:  # there may be positions that no y sees
            place.copy_(column(own_bias, problem)) if own_bias is not None else place.zero_()
        if len(parts) == 1:
            _alone(parts[0], first, second, own_bias, place, window_bytes, launch)
            continue
        total = None
        for piece in parts:
            part = _launched(piece, *_operands(piece, first, second), own_bias, None, window_bytes, launch)
            total = part.to(_sum_dtype(problem, part.dtype)) if total is None else total.add_(part)
            own_bias = None  # it is in the first part
        assert total is not None
        _put(parts[0], total, place)
    return result


def whole(problem: Problem, window_bytes: int) -> Slice | None:
    """The one slice that is all of the problem, where it needs no other: a launch within the window."""
    slices = plan(problem, window_bytes)
    if len(slices) != 1 or slices[0].problem != problem or 0 in problem.spatial_out:
        return None
    check(problem, window_bytes)
    return slices[0]


def _alone(
    piece: Slice,
    first: Tensor,
    second: Tensor,
    bias: Tensor | None,
    place: Tensor,
    window_bytes: int,
    launch: Launch,
) -> None:
    """A slice whose result is nobody else's. Pieces of the batch are written where they belong; rows and channels of
    a larger tensor may lie further apart than the window, and are copied there."""
    operands = _operands(piece, first, second)
    format = memory_format(piece.problem.dims, piece.problem.channels_last)
    direct = piece.problem.direction != "weight_grad" and piece.owned == piece.x_rows
    if direct and place.is_contiguous(memory_format=format):
        _launched(piece, *operands, bias, place, window_bytes, launch)
    else:
        _put(piece, _launched(piece, *operands, bias, None, window_bytes, launch), place)


def _launched(
    piece: Slice,
    first: Tensor,
    second: Tensor,
    bias: Tensor | None,
    out: Tensor | None,
    window_bytes: int,
    launch: Launch,
) -> Tensor:
    problem = piece.problem
    check(problem, window_bytes)
    if 0 in problem.spatial_out:  # no y sees what the slice owns
        return first.new_zeros(problem.result_shape)
    return launch(problem, first, second, bias, out)


def _transposed(problem: Problem) -> bool:
    """Whether a bias would be that of x's gradient, as in a transposed convolution."""
    return problem.direction == "input_grad"


def _operands(piece: Slice, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """The slice's parts of both, packed."""
    direction = piece.problem.direction
    a = _of_y(first, piece) if direction == "input_grad" else _of_x(first, piece)
    b = _of_y(second, piece) if direction == "weight_grad" else second[slice(*piece.k), slice(*piece.w_c)]
    return _packed(a, piece.problem), _packed(b, piece.problem)


def _of_y(y: Tensor, piece: Slice) -> Tensor:
    rows = piece.y_rows[3 - piece.problem.dims :]
    return y[(slice(*piece.n), slice(*piece.k), *(slice(*row) for row in rows))]


def _of_x(x: Tensor, piece: Slice) -> Tensor:
    """x's part, with zeros where it sticks out."""
    rows = piece.x_rows[3 - piece.problem.dims :]
    inside = [_common(row, (0, size)) for row, size in zip(rows, x.shape[2:], strict=True)]
    part = x[(slice(*piece.n), slice(*piece.c), *(slice(*row) for row in inside))]
    margins = [
        (low - start, end - high) if low < high else (end - start, 0)
        for (start, end), (low, high) in zip(rows, inside, strict=True)
    ]
    if any(margin != (0, 0) for margin in margins):
        part = pad(part, [zeros for margin in reversed(margins) for zeros in margin])
    return part


def _place(piece: Slice, result: Tensor) -> Tensor:
    """Where the result of a slice goes."""
    if piece.problem.direction == "forward":
        return _of_y(result, piece)
    if piece.problem.direction == "weight_grad":
        return result[slice(*piece.k), slice(*piece.w_c)]
    rows = piece.owned[3 - piece.problem.dims :]
    return result[(slice(*piece.n), slice(*piece.c), *(slice(*row) for row in rows))]


def _put(piece: Slice, part: Tensor, place: Tensor) -> None:
    """Copy a slice's result to its place. The gradient of x may have positions that belong to other slices."""
    if not _transposed(piece.problem):
        place.copy_(part)
        return
    first = 3 - piece.problem.dims
    owned, window = piece.owned[first:], piece.x_rows[first:]
    both = [_common(a, b) for a, b in zip(owned, window, strict=True)]
    if all(start < end for start, end in both):
        place[(..., *_shifted(both, owned))].copy_(part[(..., *_shifted(both, window))])


def _common(a: Range, b: Range) -> Range:
    """What two ranges have in common; (0, 0) when that is nothing."""
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if low < high else (0, 0)


def _shifted(ranges: list[Range], origin: tuple[Range, ...]) -> list[slice]:
    """Ranges, counted from where others begin."""
    return [slice(a - start, b - start) for (a, b), (start, _) in zip(ranges, origin, strict=True)]


def _sum_dtype(problem: Problem, dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if problem.direction == "weight_grad" else torch.promote_types(dtype, torch.float32)


def _packed(tensor: Tensor, problem: Problem) -> Tensor:
    return tensor.contiguous(memory_format=memory_format(problem.dims, problem.channels_last))


def memory_format(dims: int, channels_last: bool) -> torch.memory_format:
    """Torch's name of a layout, for tensors with `dims` spatial dimensions."""
    if not channels_last:
        return torch.contiguous_format
    return torch.channels_last if dims == 2 else torch.channels_last_3d


def is_channels_last(tensor: Tensor) -> bool:
    """Whether the channels, and not the columns, of a tensor [n, c, ...] are neighbours in memory.

    A single channel has either order. There torch goes by its stride, which says what it was made as.
    """
    if tensor.is_contiguous():
        return tensor.shape[1] == 1 == tensor.stride(1) and tensor.numel() > tensor.shape[0]
    return tensor.is_contiguous(memory_format=memory_format(tensor.dim() - 2, True))


def column(bias: Tensor, problem: Problem) -> Tensor:
    """A bias in the shape in which it is added."""
    return bias.reshape(-1, *[1] * problem.dims)
