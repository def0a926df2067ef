"""Vector opcodes with two results, or whose operands follow rules of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from lanewise.isa import formulas as m
from lanewise.isa.errors import UnsupportedInstruction
from lanewise.isa.operands import Run, destination, source
from lanewise.isa.parse import VCC, Operand
from lanewise.isa.state import I64, POISON, U64, F, Layout, U, Waves


def _carry(operands: list[Operand], name: str, layout: Layout) -> Run:
    """d, carry-out, a, b (, carry-in): additions and subtractions with carry."""
    subtract, takes = "sub" in name, "_ci_" in name or name.startswith(("addc", "subb"))
    if len(operands) != 4 + takes or operands[1].kind != "s":
        raise UnsupportedInstruction("operand count")
    a, b = (source(layout, o, "u") for o in operands[2:4])
    if "rev" in name:
        a, b = b, a
    carry = source(layout, operands[4], "m") if takes else None
    write, out = destination(layout, operands[0], "u"), operands[1].index

    def run(w: Waves) -> None:
        x, y = a(w).astype(I64), b(w)
        r = x - y if subtract else x + y
        if carry is not None:
            r = r - carry(w) if subtract else r + carry(w)
        over = (r < 0) | (r > 0xFFFFFFFF)
        write(w, r.astype(U))
        w.put_mask(out, over)

    return run


def _mad64(operands: list[Operand], signed: bool, layout: Layout) -> Run:
    """d[2], carry-out, a, b, c[2]: a b + c."""
    letters = "ii" if signed else "uu"
    a, b = (source(layout, o, letter) for o, letter in zip(operands[2:4], letters, strict=True))
    c, write, out = source(layout, operands[4], "U"), destination(layout, operands[0], "U"), operands[1].index

    def run(w: Waves) -> None:
        x = a(w)
        product = (x.astype(I64) * b(w)).view(U64) if signed else x.astype(U64) * b(w)
        addend = c(w)
        total = product + addend
        if signed:  # bit 64 of the sum of the two, sign-extended
            p, q, t = (y.view(I64) for y in (product, addend, total))
            carry = (t < 0) ^ (((p ^ t) & (q ^ t)) < 0)
        else:
            carry = total < product
        write(w, total)
        w.put_mask(out, carry)

    return run


def _div_scale(operands: list[Operand], letter: str, layout: Layout) -> Run:
    reads = [source(layout, o, letter) for o in operands[2:5]]
    write, out = destination(layout, operands[0], letter), operands[1].index

    def run(w: Waves) -> None:
        value, scaled = m.div_scale(*(read(w) for read in reads))
        write(w, np.broadcast_to(value, w.active.shape))
        w.put_mask(out, np.broadcast_to(scaled, w.active.shape))

    return run


def _div_fmas(operands: list[Operand], letter: str, layout: Layout) -> Run:
    a, b, c = (source(layout, o, letter) for o in operands[1:4])
    write = destination(layout, operands[0], letter)
    return lambda w: write(w, m.div_fmas(a(w), b(w), c(w), w.mask(VCC)))


def _packed(operands: list[Operand], modifiers: dict[str, Any], layout: Layout, fn: Callable[..., Any]) -> Run:
    """v_pk_*_f32: two results, each of whose sources is a low or a high register."""
    n = len(operands) - 1
    low, high = modifiers.pop("op_sel", [0] * n), modifiers.pop("op_sel_hi", [1] * n)
    negative = modifiers.pop("neg_lo", [0] * n), modifiers.pop("neg_hi", [0] * n)
    halves = []
    for select, negate in zip((low, high), negative, strict=True):
        halves.append(
            [
                source(layout, _half_of(o, s, layout, g), "f")
                for o, s, g in zip(operands[1:], select, negate, strict=True)
            ]
        )
    row = layout.row(operands[0])
    if operands[0].count != 2:
        raise UnsupportedInstruction("packed destination")

    def run(w: Waves) -> None:
        first = fn(*(read(w) for read in halves[0]))
        second = fn(*(read(w) for read in halves[1]))
        w.put(row, first)
        w.put(row + 1, second)

    return run


def _half_of(o: Operand, select: int, layout: Layout, negate: int = 0) -> Operand:
    """The low or the high register of a packed operand.

    A constant's high half is the constant again: LLVM counts on it on gfx90a, gfx94x and gfx950.
    """
    if not o.plain:
        raise UnsupportedInstruction("source modifier on a packed operand")
    if o.kind == "c":
        word = Operand("c", o.index & 0xFFFFFFFF)
    elif o.count == 1 and select:
        raise UnsupportedInstruction("high half of one register")
    else:
        word = o.word(select if o.count == 2 else 0)
    word.negative = bool(negate)
    return word


def _fma_mix(operands: list[Operand], modifiers: dict[str, Any], layout: Layout, result: str) -> Run:
    """v_fma_mix*: a b + c in fp32, of sources that are fp32 or, where op_sel_hi says so, the half that op_sel names."""
    if len(operands) != 4:
        raise UnsupportedInstruction("operand count")
    high, half = modifiers.pop("op_sel", [0, 0, 0]), modifiers.pop("op_sel_hi", [0, 0, 0])
    a, b, c = (_mixed(o, x, y, layout) for o, x, y in zip(operands[1:], half, high, strict=True))
    if result == "f":
        write = destination(layout, operands[0], "f")
        return lambda w: write(w, m.fma(a(w), b(w), c(w)))
    row, shift = layout.row(operands[0]), U(16 * (result == "high"))
    kept = U(0xFFFF) if result == "high" else U(0xFFFF0000)
    return lambda w: w.put(row, w.u[row] & kept | m.half_bits(m.fma(a(w), b(w), c(w))) << shift)


def _mixed(o: Operand, half: int, high: int, layout: Layout) -> Callable[[Waves], Any]:
    if not half:
        return source(layout, o, "f")
    read = source(layout, replace(o, part="WORD_1") if high else o, "h")
    return lambda w: read(w).astype(F)


def _pk_mov(operands: list[Operand], modifiers: dict[str, Any], layout: Layout) -> Run:
    low, high = modifiers.pop("op_sel", [0, 0])
    modifiers.pop("op_sel_hi", None)
    a, b = (
        source(layout, _half_of(operands[1], low, layout), "u"),
        source(layout, _half_of(operands[2], high, layout), "u"),
    )
    row = layout.row(operands[0])

    def run(w: Waves) -> None:
        first, second = a(w).copy(), b(w).copy()
        w.put(row, first)
        w.put(row + 1, second)

    return run


def _bitop3_half(operands: list[Operand], modifiers: dict[str, Any], layout: Layout) -> Run:
    """Of the low halves; the high half of the destination is a NaN here, which nobody may look at."""
    if "op_sel" in modifiers:
        raise UnsupportedInstruction("halves of bitop3_b16")
    table = modifiers.pop("bitop3", 0)
    reads = [source(layout, o, "u") for o in operands[1:4]]
    row, high = layout.row(operands[0]), U(POISON & U(0xFFFF0000))
    return lambda w: w.put(row, m.bitop3(table, *(read(w) for read in reads)) & U(0xFFFF) | high)


def _bitop3(operands: list[Operand], modifiers: dict[str, Any], layout: Layout) -> Run:
    table = modifiers.pop("bitop3", 0)
    reads = [source(layout, o, "u") for o in operands[1:4]]
    row = layout.row(operands[0])
    return lambda w: w.put(row, m.bitop3(table, *(read(w) for read in reads)))


SPECIAL: dict[str, Callable[[list[Operand], dict[str, Any], Layout], Run]] = {
    **{
        name: (lambda o, _, layout, name=name: _carry(o, name, layout))
        for name in ("add_co_u32", "add_co_ci_u32", "addc_co_u32", "sub_co_u32", "sub_co_ci_u32", "subb_co_u32",
                     "subrev_co_u32", "subrev_co_ci_u32", "subbrev_co_u32")
    },
    **{name: (lambda o, _, layout: _mad64(o, False, layout)) for name in ("mad_u64_u32", "mad_co_u64_u32")},
    **{name: (lambda o, _, layout: _mad64(o, True, layout)) for name in ("mad_i64_i32", "mad_co_i64_i32")},
    "div_scale_f32": lambda o, _, layout: _div_scale(o, "f", layout),
    "div_scale_f64": lambda o, _, layout: _div_scale(o, "D", layout),
    "div_fmas_f32": lambda o, _, layout: _div_fmas(o, "f", layout),
    "div_fmas_f64": lambda o, _, layout: _div_fmas(o, "D", layout),
    "pk_add_f32": lambda o, mods, layout: _packed(o, mods, layout, np.add),
    "pk_mul_f32": lambda o, mods, layout: _packed(o, mods, layout, np.multiply),
    "pk_fma_f32": lambda o, mods, layout: _packed(o, mods, layout, m.fma),
    "pk_mov_b32": _pk_mov,
    "fma_mix_f32": lambda o, mods, layout: _fma_mix(o, mods, layout, "f"),
    "fma_mixlo_f16": lambda o, mods, layout: _fma_mix(o, mods, layout, "low"),
    "fma_mixhi_f16": lambda o, mods, layout: _fma_mix(o, mods, layout, "high"),
    "bitop3_b32": _bitop3,
    "bitop3_b16": _bitop3_half,
}  # fmt: skip
