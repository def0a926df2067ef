"""What moves between lanes: DPP and SDWA operands, lane reads and writes, permutations."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from lanewise.isa import vector
from lanewise.isa.errors import UnsupportedInstruction
from lanewise.isa.formulas import count_bits
from lanewise.isa.parse import Instruction, Operand
from lanewise.isa.scalar import read
from lanewise.isa.state import U64, I, Layout, U, Waves

Run = Callable[[Waves], None]
Array = Any


def dpp_lanes(control: str, value: Any, wave: int) -> tuple[Array, Array]:
    """(source lane, whether there is one) of every lane, for a DPP control such as row_shr:1."""
    lane = np.arange(wave)
    row, k = lane & ~15, lane & 15
    here = np.ones(wave, bool)
    if control == "quad_perm":
        return (lane & ~3) + np.array(value)[lane & 3], here
    simple: dict[str, Callable[[], tuple[Array, Array]]] = {
        "row_shr": lambda: (lane - value, k >= value),
        "row_shl": lambda: (lane + value, k + value < 16),
        "row_ror": lambda: (row | (k - value & 15), here),
        "row_mirror": lambda: (row | 15 - k, here),
        "row_half_mirror": lambda: (lane & ~7 | 7 - (lane & 7), here),
        "row_newbcast": lambda: (row | value, here),
        "row_share": lambda: (row | value, here),
        "row_xmask": lambda: (row | k ^ value, here),
        "wave_shl": lambda: (lane + 1, lane + 1 < wave),
        "wave_shr": lambda: (lane - 1, lane >= 1),
        "wave_rol": lambda: ((lane + 1) % wave, here),
        "wave_ror": lambda: ((lane - 1) % wave, here),
    }
    if control == "row_bcast" and value in (15, 31):
        return (row - 1, lane >= 16) if value == 15 else (np.full(wave, 31), lane >= 32)
    if control not in simple:
        raise UnsupportedInstruction(f"DPP {control}:{value}")
    return simple[control]()


DPP_CONTROLS = ("quad_perm", "row_shl", "row_shr", "row_ror", "row_mirror", "row_half_mirror", "row_bcast",
                "row_newbcast", "row_share", "row_xmask", "wave_shl", "wave_shr", "wave_rol", "wave_ror")  # fmt: skip


def decode_dpp(ins: Instruction, layout: Layout) -> Run:
    """A vector instruction whose first source comes from other lanes: it is put into a temporary row."""
    modifiers = ins.modifiers
    controls = [key for key in modifiers if key in DPP_CONTROLS]
    if len(controls) != 1:
        raise UnsupportedInstruction("DPP control")
    lanes, exists = dpp_lanes(controls[0], modifiers.pop(controls[0]), layout.wave)
    lane = np.arange(layout.wave)
    rows, banks = modifiers.pop("row_mask", 15), modifiers.pop("bank_mask", 15)
    enabled = (rows >> (lane >> 4 & 3) & 1 & banks >> (lane >> 2 & 3)).astype(bool)[None]
    zero_outside, inactive_too = bool(modifiers.pop("bound_ctrl", False)), bool(modifiers.pop("fi", 0))
    lanes, exists = np.where(exists, lanes, 0), exists[None]

    first = _first_source(ins.opcode, len(ins.operands))
    o = ins.operands[first]
    if o.kind not in "va" or o.part:
        raise UnsupportedInstruction("DPP source")
    if o.count > 1 and ins.opcode != "v_mov_b64":
        raise UnsupportedInstruction("DPP of a 64-bit operand")
    row, count, temporary = layout.row(o), o.count, layout.temporary
    operands = list(ins.operands)
    operands[first] = replace(o, kind="v", index=temporary)
    run_plain = vector.decode(replace(ins, operands=operands), layout)

    everywhere = enabled if zero_outside else enabled & exists  # lanes written where all are active
    whole, kept = bool(everywhere.all()), None if exists.all() else exists.astype(U)

    def run(w: Waves) -> None:
        good = exists if w.full or inactive_too else exists & w.active[:, lanes]
        for k in range(count):
            spare = w.u[temporary + k]
            np.take(w.u[row + k], lanes, axis=1, out=spare, mode="clip")
            if good is not exists:
                spare *= good
            elif kept is not None:
                spare *= kept
        if not w.full:
            w.write = (enabled if zero_outside else enabled & good) & w.active
        elif not whole:
            w.write = everywhere
        run_plain(w)
        w.write = None

    return run


def _first_source(opcode: str, operands: int) -> int:
    if re.match(r"v_(add|addc|sub|subb|subrev|subbrev)_co_|v_div_scale", opcode):
        return 2
    return 0 if opcode.startswith("v_cmpx") and operands == 2 else 1


def decode_sdwa(ins: Instruction, layout: Layout) -> Run:
    """A vector instruction that takes bytes or halves of its sources, or makes one of its result."""
    modifiers = ins.modifiers
    made, rest = str(modifiers.pop("dst_sel", "DWORD")), modifiers.pop("dst_unused", "UNUSED_PAD")
    operands = list(ins.operands)
    first = _first_source(ins.opcode, len(operands))
    for k in (0, 1):
        select = modifiers.pop(f"src{k}_sel", "DWORD")
        if select != "DWORD":
            if not re.fullmatch(r"BYTE_[0-3]|WORD_[01]", str(select)) or not operands[first + k].plain:
                raise UnsupportedInstruction(f"src{k}_sel")
            operands[first + k] = replace(operands[first + k], part=select)
    run_whole = vector.decode(replace(ins, operands=operands), layout)
    if made == "DWORD":
        return run_whole
    if made not in PARTS or rest != "UNUSED_PAD" or operands[0].kind != "v" or operands[0].count > 1:
        raise UnsupportedInstruction("dst_sel")
    (mask, shift), row = PARTS[made], layout.row(operands[0])

    def run(w: Waves) -> None:
        run_whole(w)
        w.put(row, (w.u[row] & U(mask)) << U(shift))  # all other bits are 0

    return run


# Bits that an SDWA instruction keeps of its result, and how far up it moves them.
PARTS = {**{f"BYTE_{k}": (0xFF, 8 * k) for k in range(4)}, **{f"WORD_{k}": (0xFFFF, 16 * k) for k in range(2)}}


# ---- lane reads and writes


def _first_lane(o: list[Operand], _: dict[str, Any], layout: Layout) -> Run:
    get, target = vector.source(layout, o[1], "u"), o[0].index

    def run(w: Waves) -> None:
        values = np.broadcast_to(get(w), w.active.shape)
        w.put_scalar(target, values[:, 0] if w.full else values[np.arange(w.count), w.active.argmax(1)])

    return run


def _read_lane(o: list[Operand], _: dict[str, Any], layout: Layout) -> Run:
    get, lane, target = vector.source(layout, o[1], "u"), read(layout, o[2]), o[0].index

    def run(w: Waves) -> None:
        k = np.broadcast_to(lane(w) & U(layout.wave - 1), (w.count,))
        w.put_scalar(target, get(w)[np.arange(w.count), k])

    return run


def _write_lane(o: list[Operand], _: dict[str, Any], layout: Layout) -> Run:
    value, lane, row = read(layout, o[1]), read(layout, o[2]), layout.row(o[0])

    def run(w: Waves) -> None:
        k = np.broadcast_to(lane(w) & U(layout.wave - 1), (w.count,))
        w.u[row][np.arange(w.count), k] = value(w)

    return run


def _mbcnt(high: bool) -> Callable[[list[Operand], dict[str, Any], Layout], Run]:
    def decoder(o: list[Operand], _: dict[str, Any], layout: Layout) -> Run:
        lane = np.arange(layout.wave)
        n = np.clip(lane - (32 if high else 0), 0, 32)
        below = ((1 << n.astype(np.int64)) - 1).astype(U)[None]
        a, b, row = vector.source(layout, o[1], "u"), vector.source(layout, o[2], "u"), layout.row(o[0])
        return lambda w: w.put(row, count_bits(a(w) & below) + b(w))

    return decoder


def _permlane16(other_row: bool) -> Callable[[list[Operand], dict[str, Any], Layout], Run]:
    """v_permlane(x)16: any lane of the own row of 16, or of the other one, chosen by 16 nibbles of two scalars."""

    def decoder(o: list[Operand], modifiers: dict[str, Any], layout: Layout) -> Run:
        inactive_too, zero_outside = modifiers.pop("op_sel", [0, 0])[:2]
        lane = np.arange(layout.wave)
        row_start = (lane & ~15) ^ (16 if other_row else 0)
        shift = (4 * (lane & 15)).astype(U64)
        value, row = vector.source(layout, o[1], "u"), layout.row(o[0])
        low, high = read(layout, o[2]), read(layout, o[3])

        def run(w: Waves) -> None:
            select = low(w) | high(w).astype(U64) << U64(32)
            lanes = row_start + (select[:, None] >> shift & U64(15)).astype(np.int64)
            lanes = np.broadcast_to(lanes, w.active.shape)
            result = np.take_along_axis(np.broadcast_to(value(w), w.active.shape), lanes, 1)
            if not (inactive_too or w.full):
                good = np.take_along_axis(w.active, lanes, 1)
                result = np.where(good, result, U(0))
                if not zero_outside:
                    w.write = good & w.active
            w.put(row, result)
            w.write = None

        return run

    return decoder


def _permlane_swap(distance: int) -> Callable[[list[Operand], dict[str, Any], Layout], Run]:
    """Odd rows of the first register and even rows of the second change places."""

    def decoder(o: list[Operand], _: dict[str, Any], layout: Layout) -> Run:
        low = np.flatnonzero(np.arange(64) & distance == 0)
        a, b = layout.row(o[0]), layout.row(o[1])

        def run(w: Waves) -> None:
            if not w.full:
                raise UnsupportedInstruction("v_permlane_swap where some lanes are not active")
            moved = w.u[a][:, low + distance].copy()
            w.u[a][:, low + distance] = w.u[b][:, low]
            w.u[b][:, low] = moved

        return run

    return decoder


def _permlane64(o: list[Operand], _: dict[str, Any], layout: Layout) -> Run:
    lanes, row, get = np.arange(layout.wave) ^ 32, layout.row(o[0]), vector.source(layout, o[1], "u")
    if layout.wave == 32:
        return lambda w: w.put(row, get(w))
    return lambda w: w.put(row, get(w)[:, lanes])


LANES: dict[str, Callable[[list[Operand], dict[str, Any], Layout], Run]] = {
    "v_readfirstlane_b32": _first_lane,
    "v_readlane_b32": _read_lane,
    "v_writelane_b32": _write_lane,
    "v_mbcnt_lo_u32_b32": _mbcnt(False),
    "v_mbcnt_hi_u32_b32": _mbcnt(True),
    "v_permlane16_b32": _permlane16(False),
    "v_permlanex16_b32": _permlane16(True),
    "v_permlane16_swap_b32": _permlane_swap(16),
    "v_permlane32_swap_b32": _permlane_swap(32),
    "v_permlane64_b32": _permlane64,
}
SCALAR_RESULT = {f"v_s_{name}_f32": f"{name}_f32" for name in ("rcp", "exp", "log", "sqrt", "rsq")}


def decode_scalar_result(ins: Instruction, layout: Layout) -> Run:
    """v_s_*: transcendental functions of scalars."""
    _, _, fn = vector.TABLE[SCALAR_RESULT[ins.opcode]]
    get, target = vector.source(layout, ins.operands[1], "f"), ins.operands[0].index
    return lambda w: w.put_scalar(target, np.broadcast_to(fn(get(w)), (w.count, 1))[:, 0].view(U))


# ---- permutations through the LDS hardware


def decode_ds_permutation(ins: Instruction, layout: Layout) -> Run:
    """ds_bpermute (pull), ds_permute (push) and ds_swizzle."""
    o, wave, row = ins.operands, layout.wave, layout.row(ins.operands[0])
    if ins.opcode == "ds_swizzle_b32":
        lanes = _swizzle(ins.modifiers.pop("offset", 0), wave)
        get = vector.source(layout, o[1], "u")
        return lambda w: w.put(row, np.where(w.active, get(w), U(0)).take(lanes, 1))
    offset = I(ins.modifiers.pop("offset", 0))
    lane, get = vector.source(layout, o[1], "i"), vector.source(layout, o[2], "u")

    def pull(w: Waves) -> None:
        source = ((lane(w) + offset) >> I(2)) & I(wave - 1)
        values = get(w)
        if not w.full:
            values = np.where(w.active, values, U(0))
        elif values.shape != w.active.shape:
            values = np.broadcast_to(values, w.active.shape)
        w.put(row, values.take(source + wave * np.arange(w.count)[:, None], mode="clip"))

    def push(w: Waves) -> None:
        target = np.broadcast_to(((lane(w) + offset) >> I(2)) & I(wave - 1), w.active.shape)
        values = np.broadcast_to(get(w), w.active.shape)
        result = np.zeros(w.active.shape, U)
        waves, lanes = np.nonzero(w.active)  # in lane order: of several writers the last stays
        result[waves, target[waves, lanes]] = values[waves, lanes]
        w.put(row, result)

    return pull if ins.opcode == "ds_bpermute_b32" else push


def _swizzle(pattern: Any, wave: int) -> Array:
    lane = np.arange(wave)
    if isinstance(pattern, str):
        if m := re.fullmatch(r"swizzle\(SWAP,\s*(\d+)\)", pattern):
            return lane ^ int(m[1])
        if m := re.fullmatch(r"swizzle\(BITMASK_PERM,\s*\"([01pi]{5})\"\)", pattern):
            keep = int("".join("1" if c in "pi" else "0" for c in m[1]), 2)
            flip = int("".join("1" if c in "1i" else "0" for c in m[1]), 2)
            return lane & ~31 | (lane & 31 & keep) ^ flip
        if m := re.fullmatch(r"swizzle\(QUAD_PERM,\s*(\d),\s*(\d),\s*(\d),\s*(\d)\)", pattern):
            return (lane & ~3) + np.array([int(x) for x in m.groups()])[lane & 3]
        if m := re.fullmatch(r"swizzle\(BROADCAST,\s*(\d+),\s*(\d+)\)", pattern):
            return lane & ~(int(m[1]) - 1) | int(m[2])
        if m := re.fullmatch(r"swizzle\(REVERSE,\s*(\d+)\)", pattern):
            return lane ^ int(m[1]) - 1
    elif pattern < 0x8000:
        return lane & ~31 | ((lane & 31 & pattern & 31) | pattern >> 5 & 31) ^ (pattern >> 10 & 31)
    raise UnsupportedInstruction(f"swizzle {pattern}")
