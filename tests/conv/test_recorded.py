"""Calls that are recorded and done again, with kernels that a CPU can run and what a GPU's tensor says of itself."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lanewise.conv import recorded
from lanewise.splat import _launch


class Doubled:
    """In the place of a compiled kernel: out = factor * x + y."""

    def __init__(self, count):
        self.kind = ctypes.c_float * count

    def start(self, grid, stream, args):
        assert (grid, stream) == ((1, 1, 1), 7)
        *addresses, factor = args
        x, y, out = (np.ctypeslib.as_array(self.kind.from_address(address)) for address in addresses)
        out[:] = factor * x + y


def launched(x, y, out, factor):
    kernel = Doubled(x.numel())
    kernel.start((1, 1, 1), 7, [x.data_ptr(), y.data_ptr(), out.data_ptr(), factor])
    _launch._note(kernel, (1, 1, 1), (x, y, out, factor))


def twice(x, y, factor):
    """factor * (factor * x + y) + y, by two launches."""
    between, out = x.new_empty(x.shape[::-1]).t(), torch.empty(x.numel())
    launched(x, y, between, factor)
    launched(between, y, out.view(x.shape), factor)
    return out.view(x.shape)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(recorded, "_known", {})
    monkeypatch.setattr(recorded, "current_stream", lambda device: 7)


def made(function, *args):
    """The result, and whether a recording came of it."""
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    return recorded._record(function, args, tensors)


def test_a_recording_does_the_same_with_other_tensors():
    x, y = torch.randn(2, 5, 3)
    got, recording = made(twice, x, y, 3.0)
    assert torch.equal(got, twice(x, y, 3.0))
    for _ in range(2):
        x, y = torch.randn(2, 5, 3)
        again = recording.replay([x, y])
        assert torch.equal(again, twice(x, y, 3.0))
    assert all(not isinstance(a, torch.Tensor) for step, _ in recording.steps for a in step.args)


def copied(x, y):
    """As `twice`, of parts, copies and zeros."""
    out = torch.empty(6, 3)
    twice(x[1:], y[1:], 1.0)
    out[1:].copy_(x)
    out[:1].zero_()
    return out[:5].t()


def test_copies_zeros_and_parts_are_done_again():
    (x, y), (a, b) = torch.randn(2, 5, 3), torch.randn(2, 5, 3)
    got, recording = made(copied, x, y)
    again = recording.replay([a, b])
    assert torch.equal(got, copied(x, y))
    assert torch.equal(again, copied(a, b))
    assert again.stride() == got.stride()


@pytest.mark.parametrize(
    "more", [lambda x, y: x.add_(1.0), lambda x, y: x.clone(), lambda x, y: x.half(), lambda x, y: torch.zeros(3)]
)
def test_what_is_more_than_allocations_launches_and_copies_is_not_recorded(more):
    assert made(more, *torch.randn(2, 5, 3))[1] is None


def test_on_a_cpu_nothing_is_recorded():
    x, y = torch.randn(2, 5, 3)
    recorded.recorded(twice, x, y, 2.0)
    assert not recorded._known


def on_gpu(tensor):
    """The tensor, saying that it is on a GPU."""

    class OnGpu(torch.Tensor):
        is_cuda = True
        device: Any = SimpleNamespace(index=0, type="cuda")

    return tensor.as_subclass(OnGpu)


def test_a_call_is_known_by_shapes_strides_alignment_and_numbers(monkeypatch):
    monkeypatch.setattr(recorded, "_record", lambda function, args, tensors: (function(*args), None))
    memory = torch.randn(100)
    x, y = (on_gpu(part) for part in torch.randn(2, 4, 4))
    odd = on_gpu(memory[1:17].view(4, 4))
    assert odd.data_ptr() % 16
    calls = [(x, y, 1.0), (y, x, 1.0), (x, y, 2.0), (x.t(), y, 1.0), (odd, y, 1.0), (x[:2], y[:2], 1.0), (x, y, 1.0)]
    counts = []
    for call in calls:
        recorded.recorded(first, *call)
        counts.append(len(recorded._known))
    assert counts == [1, 1, 2, 3, 4, 5, 5]


def test_one_tensor_in_two_places_says_nothing_about_two(monkeypatch):
    x = torch.randn(4, 4)
    monkeypatch.setattr(recorded, "_record", lambda function, args, tensors: pytest.fail("recorded"))
    for pair in ((x, x), (x, x.t()), (x[:3], x[2:])):
        assert recorded.recorded(first, *map(on_gpu, pair)) is not None
    assert not recorded._known


def first(*args):
    return args[0]


def test_the_oldest_recording_makes_room(monkeypatch):
    monkeypatch.setattr(recorded, "MOST", 2)
    monkeypatch.setattr(recorded, "_record", lambda function, args, tensors: (function(*args), None))
    for n in range(1, 5):
        recorded.recorded(first, *(on_gpu(part) for part in torch.randn(2, n, 4)))
    assert len(recorded._known) == 2
