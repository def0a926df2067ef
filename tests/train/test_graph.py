"""The bookkeeping of captured work, with graphs that only pretend; real ones are in tests/gpu."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from lanewise.train import graph
from lanewise.train.graph import CaptureError, Graphs

MIB = 1 << 20


class Device:
    """What the caching allocator would say, and every graph that there was."""

    def __init__(self) -> None:
        self.reserved, self.emptied, self.graphs = 0, 0, []


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()

    class Pretended:
        def __init__(self) -> None:
            self.replays, self.given, self.alive = 0, None, False
            made.graphs.append(self)

        def capture_begin(self, pool: object, capture_error_mode: str) -> None:
            assert capture_error_mode == "thread_local"
            self.given = pool

        def capture_end(self) -> None:
            self.alive = True

        def replay(self) -> None:
            assert self.alive
            self.replays += 1

        def pool(self) -> object:
            return ("pool of", id(self))

    def empty(size: int, **_: object) -> None:
        made.reserved += size

    def empty_cache() -> None:
        made.emptied += 1

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Pretended)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: made.reserved)
    monkeypatch.setattr(torch.cuda, "empty_cache", empty_cache)
    monkeypatch.setattr(graph.torch, "empty", empty)
    return made


def needs(device: Device, size: int, room: list[int]) -> Callable[[], int]:
    """Work that takes `size` bytes beyond the `room` that its pool has."""

    def work() -> int:
        device.reserved += max(0, size - room[0])
        room[0] = max(room[0], size)
        return size

    return work


def test_one_capture_a_key(device: Device):
    graphs = Graphs[int](torch.device("cpu"))
    calls = []
    for key in ("a", "b", "a", "a"):
        assert graphs(key, lambda key=key: calls.append(key) or len(calls)) == {"a": 1, "b": 2}[key]
    assert calls == ["a", "b"]
    assert (graphs.captures, graphs.replays) == (2, 4)
    anchor, *captured = device.graphs
    assert all(each.given == anchor.pool() for each in captured)
    assert [each.replays for each in device.graphs] == [0, 3, 1]
    graphs.clear()
    graphs("a", lambda: 5)
    assert graphs.captures == 3


def test_pools_grow_by_a_factor(device: Device):
    """A hundred captures, each of a little more, ask for memory a few times."""
    graphs = Graphs[int](torch.device("cpu"))
    room, anchors, size = [0], 0, 100.0 * MIB
    for _ in range(100):
        graphs.clear()
        before = len(device.graphs)
        made = int(size)

        def work(made: int = made, before: int = before) -> int:
            nonlocal anchors
            if len(device.graphs) - before == 2:  # a new anchor came first: a new pool of the size that it allocated
                anchors += 1
                room[0] = graphs._size
            return needs(device, made, room)()

        assert graphs(0, work) == made
        size *= 1.02
    assert 3 <= anchors <= 12
    assert device.emptied == anchors - 1
    assert graphs._size + graphs._grown < 3 * size


def test_what_cannot_be_captured(device: Device):
    graphs = Graphs[int](torch.device("cpu"))

    def refuse() -> int:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore lines")

    with pytest.raises(CaptureError, match=r"^CUDA error: operation not permitted when stream is capturing$"):
        graphs("a", refuse)
    assert graphs.replays == 0
    with pytest.raises(ValueError, match="a mistake of ours"):
        graphs("a", lambda: (_ for _ in ()).throw(ValueError("a mistake of ours")))
