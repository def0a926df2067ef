"""The address space: buffers at 64-bit addresses of the caller's choice, with nothing between them.

An instruction turns its lanes' addresses into byte positions of a `Space`; what follows (`transfer.py`) is the same
for all kinds of memory.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Any

import numpy as np

from lanewise.isa.errors import MemoryFault
from lanewise.isa.races import Shadow
from lanewise.isa.state import I64, U64, D, F, I, U

Array = Any
GUARD = 64  # first bytes of a space, where lanes that are not active point
# What a kernel is handed for its lanes' own memory before generation 11: the buffer's address, and the bit of its
# second word that says that lanes find their words in it by their number.
PRIVATE, SWIZZLED = 0x4200_0000_0000, U(1 << 31)


@dataclass
class Buffer:
    """An array in the kernel's memory.

    Attributes:
        array: contiguous; the kernel writes into it.
        address: of its first byte; None lets the memory choose.
        start: the argument points to element `start` of the array (it may lie outside).
    """

    array: np.ndarray
    address: int | None = None
    start: int = 0


class Space:
    """Bytes, seen as numbers of several widths, and the marks of the race detector."""

    def __init__(self, size: int, shadow: Shadow | None = None) -> None:
        self.bytes = np.zeros(-(-(size + 2 * GUARD) // 8) * 8, np.uint8)
        self.shadow = shadow
        self.views = {kind: self.bytes.view(kind) for kind in (np.uint8, np.uint16, U, U64, I, I64, F, D)}


class Memory:
    """Sparse 64-bit address space of the buffers given to `place`; `build` makes its space.

    Raises:
        MemoryFault: an access that is not inside one buffer, or not aligned.
    """

    def __init__(self) -> None:
        self.placed: list[tuple[int, np.ndarray]] = []  # address, uint8 view
        self._next = 0x7F00_0000_0000 >> 8  # above what 32 bits reach: dropped high halves show

    def place(self, data: np.ndarray, address: int | None = None) -> int:
        """Make bytes (uint8, contiguous) accessible; returns their address."""
        if address is None:
            address = self._next
            self._next = (address + data.nbytes + 0x1FFFF) & ~0xFFFF
        for other, there in self.placed:
            if address < other + there.nbytes and other < address + data.nbytes:
                raise MemoryFault(f"buffers at {address:#x} and {other:#x} overlap")
        self.placed.append((address, data))
        return address

    def build(self, group: np.ndarray) -> Space:
        """The space of all buffers, filled with what they hold. group: workgroup of every wave."""
        self.placed.sort(key=lambda item: item[0])
        self._bases = [address for address, _ in self.placed]
        self._sizes = [data.nbytes for _, data in self.placed]
        self._starts, size = [], GUARD
        for _, data in self.placed:
            self._starts.append(size)
            size += -(-data.nbytes // 64) * 64
        shadow = Shadow(group, "global memory", GUARD) if len(group) > 1 else None
        self.space = Space(size, shadow)
        for start, (_, data) in zip(self._starts, self.placed, strict=True):
            self.space.bytes[start : start + data.nbytes] = data
        return self.space

    def write_back(self) -> None:
        """What the kernel wrote, into the caller's arrays."""
        for start, (_, data) in zip(self._starts, self.placed, strict=True):
            if data.flags.writeable:
                data[...] = self.space.bytes[start : start + data.nbytes]

    def positions(self, addresses: Array, active: Array | None, size: int, align: int) -> Array:
        """Byte positions int64 in the space of uint64 addresses; 0 where not active (None: all are)."""
        if active is not None:
            if not active.any():
                return np.zeros(active.shape, I64)
            wanted = (
                addresses[active]
                if addresses.shape == active.shape
                else np.broadcast_to(addresses, active.shape)[active]
            )
        else:
            wanted = addresses
        low, high = int(wanted.min()), int(wanted.max())
        k = bisect.bisect_right(self._bases, low) - 1
        if align > 1 and (wanted & U64(align - 1)).any():
            raise MemoryFault(f"an access of {size} bytes at {low:#x} .. {high:#x} that is not aligned to {align}")
        if k >= 0 and high + size <= self._bases[k] + self._sizes[k]:
            shift = U64((self._starts[k] - self._bases[k]) & (1 << 64) - 1)
            where = (addresses + shift).view(I64)
            return where if active is None else np.where(active, where, 0)
        result = np.zeros(addresses.shape if active is None else active.shape, I64)
        found = np.empty(wanted.shape, I64)
        flat, out = wanted.ravel(), found.ravel()
        slots = np.searchsorted(np.array(self._bases, U64), flat, side="right") - 1
        for slot in np.unique(slots):
            mine = slots == slot
            offsets = flat[mine] - U64(self._bases[max(slot, 0)])
            if slot < 0 or (offsets > U64(max(self._sizes[slot] - size, 0))).any() or self._sizes[slot] < size:
                raise MemoryFault(self._message(flat[mine], slot, size))
            out[mine] = offsets.astype(I64) + self._starts[slot]
        if active is None:
            return out.reshape(wanted.shape)
        result[active] = out
        return result

    def position(self, address: int, size: int) -> int:
        """The same of one address, aligned to 4."""
        k = bisect.bisect_right(self._bases, address) - 1
        if k < 0 or address + size > self._bases[k] + self._sizes[k] or address & 3:
            return int(self.positions(np.array([address], U64), None, size, 4)[0])
        return self._starts[k] + address - self._bases[k]

    def _message(self, addresses: Array, slot: int, size: int) -> str:
        if slot < 0:
            return f"global access of {size} bytes at {int(addresses.min()):#x}, before every buffer"
        end = self._bases[slot] + self._sizes[slot]
        bad = addresses[addresses.astype(object) + size > end] if len(addresses) < 64 else addresses
        worst = int(np.max(bad))
        return (
            f"global access of {size} bytes at {worst:#x}, outside every buffer: the nearest before is "
            f"{self._bases[slot]:#x} .. {end:#x}"
        )
