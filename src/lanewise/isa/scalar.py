"""Scalar arithmetic: an instruction of `scalar_opcodes` as a function of the waves."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from lanewise.isa import formulas as m
from lanewise.isa.errors import UnsupportedInstruction
from lanewise.isa.parse import EXEC, NULL, Instruction, Operand
from lanewise.isa.scalar_opcodes import COMPARISONS, FLOAT_COMPARISONS, FROM_WIDE, SAVEEXEC, TABLE, add_signed
from lanewise.isa.state import I64, SCALAR_ROWS, U64, F, I, Layout, U, Waves

Run = Callable[[Waves], None]
Array = Any


def read(layout: Layout, o: Operand) -> Callable[[Waves], Array]:
    """uint32 [waves] of a scalar operand."""
    if o.kind == "s" and o.index == NULL:
        zero = np.zeros(1, U)
        return lambda w: zero
    if o.kind == "s":
        number = o.index
    elif o.kind == "c":
        number = SCALAR_ROWS + layout.row(o) - layout.constant
    else:
        raise UnsupportedInstruction("scalar operand")
    return lambda w: w.s[number]


def read64(layout: Layout, o: Operand) -> Callable[[Waves], Array]:
    """uint64 [waves] of a scalar operand; one register stands for its low half (a shift's count)."""
    if o.kind == "c":
        if o.real is not None:
            raise UnsupportedInstruction("float constant in a 64-bit operand")
        constant = np.array([o.index], U64)
        return lambda w: constant
    low = read(layout, o)
    if o.count == 1 or o.index == NULL:
        return lambda w: low(w).astype(U64)
    pair, odd = divmod(o.index, 2)
    if odd:
        raise UnsupportedInstruction("a pair that starts at an odd register")
    return lambda w: w.pairs[:, pair]


def _signed16(o: Operand) -> int:
    return ((o.index & 0xFFFF) ^ 0x8000) - 0x8000


def decode(ins: Instruction, layout: Layout) -> Run:
    """The scalar instruction as a function of the waves; raises UnsupportedInstruction."""
    name, o = ins.opcode.removeprefix("s_"), ins.operands
    if any(not x.plain for x in o):
        raise UnsupportedInstruction("source modifier on a scalar operand")
    if name in TABLE:
        return _arithmetic(ins, name, layout)
    if name in FROM_WIDE:
        f, a, d = FROM_WIDE[name], read64(layout, o[1]), o[0].index

        def narrow(w: Waves) -> None:
            r, scc = f(a(w), None, None)
            w.put_scalar(d, r)
            if scc is not None:
                w.scc[...] = scc

        return narrow
    for pattern, decoder in _PATTERNS:
        if match := re.fullmatch(pattern, name):
            return decoder(match, o, layout)
    raise UnsupportedInstruction("opcode")


def reads_scc(name: str) -> bool:
    """Of an opcode with "s_"."""
    return bool(re.match(r"s_(cselect|cmov|addc|subb|add_co_ci|sub_co_ci|cbranch_scc)", name))


def writes_scc(name: str) -> bool:
    """Surely, whatever the operands; of an opcode with "s_"."""
    bare = name.removeprefix("s_")
    return (bare in TABLE and hasattr(TABLE[bare][2], "value")) or bool(re.match(r"s_(cmp|bitcmp|\w+_saveexec)", name))


def mark_dead_scc(lines: list[Instruction]) -> None:
    """Mark the instructions of a block whose SCC another one overwrites before anybody reads it."""
    read = True
    for ins in reversed(lines):
        if writes_scc(ins.opcode):
            ins.scc_dead, read = not read, False
        read = read or reads_scc(ins.opcode)


def _arithmetic(ins: Instruction, name: str, layout: Layout) -> Run:
    o = ins.operands
    size, count, f = TABLE[name]
    if len(o) != count + 1 or o[0].kind != "s":
        raise UnsupportedInstruction("operand count")
    d, wide = o[0].index, size == 64
    get = read64 if wide else read
    a = get(layout, o[1])
    b = get(layout, o[2]) if count == 2 else (lambda _: None)
    value = getattr(f, "value", None) if ins.scc_dead else None
    if value is not None:
        if wide:
            return lambda w: w.put_scalar64(d, value(a(w), b(w)))
        return lambda w: w.put_scalar(d, value(a(w), b(w)))

    def run(w: Waves) -> None:
        r, scc = f(a(w), b(w), w.scc)
        if wide:
            w.put_scalar64(d, r)
        else:
            w.put_scalar(d, r)
        if scc is not None:
            w.scc[...] = scc

    return run


def _saveexec(match: Any, o: list[Operand], layout: Layout) -> Run:
    f, keep, wide = SAVEEXEC.get(match[1]), match[2] == "saveexec", match[3] == "64"
    if f is None:
        raise UnsupportedInstruction("opcode")
    d, get = o[0].index, read64 if wide else read
    source, mask = get(layout, o[1]), get(layout, Operand("s", EXEC, 2))

    def run(w: Waves) -> None:
        before = mask(w).copy()
        after = f(source(w), before)
        put = w.put_scalar64 if wide else w.put_scalar
        put(d, before if keep else after)
        put(EXEC, after)
        w.scc[...] = after != 0

    return run


def _comparison(match: Any, o: list[Operand], layout: Layout) -> Run:
    condition, of = match[1], match[2]
    f = (FLOAT_COMPARISONS if of == "f32" else COMPARISONS).get(condition)
    if f is None or of not in ("u32", "i32", "f32", "u64"):
        raise UnsupportedInstruction("compare")
    get = read64 if of == "u64" else read
    a, b, kind = get(layout, o[0]), get(layout, o[1]), {"u32": U, "i32": I, "f32": F, "u64": U64}[of]

    def run(w: Waves) -> None:
        w.scc[...] = f(a(w).view(kind), b(w).view(kind))

    return run


def _comparison_with_constant(match: Any, o: list[Operand], layout: Layout) -> Run:
    f, signed, a = COMPARISONS[match[1]], match[2] == "i32", read(layout, o[0])
    value = I64(_signed16(o[1])) if signed else I64(o[1].index & 0xFFFF)

    def run(w: Waves) -> None:
        w.scc[...] = f((a(w).view(I) if signed else a(w)).astype(I64), value)

    return run


def _with_constant(match: Any, o: list[Operand], layout: Layout) -> Run:
    what, d, a = match[1], o[0].index, read(layout, o[0])
    value = np.array([_signed16(o[1])], I).view(U)

    def run(w: Waves) -> None:
        if what == "mov":
            w.put_scalar(d, value)
        elif what == "mul":
            w.put_scalar(d, a(w) * value)
        else:
            r, scc = add_signed(a(w), value, None)
            w.put_scalar(d, r)
            w.scc[...] = scc

    return run


def _bit_test(match: Any, o: list[Operand], layout: Layout) -> Run:
    wanted, wide = match[1] == "1", match[2] == "64"
    a, b, last = (read64 if wide else read)(layout, o[0]), read(layout, o[1]), U(63 if wide else 31)

    def run(w: Waves) -> None:
        x = a(w)
        w.scc[...] = (x >> (b(w) & last).astype(x.dtype) & x.dtype.type(1)).astype(bool) == wanted

    return run


def _bit_set(match: Any, o: list[Operand], layout: Layout) -> Run:
    wanted, wide = match[1] == "1", match[2] == "64"
    d, old, b = o[0].index, (read64 if wide else read)(layout, o[0]), read(layout, o[1])
    kind, last = (U64, 63) if wide else (U, 31)

    def run(w: Waves) -> None:
        bit = kind(1) << (b(w) & U(last)).astype(kind)
        r = old(w) | bit if wanted else old(w) & ~bit
        (w.put_scalar64 if wide else w.put_scalar)(d, r)

    return run


def _select(match: Any, o: list[Operand], layout: Layout) -> Run:
    wide, d = match[1] == "64", o[0].index
    a, b = ((read64 if wide else read)(layout, x) for x in o[1:3])

    def run(w: Waves) -> None:
        (w.put_scalar64 if wide else w.put_scalar)(d, np.where(w.scc, a(w), b(w)))

    return run


def _conditional_move(match: Any, o: list[Operand], layout: Layout) -> Run:
    return _select(match, [o[0], o[1], o[0]], layout)


def _fused(match: Any, o: list[Operand], layout: Layout) -> Run:
    """s_fmac: a * b + d; s_fmaak: a * b + K; s_fmamk: a * K + b, all in the order of the text."""
    sources = [*o[1:], o[0]] if match[1] == "c" else o[1:]
    if len(sources) != 3:
        raise UnsupportedInstruction("operand count")
    a, b, c = (read(layout, x) for x in sources)
    d = o[0].index

    def run(w: Waves) -> None:
        w.put_scalar(d, m.fma(a(w).view(F), b(w).view(F), c(w).view(F)).astype(F).view(U))

    return run


_PATTERNS: list[tuple[str, Callable[[Any, list[Operand], Layout], Run]]] = [
    (r"(\w+)_(saveexec|wrexec)_b(32|64)", _saveexec),
    (r"cmp_([a-z]+)_([a-z]\d+)", _comparison),
    (r"cmpk_(eq|lg|gt|ge|lt|le)_(u32|i32)", _comparison_with_constant),
    (r"(mov|add|mul)k(?:_co)?_i32", _with_constant),
    (r"bitcmp([01])_b(32|64)", _bit_test),
    (r"bitset([01])_b(32|64)", _bit_set),
    (r"cselect_b(32|64)", _select),
    (r"cmov_b(32|64)", _conditional_move),
    (r"fma(c|ak|mk)_f32", _fused),
]
