"""Instructions of LDS, the memory that a workgroup shares."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from lanewise.isa.access import active_lanes, check_count
from lanewise.isa.errors import MemoryFault, UnsupportedInstruction
from lanewise.isa.memory import GUARD
from lanewise.isa.parse import Instruction, Operand
from lanewise.isa.state import I64, U64, D, Layout, Waves
from lanewise.isa.transfer import ATOMICS, Width, atomic, gather, load, note_read, store, width

Run = Callable[[Waves], None]
Array = Any


def decode_lds(ins: Instruction, layout: Layout) -> Run:
    """ds_read/write/load/store, their two-address forms, and ds_add/max/min/... (with and without the old value)."""
    kind, o, modifiers = ins.opcode.removeprefix("ds_"), ins.operands, ins.modifiers
    kind = re.sub(r"^read", "load", re.sub(r"^write", "store", kind))
    if m := re.fullmatch(r"(load|store)(2|_2addr)(st64|_stride64)?_(b32|b64)", kind):
        return _two_addresses(m[1], width(m[4]), 64 if m[3] else 1, o, modifiers, layout)
    offset = modifiers.pop("offset", 0)
    if kind == "load_b64_tr_b16":
        return _transposed(o, offset, layout)
    if m := re.fullmatch(r"(load|store)_(\w+)", kind):
        form, is_load = width(m[2]), m[1] == "load"
        if len(o) != 2:
            raise UnsupportedInstruction("operand count")
        address, data = layout.row(o[1 if is_load else 0]), layout.row(o[0 if is_load else 1])
        check_count(kind, o[0 if is_load else 1])

        def run(w: Waves) -> None:
            at, active = _lds_positions(w, address, offset, form)
            if is_load:
                load(w, w.machine.lds, at, active, data, form)
            else:
                store(w, w.machine.lds, at, active, data, form)

        return run
    returns = "_rtn_" in kind
    name = kind.replace("_rtn", "")
    if name not in ATOMICS or len(o) != 2 + returns or name.startswith("cmp"):
        raise UnsupportedInstruction("opcode")
    address, data = layout.row(o[returns]), layout.row(o[1 + returns])
    old = layout.row(o[0]) if returns else None
    form = Width(8 if ATOMICS[name][1] in (U64, D) else 4)

    def update(w: Waves) -> None:
        at, active = _lds_positions(w, address, offset, form)
        atomic(w, w.machine.lds, at, w.active if active is None else active, data, old, name)

    return update


def _two_addresses(
    what: str, form: Width, stride: int, o: list[Operand], modifiers: dict[str, Any], layout: Layout
) -> Run:
    unit = form.total * stride
    offsets = [modifiers.pop("offset0", 0) * unit, modifiers.pop("offset1", 0) * unit]
    n = form.words
    if what == "load":
        if len(o) != 2 or o[0].count != 2 * n:
            raise UnsupportedInstruction("operand count")
        address, target = layout.row(o[1]), layout.row(o[0])

        def get(w: Waves) -> None:
            found = []
            for offset in offsets:
                at, active = _lds_positions(w, address, offset, form)
                note_read(w.machine.lds, w, at, active, n)
                found += gather(w.machine.lds, at, form)
            for k, value in enumerate(found):
                w.put(target + k, value)

        return get
    if len(o) != 3:
        raise UnsupportedInstruction("operand count")
    address, rows = layout.row(o[0]), [layout.row(o[1]), layout.row(o[2])]

    def put(w: Waves) -> None:
        for offset, row in zip(offsets, rows, strict=True):
            at, active = _lds_positions(w, address, offset, form)
            store(w, w.machine.lds, at, active, row, form)

    return put


def _transposed(o: list[Operand], offset: int, layout: Layout) -> Run:
    """ds_read_b64_tr_b16: sixteen lanes read four rows of sixteen 16-bit numbers, four lanes a row, and each gets a
    column. (AMD's documents describe that in words: there is no formula to compare it with.)"""
    if len(o) != 2 or o[0].count != 2:
        raise UnsupportedInstruction("operand count")
    address, target, form = layout.row(o[1]), layout.row(o[0]), width("b64")
    lane = np.arange(layout.wave)
    row, within = np.arange(4), lane % 16
    source = (lane - within)[:, None] + 4 * row + (within // 4)[:, None]  # [lane, row]

    def get(w: Waves) -> None:
        if not w.full:
            raise UnsupportedInstruction("a transposing read where some lanes are not active")
        at, active = _lds_positions(w, address, offset, form)
        note_read(w.machine.lds, w, at, active, 2)
        words = np.stack(gather(w.machine.lds, at, form), 2).astype("<u4")  # [wave, lane, word]
        halves = np.ascontiguousarray(words).view("<u2")
        columns = np.ascontiguousarray(halves[:, source, (within % 4)[:, None]]).view("<u4")
        w.put(target, columns[:, :, 0])
        w.put(target + 1, columns[:, :, 1])

    return get


def _lds_positions(w: Waves, row: int, offset: int, form: Width) -> tuple[Array, Array | None]:
    machine, active = w.machine, active_lanes(w)
    at = w.u[row].astype(I64) + offset
    at = at if at.shape == w.active.shape else np.broadcast_to(at, w.active.shape)
    wrong = (at + form.total > machine.lds_bytes) | (at & (form.align - 1) != 0)
    if (wrong if active is None else wrong & active).any():
        raise MemoryFault(f"LDS access outside the workgroup's {machine.lds_bytes} bytes, or not aligned")
    at = at + (w.group * machine.lds_stride + GUARD)[:, None]
    return (at if active is None else np.where(active, at, 0)), active
