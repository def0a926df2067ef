"""Loads, stores and atomics between registers and a space, whatever kind of memory it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from lanewise.isa import races
from lanewise.isa.errors import UnsupportedInstruction
from lanewise.isa.memory import Space
from lanewise.isa.state import U64, D, F, I, U, Waves

Array = Any


@dataclass(frozen=True)
class Width:
    """bytes: of one number; words: registers; signed; part: "" or which half of the register ("lo", "hi")."""

    bytes: int
    words: int = 1
    signed: bool = False
    part: str = ""

    @property
    def total(self) -> int:
        """Bytes of all."""
        return self.bytes * (self.words if self.bytes == 4 else 1)

    @property
    def align(self) -> int:
        """Bytes that LDS wants an address to be a multiple of."""
        return self.bytes


def width(name: str) -> Width:
    """Of the ending of a load's or a store's name."""
    if m := re.fullmatch(r"dword(?:x(\d+))?|b(32|64|96|128|256|512)", name):
        return Width(4, int(m[1] or 1) if not m[2] else int(m[2]) // 32)
    part = "hi" if "d16_hi" in name else "lo" if "d16" in name else ""
    bare = re.sub(r"_?d16(_hi)?_?", "", name)
    if bare in ("ubyte", "u8", "byte", "b8"):
        return Width(1, part=part)
    if bare in ("sbyte", "i8"):
        return Width(1, signed=True, part=part)
    if bare in ("ushort", "u16", "short", "b16"):
        return Width(2, part=part)
    if bare in ("sshort", "i16"):
        return Width(2, signed=True, part=part)
    raise UnsupportedInstruction("opcode")


def gather(space: Space, where: Array, form: Width) -> list[Array]:
    """uint32 of every register."""
    if form.bytes > 1 and (where & (form.bytes - 1)).any():
        return [_unaligned(space, where + 4 * k, form) for k in range(form.words)]
    if form.bytes == 4:
        cells, index = space.views[U], where >> 2
        return [cells[index + k if k else index] for k in range(form.words)]
    x = space.views[np.uint8][where] if form.bytes == 1 else space.views[np.uint16][where >> 1]
    if form.signed:
        return [x.view(np.int8 if form.bytes == 1 else np.int16).astype(I).view(U)]
    return [x.astype(U)]


def _unaligned(space: Space, where: Array, form: Width) -> Array:
    x = np.bitwise_or.reduce([space.bytes[where + k].astype(U) << U(8 * k) for k in range(form.bytes)])
    return x if form.bytes == 4 or not form.signed else x.astype(np.uint16).view(np.int16).astype(I).view(U)


def note_read(space: Space, w: Waves, where: Array, active: Array | None, size: int) -> None:
    """Tell the race detector of a read of `size` bytes."""
    if space.shadow is not None:
        space.shadow.note(races.READ, where, w.number, active, size=size)


def load(w: Waves, space: Space, where: Array, active: Array | None, row: int, form: Width) -> None:
    """Registers from `row` on = memory. Lanes past the end of a buffer point to the guard, which holds 0."""
    note_read(space, w, where, active, form.total)
    for k, value in enumerate(gather(space, where, form)):
        if form.part == "lo":
            value = w.u[row] & U(0xFFFF0000) | value & U(0xFFFF)
        elif form.part == "hi":
            value = w.u[row] & U(0xFFFF) | value << U(16)
        w.put(row + k, value)


def store(w: Waves, space: Space, where: Array, active: Array | None, row: int, form: Width) -> None:
    """Memory = registers from `row` on."""
    pick = (lambda x: x.flatten()) if active is None else (lambda x: x[active])
    at = pick(where)
    for k in range(form.words):
        value = pick(w.u[row + k])
        value = value >> U(16) if form.part == "hi" else value
        if space.shadow is not None:
            space.shadow.note(races.WRITE, where + 4 * k, w.number, active, value, form.bytes)
        if form.bytes > 1 and (at & (form.bytes - 1)).any():  # not aligned: byte by byte
            for j in range(form.bytes):
                space.bytes[at + 4 * k + j] = value >> U(8 * j) & U(255)
            continue
        if form.bytes == 4:
            cells, index = space.views[U], (at >> 2) + k
        else:
            kind = np.uint8 if form.bytes == 1 else np.uint16
            cells, index, value = space.views[kind], at >> (form.bytes - 1), value.astype(kind)
        cells[index] = value


def _greater(old: Any, new: Any) -> Any:
    return new if new > old else old  # a NaN that is there stays


def _smaller(old: Any, new: Any) -> Any:
    return new if new < old else old


ATOMICS: dict[str, tuple[Any, Any]] = {
    "add": (np.add, U), "add_u32": (np.add, U), "add_x2": (np.add, U64), "add_u64": (np.add, U64),
    "sub": (np.subtract, U), "sub_u32": (np.subtract, U), "add_f32": (np.add, F), "add_f64": (np.add, D),
    "and": (np.bitwise_and, U), "and_b32": (np.bitwise_and, U), "or": (np.bitwise_or, U), "or_b32": (np.bitwise_or, U),
    "xor": (np.bitwise_xor, U), "xor_b32": (np.bitwise_xor, U), "umax": (np.maximum, U), "max_u32": (np.maximum, U),
    "smax": (np.maximum, I), "max_i32": (np.maximum, I), "umin": (np.minimum, U), "min_u32": (np.minimum, U),
    "smin": (np.minimum, I), "min_i32": (np.minimum, I), "swap": ("swap", U), "swap_b32": ("swap", U),
    "swap_x2": ("swap", U64), "swap_b64": ("swap", U64), "cmpswap": ("compare", U), "cmpswap_b32": ("compare", U),
    "cmpswap_x2": ("compare", U64), "cmpswap_b64": ("compare", U64), "umax_x2": (np.maximum, U64),
    "max_u64": (np.maximum, U64), "or_x2": (np.bitwise_or, U64), "or_b64": (np.bitwise_or, U64),
    "max_f32": (_greater, F), "min_f32": (_smaller, F), "fmax": (_greater, F), "fmin": (_smaller, F),
    "max_num_f32": (np.fmax, F), "min_num_f32": (np.fmin, F), "max_f64": (_greater, D), "min_f64": (_smaller, D),
}  # fmt: skip


def atomic(w: Waves, space: Space, where: Array, active: Array, data: int, result: int | None, name: str) -> None:
    """Read, change and write, lane after lane; `result` is the row that gets the old value."""
    fn, kind = ATOMICS[name]
    swap, compare = fn == "swap", fn == "compare"
    wide = kind in (U64, D)
    if space.shadow is not None:
        space.shadow.note(races.SWAP if compare else races.ATOMIC, where, w.number, active, size=8 if wide else 4)
    shape, cells = where.shape, space.views[kind]
    index = where[active] >> (3 if wide else 2)

    def operand(row: int) -> Array:
        x = w.get64(row, row + 1) if wide else w.u[row]
        return np.ascontiguousarray(np.broadcast_to(x, shape)[active]).view(kind)

    value = operand(data)
    if result is None and isinstance(fn, np.ufunc):
        fn.at(cells, index, value)
        return
    expected = operand(data + (2 if wide else 1)) if compare else None
    old = np.empty(len(index), kind)
    for k, i in enumerate(index):
        old[k] = cells[i]
        if swap or (expected is not None and cells[i] == expected[k]):
            cells[i] = value[k]
        elif expected is None:
            cells[i] = fn(cells[i], value[k])
    if result is not None:
        full = np.zeros(shape, U64 if wide else U)
        full[active] = old.view(U64 if wide else U)
        w.put64(result, full) if wide else w.put(result, full)
