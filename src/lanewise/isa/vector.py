"""Vector arithmetic: an instruction of `opcodes.TABLE` as a function of the waves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lanewise.isa import formulas as m
from lanewise.isa.errors import UnsupportedInstruction
from lanewise.isa.opcodes import COMPARED, COMPARISONS, SATURATING, TABLE
from lanewise.isa.operands import Run, destination, source
from lanewise.isa.parse import EXEC, VCC, Instruction, Operand
from lanewise.isa.state import D, F, Layout, Waves
from lanewise.isa.vector_special import SPECIAL

__all__ = ["TABLE", "decode", "source"]

# What reads its result as its last source, and what it then is.
ADDS_TO_ITS_RESULT = {"fmac_f32": "fma_f32", "fmac_f64": "fma_f64", "dot2c_f32_f16": "dot2c_f32_f16"}


def decode(ins: Instruction, layout: Layout) -> Run:
    """The vector instruction as a function of the waves.

    Raises:
        UnsupportedInstruction: an opcode, operand or modifier that is not modelled.
    """
    name, operands, modifiers = ins.opcode.removeprefix("v_"), list(ins.operands), ins.modifiers
    if name.startswith("cmp"):
        return _compare(name, operands, layout)
    if name in ADDS_TO_ITS_RESULT:
        name = ADDS_TO_ITS_RESULT[name]
        operands.append(Operand(operands[0].kind, operands[0].index, operands[0].count))
    if name in SPECIAL:
        return SPECIAL[name](operands, modifiers, layout)
    if name not in TABLE:
        raise UnsupportedInstruction("opcode")
    result, sources, fn = TABLE[name]
    if "m" in sources and len(operands) == len(sources):
        operands.append(Operand("s", VCC, 2))
    if len(operands) != len(sources) + 1:
        raise UnsupportedInstruction("operand count")
    if name not in ("cndmask_b32", "mov_b32") and any(
        (o.negative or o.absolute) and letter in "uiwUI" for o, letter in zip(operands[1:], sources, strict=True)
    ):
        raise UnsupportedInstruction("source modifier on a whole number")
    if modifiers.pop("clamp", False):
        fn = _clamped(name, fn, result)
    if "mul" in modifiers or "div" in modifiers:
        factor = F(modifiers.pop("mul")) if "mul" in modifiers else F(1 / modifiers.pop("div"))
        inner = fn
        fn = lambda *a: inner(*a) * factor  # noqa: E731
    return _compose(layout, operands, result, sources, fn)


def _compose(layout: Layout, operands: list[Operand], result: str, sources: str, fn: Callable[..., Any]) -> Run:
    """Read the sources, compute, write."""
    plain = all(o.plain for o in operands) and isinstance(fn, np.ufunc) and set(result + sources) <= set("uif")
    if plain:
        return _in_place(layout, operands, result, sources, fn)
    write = destination(layout, operands[0], result)
    reads = [source(layout, o, letter) for o, letter in zip(operands[1:], sources, strict=True)]
    if len(reads) == 1:
        (a,) = reads
        return lambda w: write(w, fn(a(w)))
    if len(reads) == 2:
        a, b = reads
        return lambda w: write(w, fn(a(w), b(w)))
    a, b, c = reads
    return lambda w: write(w, fn(a(w), b(w), c(w)))


def _in_place(layout: Layout, operands: list[Operand], result: str, sources: str, fn: Any) -> Run:
    """A ufunc on whole registers: no temporary where all lanes are active."""
    destination(layout, operands[0], result)  # checks it
    d, *rows = [layout.row(o) for o in operands]
    kind = {"u": "u", "i": "i", "f": "f"}
    if len(set(result + sources)) > 1:
        raise UnsupportedInstruction("mixed types in place")
    attribute = kind[result]

    if len(rows) == 1:
        (a,) = rows

        def unary(w: Waves) -> None:
            r = getattr(w, attribute)
            if w.full and w.write is None:
                fn(r[a], out=r[d])
            else:
                w.put(d, fn(r[a], out=w.results[result]))

        return unary
    if len(rows) == 2:
        a, b = rows

        def binary(w: Waves) -> None:
            r = getattr(w, attribute)
            if w.full and w.write is None:
                fn(r[a], r[b], out=r[d])
            else:
                w.put(d, fn(r[a], r[b], out=w.results[result]))

        return binary
    a, b, c = rows

    def ternary(w: Waves) -> None:
        r = getattr(w, attribute)
        if w.full and w.write is None:
            fn(r[a], r[b], r[c], out=r[d])
        else:
            w.put(d, fn(r[a], r[b], r[c], out=w.results[result]))

    return ternary


def _clamped(name: str, fn: Callable[..., Any], result: str) -> Callable[..., Any]:
    if name.replace("_nc_", "_") in SATURATING:
        return SATURATING[name.replace("_nc_", "_")]
    if result not in "fD":
        raise UnsupportedInstruction("clamp")
    zero, one = (F(0), F(1)) if result == "f" else (D(0), D(1))
    return lambda *a: np.fmin(np.fmax(fn(*a), zero), one)


def _compare(name: str, operands: list[Operand], layout: Layout) -> Run:
    """v_cmp_<condition>_<type> dst, a, b; v_cmpx writes EXEC too."""
    kind, condition, of = name.split("_")
    x = kind == "cmpx"
    if of not in COMPARED:
        raise UnsupportedInstruction("compare")
    letters = COMPARED[of] * 2
    fn = COMPARISONS.get(condition)
    if condition == "class" and of == "f32":
        fn, letters = m.has_class, "fu"
    if fn is None or (condition in ("lg", "o", "u") and of[0] != "f"):
        raise UnsupportedInstruction("compare")
    targets = [o.index for o in operands[:-2]]
    if len(operands) not in ((2, 3) if x else (3,)) or any(o.kind != "s" for o in operands[:-2]):
        raise UnsupportedInstruction("operand count")
    a, b = (source(layout, o, letter) for o, letter in zip(operands[-2:], letters, strict=True))
    if x:
        targets.append(EXEC)

    def compare(w: Waves) -> None:
        result = fn(a(w), b(w))
        for target in targets:
            w.put_mask(target, result)

    return compare
