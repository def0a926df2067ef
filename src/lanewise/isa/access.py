"""Instructions of global, buffer, scratch and scalar memory: how they address it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lanewise.isa.errors import MemoryFault, UnsupportedInstruction
from lanewise.isa.memory import GUARD, PRIVATE, SWIZZLED, Space
from lanewise.isa.parse import NULL, Instruction, Operand
from lanewise.isa.scalar import read, read64
from lanewise.isa.state import I64, U64, D, Layout, U, Waves
from lanewise.isa.transfer import ATOMICS, atomic, gather, load, note_read, store, width

Run = Callable[[Waves], None]
Array = Any
CACHE = ("glc", "slc", "dlc", "sc0", "sc1", "nt", "scope", "th")  # policies; only "return the old value" matters here
THS = (None, "TH_ATOMIC_RETURN", "TH_LOAD_NT", "TH_STORE_NT", "TH_LOAD_HT", "TH_STORE_HT", "TH_LOAD_LU")
Where = Callable[[Waves, int, int], tuple[Space, Array, Array | None]]  # positions in a space, and where lanes are on


def _returns(modifiers: dict[str, Any]) -> bool:
    policy = {key: modifiers.pop(key) for key in CACHE if key in modifiers}
    if policy.get("th") not in THS:
        raise UnsupportedInstruction(f"th:{policy['th']}")
    return "glc" in policy or "sc0" in policy or policy.get("th") == "TH_ATOMIC_RETURN"


def active_lanes(w: Waves) -> Array | None:
    """EXEC, or None where all lanes are active."""
    return None if w.full else w.active


def _global_address(v: Operand, s: Operand, offset: int, layout: Layout) -> Where:
    row, shift = layout.row(v), U64(offset & (1 << 64) - 1)
    if s.kind == "off" or s.index == NULL:
        if v.count != 2:
            raise UnsupportedInstruction("address of one register")
        base = None
    elif s.kind == "s" and v.count == 1:
        base = read64(layout, s)
    else:
        raise UnsupportedInstruction("address")

    def where(w: Waves, size: int, align: int) -> tuple[Space, Array, Array | None]:
        address = w.get64(row, row + 1) if base is None else w.u[row] + base(w)[:, None]
        active = active_lanes(w)
        return w.machine.space, w.machine.memory.positions(address + shift, active, size, align), active

    return where


def _buffer_address(v: Operand, resource: Operand, s: Operand, offset: int, offen: bool, layout: Layout) -> Where:
    """Raw buffers: an access past `num_records` reads 0 and writes nothing. And the buffer that a kernel is handed for
    its lanes' own memory before generation 11, in which a lane finds its words by its number."""
    if (v.kind in "va") != offen or resource.kind != "s" or resource.count != 4:
        raise UnsupportedInstruction("buffer address")
    row, number, extra = layout.row(v) if offen else -1, resource.index, read(layout, s)
    zero = np.zeros((1, 1), U)

    def where(w: Waves, size: int, align: int) -> tuple[Space, Array, Array | None]:
        word1 = w.s[number + 1]
        if (word1 & SWIZZLED).all():
            base = w.s[number] | (word1 ^ SWIZZLED).astype(U64) << U64(32)
            before = w.number.astype(U64) * U64(layout.wave * w.machine.scratch_bytes)
            if (base != U64(PRIVATE) + before).any() or extra(w).any():
                raise UnsupportedInstruction("a swizzled buffer that is not this wave's own memory")
            return _own(w, (w.u[row] if offen else zero).astype(I64) + offset, size, min(size, 4))
        if (word1 & U(0xFFFF0000)).any():
            raise UnsupportedInstruction("a buffer with a stride or a swizzle, or past 48 bits")
        soffset = extra(w)
        base = (w.s[number] | word1.astype(U64) << U64(32)) + soffset + U64(offset)
        last = w.s[number + 2].astype(I64) - soffset - (size + offset)  # the last offset that is inside
        shape = w.active.shape
        inside = w.u[row] if offen else zero
        valid, address = inside <= last[:, None], inside + base[:, None]
        inside_all = bool(valid.all())
        active = active_lanes(w) if inside_all else valid & w.active
        address = address if address.shape == shape else np.broadcast_to(address, shape)
        return w.machine.space, w.machine.memory.positions(address, active, size, align), active

    return where


def _own(w: Waves, at: Array, size: int, align: int) -> tuple[Space, Array, Array | None]:
    """Bytes `at` of every lane's own memory, [waves, lanes] or one for all."""
    own, lanes, active = w.machine.scratch_bytes, w.layout.wave, active_lanes(w)
    at = np.broadcast_to(at, w.active.shape)
    if ((at < 0) | (at + size > own) | (at & (align - 1) != 0))[w.active].any():
        raise MemoryFault(f"scratch access outside a lane's {own} bytes")
    at = at + (w.number[:, None] * lanes + np.arange(lanes)) * own + GUARD
    return w.machine.scratch, (at if active is None else np.where(active, at, 0)), active


