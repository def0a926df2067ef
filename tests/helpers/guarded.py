"""Memory that tells when something is written behind an array, or when what nobody has written is used; and a GPU
that nobody may wait for."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

TAIL = 4096  # bytes behind every array
PATTERNS = (0x7F, 0xFF)  # large numbers; NaN and -1


@contextmanager
def guarded_memory(pattern: int) -> Iterator[None]:
    """New tensors hold a byte pattern, and so does the memory behind them, where it must stay.

    A result that is the same for both `PATTERNS` depends on nothing that was never written.

    Raises:
        AssertionError: at the end, when something was written behind an array.
    """
    empty, tails = torch.empty, []

    def guarded(make: Callable[..., Tensor], zero: bool) -> Callable[..., Tensor]:
        def made(*args: Any, **kwargs: Any) -> Tensor:
            like = make(*args, **kwargs)
            if like.is_pinned():
                return like
            bytes_used = like.numel() * like.element_size()
            room = empty(bytes_used + TAIL, dtype=torch.uint8, device=like.device).fill_(pattern)
            tails.append(room[bytes_used:])
            out = room[:bytes_used].view(like.dtype).view(like.shape)
            return out.zero_() if zero else out

        return made

    patched = [(torch, "empty", False), (torch, "empty_like", False)]
    patched += [(torch.Tensor, "new_empty", False), (torch.Tensor, "new_zeros", True)]
    originals = [getattr(owner, name) for owner, name, _ in patched]
    for (owner, name, zero), make in zip(patched, originals, strict=True):
        setattr(owner, name, guarded(make, zero))
    try:
        yield
    finally:
        for (owner, name, _), make in zip(patched, originals, strict=True):
            setattr(owner, name, make)
    assert tails, "nothing was allocated"
    assert all((tail == pattern).all() for tail in tails), "something was written behind an array"


@contextmanager
def waiting_forbidden() -> Iterator[None]:
    """Whatever waits for the GPU raises a RuntimeError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
