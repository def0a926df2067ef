"""The poison probe: memory that nobody has written holds NaN, so that a gradient nobody wrote shows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from lanewise.audit.call import Call
from lanewise.audit.probes.directions import begin, draw
from lanewise.audit.probes.measure import norm
from lanewise.audit.verdict import Verdict, judge

_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)
_ALLOCATORS = ("empty", "empty_like", "empty_strided")
_METHODS = ("new_empty", "new_empty_strided")


def poison(call: Call, argument: str, *, probes: int = 3, seed: int = 0) -> Verdict:
    """Compare the gradient with the one that is computed while fresh memory holds NaN; fails as "LW303"."""
    trial = begin(call, argument, "poison")
    if isinstance(trial, Verdict):
        return trial
    directions = draw(trial, 1, seed)
    (direction,) = directions
    if not math.isfinite(direction.norm):
        return Verdict("poison", argument, "inconclusive", reason="the gradient holds NaN or infinity without it")
    samples = []
    for _ in range(probes):
        spoil(direction.gradient, *trial.outputs)
        with poisoned():
            gradient = call.gradient(direction.cotangents, names=(argument,))[argument]
        off = norm(gradient, minus=direction.gradient)
        samples.append((0.0 if bool(gradient.isfinite().all()) else off, direction.norm / 100, direction.norm))
    verdict = judge("poison", argument, samples, law="certain")
    if verdict.outcome == "failed":
        why = "the gradient holds NaN where memory that was handed out held NaN: something was not written"
        return replace(verdict, code="LW303", reason=why)
    return verdict


@contextmanager
def poisoned() -> Iterator[None]:
    """Memory that torch hands out unwritten holds NaN: as in `poisoned_in_python`, and of torch's own operators.

    Those are asked for deterministic algorithms meanwhile, because torch fills their memory only then; not where there
    is a GPU, whose deterministic kernels are others than those to be tested.
    """
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    switch: Any = torch.utils.deterministic  # a module with a property
    fill = switch.fill_uninitialized_memory
    with poisoned_in_python(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        switch.fill_uninitialized_memory = True
        torch.use_deterministic_algorithms(not torch.cuda.is_available() or before[0], warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
            switch.fill_uninitialized_memory = fill


@contextmanager
def poisoned_in_python() -> Iterator[None]:
    """Memory that is allocated through torch's Python interface, as Triton operators do, holds NaN, and the smallest
    value where it is for integers."""
    with ExitStack() as stack:
        for owner, names in ((torch, _ALLOCATORS), (Tensor, _METHODS)):
            for name in names:
                stack.enter_context(mock.patch.object(owner, name, _poisoned(getattr(owner, name))))
        yield


def spoil(*tensors: Tensor) -> None:
    """Fill memory of these sizes with NaN and give it back, for an allocator that hands it out again as it is."""
    for _ in range(2):
        [torch.full(x.shape, torch.nan, dtype=x.dtype, device=x.device) for x in tensors]


def _poisoned(allocate: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`allocate`, with NaN in floating and the smallest value in integer tensors."""

    def allocate_and_fill(*args: object, **kwargs: object) -> Tensor:
        out = allocate(*args, **kwargs)
        memory = out.detach()  # a leaf that requires a gradient is not filled
        if out.is_floating_point():
            memory.fill_(torch.nan)
        elif out.dtype in _INTEGERS:
            memory.fill_(torch.iinfo(out.dtype).min)
        return out

    return allocate_and_fill
