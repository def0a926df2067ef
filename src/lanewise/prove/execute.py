"""Running the product on an emulated AMD GPU: what launches go to in the place of a driver."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from lanewise import isa
from lanewise.prove.compile import Compiled, as_launched, compile_for
from lanewise.prove.launches import Configuration, configuration, launches_go_to
from lanewise.target import Target

FIRST_ADDRESS = 0x7_8000_0000  # of an array: addresses need more than 32 bits, as on a GPU
LARGE = 2**26  # bytes of memory that are not copied as a whole
POISON = {
    torch.bool: True,
    torch.uint8: 0xA5,
    torch.int8: 0x5A,
    torch.int16: 0x5A5A,
    torch.int32: 0x5EADBEEF,
    torch.int64: 0x5EADBEEF_5EADBEEF,
}


@dataclass
class Executed:
    """What has run of one configuration.

    Attributes:
        compiled: its machine code.
        reached: which of its instructions were.
        orders: of the waves, those that it ran in.
        any_order: whether in no launch a wave can tell the order.
        seconds: of the processor, for decoding and running it.
    """

    compiled: Compiled
    reached: np.ndarray
    orders: list[str] = field(default_factory=list)
    any_order: bool = True
    seconds: float = 0.0


@dataclass
class Emulation:
    """Takes launches: compiles them for a target and runs the machine code.

    Attributes:
        target: an AMD target.
        attributes: with what Triton's JIT knows about arguments, or without.
        order: of the waves.
        seed: of the random order.
        executed: what has run, by configuration.
        settled: what launches left whose waves cannot tell the order, by their inputs: they run once, in lockstep, and
            other orders take it from here.
        current: what is being run, or was when it failed.
    """

    target: Target
    attributes: bool = True
    order: str = "lockstep"
    seed: int = 0
    executed: dict[Configuration, Executed] = field(default_factory=dict)
    settled: dict[bytes, list[list[np.ndarray]]] = field(default_factory=dict)
    current: Configuration | None = None

    def __call__(
        self, kernel: Any, grid: tuple[int, int, int], arguments: Mapping[str, Any], options: Mapping[str, Any]
    ) -> None:
        """Run one launch; the tensors change in place."""
        config = configuration(kernel, arguments, options)
        self.current = config = as_launched(config if self.attributes else config.plain(), self.target)
        compiled = compile_for(config, self.target)
        begin = time.process_time()
        program = load(compiled)
        reached = np.zeros(len(program.instructions), bool)
        kinds = dict(config.signature)
        values = [value for name, value in arguments.items() if kinds[name] != "constexpr"]
        places = {
            i: _Placed(value, FIRST_ADDRESS + i * 2**34) for i, value in enumerate(values) if isinstance(value, Tensor)
        }
        given = [places[i].buffer if i in places else value for i, value in enumerate(values)]
        matters = program.order_matters(grid, compiled.warps)
        order = self.order if matters else "lockstep"
        key = b"" if matters else _digest(config, grid, values, places.values())
        if key in self.settled:
            for placed, left in zip(places.values(), self.settled[key], strict=True):
                placed.copies = left
        else:
            memory = isa.Memory()
            for placed in places.values():
                for array, address in placed.others:
                    memory.place(array, address)
            run = program.run(
                grid, given, memory=memory, waves=compiled.warps, order=order, seed=self.seed, shared=compiled.lds
            )  # fmt: skip
            reached |= np.asarray(run.coverage, bool)
            if not matters:
                self.settled[key] = [placed.copies for placed in places.values()]
        for placed in places.values():
            placed.write_back()
        done = self.executed.setdefault(config, Executed(compiled, np.zeros_like(reached)))
        done.reached |= reached
        done.orders += [order] * (order not in done.orders)
        done.any_order &= not matters
        done.seconds += time.process_time() - begin
        self.current = None


def _digest(
    config: Configuration, grid: tuple[int, int, int], values: Sequence[Any], places: Iterable[_Placed]
) -> bytes:
    """Of all that a launch depends on."""
    digest = hashlib.blake2b(repr((config, grid, [v for v in values if not isinstance(v, Tensor)])).encode())
    for placed in places:
        digest.update(repr((placed.buffer.address, placed.buffer.start, [len(m) for m in placed.before])).encode())
        for memory in placed.before:
            digest.update(memory)
    return digest.digest()


_programs: dict[tuple[str, str], isa.Program] = {}


def load(compiled: Compiled) -> isa.Program:
    """The decoded program; kept, because the same code runs in many cases and orders."""
    key = (compiled.function, compiled.assembly)
    if key not in _programs:
        _programs[key] = isa.load(compiled.assembly, compiled.function)
    return _programs[key]


class _Placed:
    """All the memory that a tensor is a view of, as the emulator's own copy; of a large one only what the tensor's
    images [N, ...] take, with nothing between them."""

    def __init__(self, tensor: Tensor, address: int) -> None:
        memory = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy()
        offset = int(tensor.storage_offset()) * tensor.element_size()
        starts, size = [0], len(memory)
        if size > LARGE:
            starts = [offset + n * tensor.stride(0) * tensor.element_size() for n in range(len(tensor))]
            size = (1 + sum((e - 1) * s for e, s in zip(tensor[0].shape, tensor[0].stride(), strict=True))) * (
                tensor.element_size()
            )
        self.memory = [memory[start : start + size] for start in starts]
        self.before, self.copies = [m.copy() for m in self.memory], [m.copy() for m in self.memory]
        self.buffer = isa.Buffer(self.copies[0], address=address + starts[0], start=offset - starts[0])
        self.others = [(copy, address + start) for copy, start in zip(self.copies, starts, strict=True)][1:]

    def write_back(self) -> None:
        """Into the tensor, what has changed. (Two tensors may be views of one memory.)"""
        for memory, before, copy in zip(self.memory, self.before, self.copies, strict=True):
            changed = copy != before
            memory[changed] = copy[changed]


@contextlib.contextmanager
def emulated(emulation: Emulation) -> Iterator[None]:
    """In the block the product's Triton kernels run on the emulation, on CPU tensors, and unwritten memory is NaN."""
    with launches_go_to(emulation), poisoned():
        yield


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """What torch allocates without a value holds NaN, or whole numbers that point nowhere."""
    with contextlib.ExitStack() as stack:
        for owner, name in ((torch, "empty"), (torch, "empty_like"), (Tensor, "new_empty")):
            stack.enter_context(mock.patch.object(owner, name, _filled(getattr(owner, name))))
        yield


def _filled(allocate: Any) -> Any:
    def allocate_and_fill(*args: Any, **kwargs: Any) -> Tensor:
        out = allocate(*args, **kwargs)
        if out.device.type == "meta" or isinstance(out, torch._subclasses.FakeTensor):
            return out
        return out.fill_(torch.nan) if out.is_floating_point() else out.fill_(POISON[out.dtype])

    return allocate_and_fill