def _decode_access(kind: str, where: Where, rows: tuple[int, int, int | None]) -> Run:
    """kind: "load_b32", "store_dword", "atomic_add_f32"; rows: destination, data, row of an atomic's old value."""
    what, _, ending = kind.partition("_")
    target, data, old = rows
    if what == "atomic":
        if ending not in ATOMICS:
            raise UnsupportedInstruction("opcode")
        size = 8 if ATOMICS[ending][1] in (U64, D) else 4

        def update(w: Waves) -> None:
            space, at, active = where(w, size, size)
            atomic(w, space, at, w.active if active is None else active, data, old, ending)

        return update
    form = width(ending)
    if what == "load":

        def get(w: Waves) -> None:
            space, at, active = where(w, form.total, 1)  # global memory takes any alignment
            load(w, space, at, active, target, form)

        return get
    if what != "store":
        raise UnsupportedInstruction("opcode")

    def put(w: Waves) -> None:
        space, at, active = where(w, form.total, 1)
        store(w, space, at, active, data, form)

    return put


def decode_global(ins: Instruction, layout: Layout) -> Run:
    """global_* and flat-free forms of them."""
    kind, o, modifiers = ins.opcode.removeprefix("global_"), ins.operands, ins.modifiers
    returns = _returns(modifiers)
    offset = modifiers.pop("offset", 0)
    what = kind.split("_")[0]
    if what == "load":
        shape = (0, 1, 2)
    elif what == "store" or not returns:
        shape = (1, 0, 2)
    else:
        shape = (2, 1, 3)
    if len(o) != shape[2] + 1:
        raise UnsupportedInstruction("operand count")
    where = _global_address(o[shape[1]], o[shape[2]], offset, layout)
    data = layout.row(o[shape[0]])
    old = layout.row(o[0]) if what == "atomic" and returns else None
    check_count(kind, o[shape[0]])
    return _decode_access(kind, where, (data, data, old))


def decode_buffer(ins: Instruction, layout: Layout) -> Run:
    """buffer_* with a raw resource."""
    kind, o, modifiers = ins.opcode.removeprefix("buffer_"), ins.operands, ins.modifiers
    returns = _returns(modifiers)
    offset, offen = modifiers.pop("offset", 0), bool(modifiers.pop("offen", False))
    if len(o) != 4:
        raise UnsupportedInstruction("operand count")
    where = _buffer_address(o[1], o[2], o[3], offset, offen, layout)
    row = layout.row(o[0])
    check_count(kind, o[0])
    return _decode_access(kind, where, (row, row, row if kind.startswith("atomic") and returns else None))


def check_count(kind: str, o: Operand) -> None:
    """The data operand of a load or a store has as many registers as the opcode says."""
    what, _, ending = kind.partition("_")
    if what in ("load", "store") and (o.count != width(ending).words or o.kind not in "va"):
        raise UnsupportedInstruction("data operand")


def decode_scratch(ins: Instruction, layout: Layout) -> Run:
    """scratch_load/store: memory of a lane's own, for spills."""
    kind, o, modifiers = ins.opcode.removeprefix("scratch_"), ins.operands, ins.modifiers
    _returns(modifiers)
    offset = modifiers.pop("offset", 0)
    is_load = kind.startswith("load")
    v, data, s = (o[1], o[0], o[2]) if is_load else (o[0], o[1], o[2])
    base = None if s.kind == "off" else read(layout, s)
    row = layout.row(v) if v.kind == "v" else None
    form = width(kind.partition("_")[2])
    target = layout.row(data)
    check_count(kind, data)

    def run(w: Waves) -> None:
        at = np.full((w.count, 1), offset, I64)
        if row is not None:
            at = at + w.u[row]
        if base is not None:
            at = at + base(w)[:, None]
        space, at, active = _own(w, at, form.total, form.align)
        (load if is_load else store)(w, space, at, active, target, form)

    return run


def decode_scalar_load(ins: Instruction, layout: Layout) -> Run:
    """s_load_*: one address a wave; since generation 12 of bytes and halves too."""
    o, modifiers = ins.operands, ins.modifiers
    form = width(ins.opcode.removeprefix("s_load_"))
    offset = U64(modifiers.pop("offset", 0) & (1 << 64) - 1)
    _returns(modifiers)
    if form.part or (form.bytes != 4 and layout.generation < 12) or len(o) != 3:
        raise UnsupportedInstruction("opcode")
    base = read64(layout, o[1])
    more = None if o[2].kind == "c" else read(layout, o[2])
    if o[2].kind == "c":
        offset = U64(int(offset) + o[2].index & (1 << 64) - 1)
    first, n, words = o[0].index, form.words, np.arange(form.words)

    def run(w: Waves) -> None:
        address = base(w) + offset if more is None else base(w) + offset + more(w)
        memory, space = w.machine.memory, w.machine.space
        if form.bytes < 4:
            where = memory.positions(np.broadcast_to(address, (w.count,)), None, form.total, form.bytes)
            values = gather(space, where, form)[0][:, None]
        elif w.count == 1:
            at = memory.position(int(address[0]), form.total)
            where, values = np.array([at]), space.views[U][at >> 2 : (at >> 2) + n][None]
        else:
            address = address if len(address) == w.count else np.broadcast_to(address, (w.count,))
            where = memory.positions(address, None, form.total, 4)
            values = space.views[U][(where >> 2)[:, None] + words]
        note_read(space, w, where, None, form.total)
        w.put_scalars(first, values)

    return run
