"""Launches of a call that was made before: the same kernels with the same numbers, on other tensors.

Block sizes, strides, alignments and the check of every launch's bound follow from the shapes and strides of a call. To
work them out takes 50 to 100 us of Python, which is more than most layers of a network keep a GPU busy. So what a call
allocates and launches is written down the first time, and done again for the next call of the same kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lanewise.splat._launch import Launch, current_stream, recording

MOST = 4096  # calls that are remembered
Layout = tuple[torch.Size, tuple[int, ...], torch.dtype]

_known: dict[tuple[Any, ...], Recording | None] = {}


def recorded(function: Callable[..., Tensor], *args: Any) -> Tensor:
    """function(*args), whose work on a GPU depends on its tensors' shapes, strides and alignment, and not on values."""
    tensors = [x for x in args if isinstance(x, Tensor)]
    if not tensors[0].is_cuda:
        return function(*args)
    key = (function, tensors[0].device.index, *map(_kind, args))
    try:
        known = _known[key]
    except KeyError:
        if len({x.data_ptr() for x in tensors}) < len(tensors):
            return function(*args)  # which of two that are one and the same a launch takes cannot be seen
        result, _known[key] = _record(function, args, tensors)
        if len(_known) > MOST:
            _known.pop(next(iter(_known)), None)
        return result
    return function(*args) if known is None else known.replay(tensors)


def _kind(x: Any) -> Any:
    """What a call's work depends on, of an argument."""
    return (x.shape, x.stride(), x.dtype, x.data_ptr() % 16 == 0) if isinstance(x, Tensor) else x


@dataclass(frozen=True)
class Recording:
    """What a call does.

    Attributes:
        allocations: tensors that it makes, after those that it is given.
        launches: its kernels, with the positions of their tensor arguments and which of those tensors they are.
        result: which tensor is the result, and the shape and strides that it has.
    """

    allocations: tuple[Layout, ...]
    launches: tuple[tuple[Launch, tuple[tuple[int, int], ...]], ...]
    result: tuple[int, torch.Size, tuple[int, ...]]

    def replay(self, tensors: list[Tensor]) -> Tensor:
        """The call with these tensors in the place of those that were recorded."""
        device = tensors[0].device
        stream = current_stream(device.index)
        for shape, strides, dtype in self.allocations:
            tensors.append(torch.empty_strided(shape, strides, dtype=dtype, device=device))
        for launch, places in self.launches:
            launch.again([(position, tensors[which]) for position, which in places], stream)
        which, shape, strides = self.result
        result = tensors[which]
        return result if result.shape == shape else result.as_strided(shape, strides)


class _Watch(TorchDispatchMode):
    """Notes what is allocated, and whether anything else is done by torch's own operators."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Tensor] = []
        self.others: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if "empty" in func.__name__:
            self.made.append(out)
        elif not func.is_view and not _is_poison(func, args):
            self.others.append(str(func))
        return out


def _is_poison(func: Any, args: Any) -> bool:
    """Whether memory is filled with NaN, on which no result may rest: the audit's poison."""
    return func is torch.ops.aten.fill_.Scalar and math.isnan(args[1])


def _record(
    function: Callable[..., Tensor], args: tuple[Any, ...], tensors: list[Tensor]
) -> tuple[Tensor, Recording | None]:
    """The call's result and its recording; none where it is more than allocations and launches."""
    with _Watch() as watch, recording() as launches:
        result = function(*args)
    roots = [*tensors, *watch.made]
    places = [
        [(i, _which(x, roots)) for i, x in enumerate(launch.args) if isinstance(x, Tensor)] for launch in launches
    ]
    end = _which(result, roots)
    if watch.others or end is None or any(which is None for place in places for _, which in place):
        return result, None
    allocations = tuple((x.shape, x.stride(), x.dtype) for x in watch.made)
    kept = tuple(
        (_without_tensors(launch), tuple((i, which) for i, which in place if which is not None))
        for launch, place in zip(launches, places, strict=True)
    )
    return result, Recording(allocations, kept, (end, result.shape, result.stride()))


def _without_tensors(launch: Launch) -> Launch:
    return launch._replace(args=tuple(None if isinstance(x, Tensor) else x for x in launch.args))


def _which(x: Tensor, roots: list[Tensor]) -> int | None:
    """Which tensor x begins in the same place as, and is of the same dtype."""
    for i, root in enumerate(roots):
        if x.data_ptr() == root.data_ptr() and x.dtype == root.dtype and x.numel() and root.numel():
            return i
    return None
