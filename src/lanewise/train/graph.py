"""Capturing work on a GPU once and replaying it: one launch in place of hundreds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import torch

_Result = TypeVar("_Result")
_SLACK = 0.25  # a pool that has grown by more than this share of its size is replaced
_ROOM = 1.25  # by one this many times what it has come to


class CaptureError(RuntimeError):
    """The work cannot be captured; nothing of it has run."""


class Graphs(Generic[_Result]):
    """Captured work by key.

    Work to be captured allocates what it likes, but reads and writes only memory that stays where it is while its key
    is in use. It must have run once before, so that all its kernels are compiled. Its result is the same object at
    every replay, with tensors that hold until the next one.

    All graphs share one pool of memory, which outlives them: a new capture, which comes every hundred steps while
    Gaussians come and go, finds its memory there instead of asking the driver for it. The pool begins as one large
    piece, so that tensors of new sizes fit into it.

    Attributes:
        captures, replays: how many there were.
        seconds: what capturing has cost the host.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.captures, self.replays, self.seconds = 0, 0, 0.0
        self._graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, _Result]] = {}
        self._anchor: torch.cuda.CUDAGraph | None = None  # keeps the pool alive while it holds no other graph
        self._size, self._grown = 0, 0  # bytes that the pool began with, and that it has taken since

    def __call__(self, key: Hashable, work: Callable[[], _Result]) -> _Result:
        """Run the work, on the current stream, which must not be the default one.

        Raises:
            CaptureError: it cannot be captured.
        """
        if key not in self._graphs:
            begin = time.perf_counter()
            self._graphs[key] = self._capture(work)
            self.captures += 1
            self.seconds += time.perf_counter() - begin
        graph, result = self._graphs[key]
        graph.replay()
        self.replays += 1
        return result

    def clear(self) -> None:
        """Forget all graphs; none may be running."""
        self._graphs.clear()

    def _capture(self, work: Callable[[], _Result]) -> tuple[torch.cuda.CUDAGraph, _Result]:
        if self._anchor is None or (self._grown > self._size * _SLACK and not self._graphs):
            self._new_pool()
        assert self._anchor is not None
        graph = torch.cuda.CUDAGraph()
        before = torch.cuda.memory_reserved(self.device)
        try:
            result = _record(graph, work, self._anchor.pool())
        except BaseException:
            self._anchor = None  # a pool in which a capture has failed takes no other
            raise
        self._grown += torch.cuda.memory_reserved(self.device) - before
        return graph, result

    def _new_pool(self) -> None:
        size = int((self._size + self._grown) * _ROOM)
        if self._anchor is not None:
            self._anchor = None
            torch.cuda.empty_cache()  # gives the old pool back; rare, since pools grow by a factor
        self._anchor, self._size, self._grown = torch.cuda.CUDAGraph(), size, 0

        def make_room() -> None:
            torch.empty(size, dtype=torch.uint8, device=self.device)
            torch.zeros(1, device=self.device)  # a graph is not to be empty

        _record(self._anchor, make_room, None)


def _record(graph: torch.cuda.CUDAGraph, work: Callable[[], _Result], pool: Any) -> _Result:
    """Capture without `torch.cuda.graph`, which collects garbage and empties torch's cache at every capture.

    Only this thread's actions are restricted: others may decode photographs into pinned memory meanwhile.
    """
    try:
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        result = work()
        graph.capture_end()
    except BaseException as error:
        with contextlib.suppress(RuntimeError, UserWarning):  # that it is empty, where warnings are errors
            graph.capture_end()
        if not isinstance(error, RuntimeError):
            raise
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise CaptureError(first) from error
    return result
