"""Operands of vector instructions: functions that read a source and write a result, as a letter of `opcodes` says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lanewise.isa import formulas as m
from lanewise.isa.errors import UnsupportedInstruction
from lanewise.isa.parse import Operand
from lanewise.isa.state import I64, U64, D, I, Layout, U, Waves

Run = Callable[[Waves], None]


def source(layout: Layout, o: Operand, letter: str) -> Callable[[Waves], np.ndarray]:
    """Function that reads an operand as the letter says."""
    if letter == "m":
        if o.kind == "c":
            bits = [o.index >> k & 1 for k in range(layout.wave)]
            constant = np.array([bits], bool)
            return lambda w: constant
        number = o.index
        return lambda w: w.mask(number)
    if o.kind == "off":
        raise UnsupportedInstruction("operand")
    if letter in "UID":
        return _source64(layout, o, letter)
    row = layout.row(o)
    if letter in "wh" or o.part:
        return _part(layout, o, letter)
    if letter != "f" and not o.plain:
        if letter == "u":  # v_cndmask_b32 and v_mov_b32 take the float modifiers
            return lambda w: m.modified_bits(w.u[row], o.negative, o.absolute)
        raise UnsupportedInstruction("source modifier on a whole number")
    if letter == "f":
        if o.negative and o.absolute:
            return lambda w: -np.abs(w.f[row])
        if o.negative:
            return lambda w: -w.f[row]
        return (lambda w: np.abs(w.f[row])) if o.absolute else (lambda w: w.f[row])
    return (lambda w: w.i[row]) if letter == "i" else (lambda w: w.u[row])


def _part(layout: Layout, o: Operand, letter: str) -> Callable[[Waves], np.ndarray]:
    row, part = layout.row(o), o.part
    if o.kind == "c" and o.real is not None and letter in "wh":  # an inline float constant in a 16-bit operand
        row = layout.row(Operand("c", int(np.float16(o.real).view(np.uint16))))
    width, k = (8, int(part[-1])) if part.startswith("BYTE") else (16, int(part[-1]) if part else 0)
    shift, ones, sign = U(width * k), U((1 << width) - 1), U(1 << (width - 1))

    def read(w: Waves) -> np.ndarray:
        x = w.u[row] >> shift & ones
        return (x ^ sign) - sign if o.signed else x

    if letter == "f" or (not o.plain and (o.negative or o.absolute) and letter != "h"):
        raise UnsupportedInstruction("source modifier on part of a register")
    if letter == "h":

        def half(w: Waves) -> np.ndarray:
            x = read(w).astype(np.uint16).view(np.float16)
            x = np.abs(x) if o.absolute else x
            return -x if o.negative else x

        return half
    return (lambda w: read(w).view(I)) if letter == "i" else read


def _source64(layout: Layout, o: Operand, letter: str) -> Callable[[Waves], np.ndarray]:
    if o.part:
        raise UnsupportedInstruction("part of a 64-bit operand")
    if o.kind == "c":
        if letter == "D":  # an inline float is the double; another constant is the high half
            value = np.array([[D(o.real) if o.real is not None else 0.0]], D)
            if o.real is None:
                signed = (o.index ^ 1 << 63) - (1 << 63)
                bits = signed if -16 <= signed <= 64 else (o.index & 0xFFFFFFFF) << 32
                value = np.array([[bits & (1 << 64) - 1]], U64).view(D)
            value = -value if o.negative else value
            return lambda w: value
        if o.real is not None:
            raise UnsupportedInstruction("float constant in a 64-bit operand")
        constant = np.array([[o.index]], U64)
        constant = constant.view(I64) if letter == "I" else constant
        return lambda w: constant
    if o.count != 2:
        raise UnsupportedInstruction(f"64-bit operand of {o.count} registers")
    row = layout.row(o)
    if letter == "U":
        return lambda w: w.get64(row, row + 1)
    if letter == "I":
        return lambda w: w.get64(row, row + 1).view(I64)

    def double(w: Waves) -> np.ndarray:
        x = w.get64(row, row + 1).view(D)
        x = np.abs(x) if o.absolute else x
        return -x if o.negative else x

    return double


def destination(layout: Layout, o: Operand, letter: str) -> Callable[[Waves, np.ndarray], None]:
    """Function that writes a result."""
    if o.kind not in "va" or o.negative or o.absolute:
        raise UnsupportedInstruction("vector destination")
    row = layout.row(o)
    if letter in "UID":
        if o.count != 2:
            raise UnsupportedInstruction("64-bit destination")
        return lambda w, x: w.put64(row, x)
    if letter == "w":
        if o.part == "WORD_1":
            return lambda w, x: w.put(row, w.u[row] & U(0xFFFF) | x << U(16))
        if o.part or layout.generation >= 10:  # the other half stays
            return lambda w, x: w.put(row, w.u[row] & U(0xFFFF0000) | x)
    elif o.part:
        raise UnsupportedInstruction("part of a destination")
    return lambda w, x: w.put(row, x)
