"""Launches of a call that was made before: the same kernels with the same numbers, on other tensors.

Block sizes, strides, alignments and the check of every launch's bound follow from the shapes and strides of a call. To
work them out takes 50 to 100 us of Python, which is more than most layers of a network keep a GPU busy. So what a call
allocates, launches and copies is written down the first time, and done again for the next call of the same kind.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lanewise.splat._launch import Launch, current_stream, recording

MOST = 4096  # calls that are remembered

_known: dict[tuple[Any, ...], Recording | None] = {}


def recorded(function: Callable[..., Tensor], *args: Any) -> Tensor:
    """function(*args), whose work on a GPU depends on its tensors' shapes, strides and alignment, and not on values."""
    if not args[0].is_cuda:
        return function(*args)
    tensors, kinds = [], []
    for x in args:
        if isinstance(x, Tensor):
            tensors.append(x)
            kinds.append((x.shape, x.stride(), x.dtype, x.data_ptr() % 16 == 0))
        else:
            kinds.append(x)
    key = (function, args[0].device.index, *kinds)
    try:
        known = _known[key]
    except KeyError:
        if _overlap(tensors):
            return function(*args)  # which of two that share memory a launch takes cannot be seen
        result, _known[key] = _record(function, args, tensors)
        if len(_known) > MOST:
            _known.pop(next(iter(_known)), None)
        return result
    return function(*args) if known is None else known.replay(tensors)


class View(NamedTuple):
    """A tensor, as a part of one of those that a call is given or makes, so many bytes behind its beginning."""

    which: int
    nbytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def of(self, tensors: list[Tensor]) -> Tensor:
        """That part of these."""
        whole = tensors[self.which]
        if not self.nbytes and whole.shape == self.shape and whole.stride() == self.strides:
            return whole
        offset = whole.storage_offset() + self.nbytes // whole.element_size()
        return whole.as_strided(self.shape, self.strides, offset)


class Operator(NamedTuple):
    """One of torch's own operators, which writes to its first argument."""

    function: Any
    args: tuple[Any, ...]


class Recording(NamedTuple):
    """What a call does.

    Attributes:
        allocations: shape, strides and dtype of the tensors that it makes, after those that it is given.
        steps: its launches and operators in their order, each with the positions of its tensors and what they are.
        result: what it gives.
    """

    allocations: tuple[tuple[Any, ...], ...]
    steps: tuple[tuple[Launch | Operator, tuple[tuple[int, View], ...]], ...]
    result: View

    def replay(self, tensors: list[Tensor]) -> Tensor:
        """The call with these tensors in the place of those that were recorded."""
        device = tensors[0].device
        stream = current_stream(device.index)
        for shape, strides, dtype in self.allocations:
            tensors.append(torch.empty_strided(shape, strides, dtype=dtype, device=device))
        addresses = [x.data_ptr() for x in tensors]
        for step, places in self.steps:
            args = list(step.args)
            if isinstance(step, Operator):
                for position, view in places:
                    args[position] = view.of(tensors)
                step.function(*args)
                continue
            for position, view in places:
                args[position] = addresses[view.which] + view.nbytes
            step.variant.start(step.grid, stream, args)
        return self.result.of(tensors)


class _Watch(TorchDispatchMode):
    """Adds to the launches those of torch's operators that can be done again; notes what is allocated, and what else
    is done."""

    def __init__(self, steps: list[Any]) -> None:
        super().__init__()
        self.steps = steps
        self.made: list[Tensor] = []
        self.others: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if "empty" in func.__name__:
            self.made.append(out)
        elif func in (torch.ops.aten.copy_.default, torch.ops.aten.zero_.default):
            self.steps.append(Operator(func, tuple(args)))
        elif not func.is_view and not _is_poison(func, args):
            self.others.append(str(func))
        return out


def _is_poison(func: Any, args: Any) -> bool:
    """Whether memory is filled with NaN, on which no result may rest: the audit's poison."""
    return func is torch.ops.aten.fill_.Scalar and math.isnan(args[1])


def _record(
    function: Callable[..., Tensor], args: tuple[Any, ...], tensors: list[Tensor]
) -> tuple[Tensor, Recording | None]:
    """The call's result and its recording; none where it does what cannot be recorded."""
    with recording() as steps, _Watch(steps) as watch:
        result = function(*args)
    roots = [*tensors, *watch.made]
    places = [[(i, _view(x, roots)) for i, x in enumerate(step.args) if isinstance(x, Tensor)] for step in steps]
    end = _view(result, roots)
    if watch.others or end is None or any(view is None for place in places for _, view in place):
        return result, None
    allocations = [(x.shape, x.stride(), x.dtype) for x in watch.made]
    mine = end.which - len(tensors)
    if mine >= 0 and end.nbytes == 0 and result.numel() == watch.made[mine].numel():
        allocations[mine] = (result.shape, result.stride(), result.dtype)  # made as what it is given back as
    kept = tuple(
        (_without_tensors(step), tuple((i, view) for i, view in place if view is not None))
        for step, place in zip(steps, places, strict=True)
    )
    return result, Recording(tuple(allocations), kept, end)


def _without_tensors(step: Launch | Operator) -> Launch | Operator:
    """The same, holding no memory."""
    return step._replace(args=tuple(None if isinstance(x, Tensor) else x for x in step.args))


def _view(x: Tensor, roots: list[Tensor]) -> View | None:
    """x as a part of the tensor in whose memory it begins; None where there is no such tensor of its dtype."""
    for which, root in enumerate(roots):
        begin, end = _span(root)
        if begin <= x.data_ptr() < end and x.dtype == root.dtype:
            return View(which, x.data_ptr() - begin, tuple(x.shape), x.stride())
    return None


def _span(x: Tensor) -> tuple[int, int]:
    """Addresses from x's first number to behind its last."""
    numbers = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0
    return x.data_ptr(), x.data_ptr() + numbers * x.element_size()


def _overlap(tensors: list[Tensor]) -> bool:
    """Whether two tensors share memory."""
    spans = sorted(map(_span, tensors))
    return any(a[1] > b[0] for a, b in itertools.pairwise(spans))
