"""Scalar arithmetic and scalar loads: one line an opcode.

`TABLE` maps an opcode, without "s_", to (bits, sources, function). The function takes the sources as uint32 or uint64
[waves] and SCC as bool [waves], and returns the result and the new SCC, or None where SCC stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from lanewise.isa import formulas as m
from lanewise.isa.errors import UnsupportedInstruction
from lanewise.isa.parse import EXEC, NULL, Instruction, Operand
from lanewise.isa.state import I64, SCALAR_ROWS, U64, D, F, I, Layout, U, Waves

Run = Callable[[Waves], None]
Array = Any


def _logic(f: Callable[..., Array]) -> Callable[..., tuple[Array, Array]]:
    """SCC: the result is not zero."""

    def run(a: Array, b: Array, _: Array) -> tuple[Array, Array]:
        r = f(a, b)
        return r, r != 0

    run.value = f  # type: ignore[attr-defined] - all there is to compute where nobody reads SCC
    return run


def _quiet(f: Callable[..., Array]) -> Callable[..., tuple[Array, None]]:
    return lambda a, b, _: (f(a, b), None)


def _add(a: Array, b: Array, carry: Array) -> tuple[Array, Array]:
    r = a + b
    total = r + carry.astype(U)
    return total, (r < a) | (total < r)


def _add_without(a: Array, b: Array, _: Array) -> tuple[Array, Array]:
    r = a + b
    return r, r < a


def _subtract_without(a: Array, b: Array, _: Array) -> tuple[Array, Array]:
    return a - b, a < b


def _subtract(a: Array, b: Array, borrow: Array) -> tuple[Array, Array]:
    r = a.astype(I64) - b - borrow
    return r.astype(U), r < 0


def _add_signed(a: Array, b: Array, _: Array) -> tuple[Array, Array]:
    r = a + b
    return r, ((a ^ r) & (b ^ r)).view(I) < 0


_add_signed.value = _add_without.value = lambda a, b: a + b  # type: ignore[attr-defined]
_subtract_without.value = lambda a, b: a - b  # type: ignore[attr-defined]


def _subtract_signed(a: Array, b: Array, _: Array) -> tuple[Array, Array]:
    r = a - b
    return r, ((a ^ b) & (a ^ r)).view(I) < 0


_subtract_signed.value = _subtract_without.value  # type: ignore[attr-defined]


def _shifted_add(k: int) -> Callable[..., tuple[Array, Array]]:
    def run(a: Array, b: Array, _: Array) -> tuple[Array, Array]:
        r = (a.astype(U64) << U64(k)) + b
        return r.astype(U), r > U64(0xFFFFFFFF)

    return run


def _extract(signed: bool, wide: bool = False) -> Callable[..., tuple[Array, Array]]:
    """s_bfe: offset in bits 0..4 (or 5), width in bits 16..22."""
    size, kind = (64, U64) if wide else (32, U)

    def run(a: Array, b: Array, _: Array) -> tuple[Array, Array]:
        offset = (b & b.dtype.type(size - 1)).astype(U64)
        width = np.minimum((b >> b.dtype.type(16) & b.dtype.type(127)).astype(U64), U64(size))
        x = (
            (a.view(I if size == 32 else I64).astype(I64) >> offset.astype(I64)).view(U64)
            if signed
            else a.astype(U64) >> offset
        )
        r = np.where(width >= 64, x, x & ((U64(1) << (width & U64(63))) - U64(1)))
        if signed:
            sign = np.where(width > 0, U64(1) << np.maximum(width, 1) - U64(1), U64(0))
            r = (r ^ sign) - sign
        r = r.astype(kind)
        return r, r != 0

    return run


def _choose(kind: Any, smaller: bool) -> Callable[..., tuple[Array, Array]]:
    """SCC: the first was chosen."""

    def run(a: Array, b: Array, _: Array) -> tuple[Array, Array]:
        x, y = a.view(kind), b.view(kind)
        first = x < y if smaller else x >= y
        return np.where(first, a, b), first

    return run


def _float(f: Callable[..., Array]) -> Callable[..., tuple[Array, None]]:
    return lambda a, b, _: (f(a.view(F), b.view(F)).astype(F).view(U), None)


S5, S6 = U(31), U64(63)
_LOGIC: dict[str, Callable[..., Array]] = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b), "xnor": lambda a, b: ~(a ^ b), "andn2": lambda a, b: a & ~b,
    "and_not1": lambda a, b: a & ~b, "orn2": lambda a, b: a | ~b, "or_not1": lambda a, b: a | ~b,
}  # fmt: skip

TABLE: dict[str, tuple[int, int, Callable[..., Any]]] = {
    **{f"{name}_b32": (32, 2, _logic(f)) for name, f in _LOGIC.items()},
    **{f"{name}_b64": (64, 2, _logic(f)) for name, f in _LOGIC.items()},
    "lshl_b32": (32, 2, _logic(lambda a, b: a << (b & S5))),
    "lshr_b32": (32, 2, _logic(lambda a, b: a >> (b & S5))),
    "ashr_i32": (32, 2, _logic(lambda a, b: (a.view(I) >> (b & S5).view(I)).view(U))),
    "lshl_b64": (64, 2, _logic(lambda a, b: a << (b & S6))),
    "lshr_b64": (64, 2, _logic(lambda a, b: a >> (b & S6))),
    "ashr_i64": (64, 2, _logic(lambda a, b: (a.view(I64) >> (b & S6).view(I64)).view(U64))),
    "bfe_u32": (32, 2, _extract(False)),
    "bfe_i32": (32, 2, _extract(True)),
    "bfe_u64": (64, 2, _extract(False, wide=True)),
    "bfe_i64": (64, 2, _extract(True, wide=True)),
    "bfm_b32": (32, 2, _quiet(lambda a, b: ((U(1) << (a & S5)) - U(1)) << (b & S5))),
    "bfm_b64": (64, 2, _quiet(lambda a, b: ((U64(1) << (a & S6)) - U64(1)) << (b & S6))),
    "mul_i32": (32, 2, _quiet(lambda a, b: a * b)),
    "mul_hi_u32": (32, 2, _quiet(lambda a, b: (a.astype(U64) * b >> U64(32)).astype(U))),
    "mul_hi_i32": (32, 2, _quiet(lambda a, b: (a.view(I).astype(I64) * b.view(I) >> I64(32)).astype(U))),
    "mul_u64": (64, 2, _quiet(lambda a, b: a * b)),
    "add_u64": (64, 2, _quiet(lambda a, b: a + b)),
    "add_nc_u64": (64, 2, _quiet(lambda a, b: a + b)),
    "sub_u64": (64, 2, _quiet(lambda a, b: a - b)),
    "sub_nc_u64": (64, 2, _quiet(lambda a, b: a - b)),
    **dict.fromkeys(("add_u32", "add_co_u32"), (32, 2, _add_without)),
    **dict.fromkeys(("addc_u32", "add_co_ci_u32"), (32, 2, _add)),
    **dict.fromkeys(("sub_u32", "sub_co_u32"), (32, 2, _subtract_without)),
    **dict.fromkeys(("subb_u32", "sub_co_ci_u32"), (32, 2, _subtract)),
    **dict.fromkeys(("add_i32", "add_co_i32"), (32, 2, _add_signed)),
    **dict.fromkeys(("sub_i32", "sub_co_i32"), (32, 2, _subtract_signed)),
    **{f"lshl{k}_add_u32": (32, 2, _shifted_add(k)) for k in (1, 2, 3, 4)},
    "max_i32": (32, 2, _choose(I, False)),
    "max_u32": (32, 2, _choose(U, False)),
    "min_i32": (32, 2, _choose(I, True)),
    "min_u32": (32, 2, _choose(U, True)),
    "absdiff_i32": (32, 2, _logic(lambda a, b: np.abs(a.view(I) - b.view(I)).view(U))),
    "pack_ll_b32_b16": (32, 2, _quiet(lambda a, b: a & U(0xFFFF) | b << U(16))),
    "pack_lh_b32_b16": (32, 2, _quiet(lambda a, b: a & U(0xFFFF) | b & U(0xFFFF0000))),
    "pack_hh_b32_b16": (32, 2, _quiet(lambda a, b: a >> U(16) | b & U(0xFFFF0000))),
    "add_f32": (32, 2, _float(lambda a, b: a + b)),
    "sub_f32": (32, 2, _float(lambda a, b: a - b)),
    "mul_f32": (32, 2, _float(lambda a, b: a * b)),
    "max_f32": (32, 2, _float(m.largest)),
    "min_f32": (32, 2, _float(m.least)),
    "max_num_f32": (32, 2, _float(m.largest)),
    "min_num_f32": (32, 2, _float(m.least)),
    # one source
    "mov_b32": (32, 1, _quiet(lambda a, _: a)),
    "mov_b64": (64, 1, _quiet(lambda a, _: a)),
    "not_b32": (32, 1, _logic(lambda a, _: ~a)),
    "not_b64": (64, 1, _logic(lambda a, _: ~a)),
    "wqm_b32": (32, 1, _logic(lambda a, _: _quads(a, 32))),
    "wqm_b64": (64, 1, _logic(lambda a, _: _quads(a, 64))),
    "brev_b32": (32, 1, _quiet(lambda a, _: m.reverse_bits(a))),
    "abs_i32": (32, 1, _logic(lambda a, _: np.abs(a.view(I)).view(U))),
    "sext_i32_i8": (32, 1, _quiet(lambda a, _: a.astype(np.int8).astype(I).view(U))),
    "sext_i32_i16": (32, 1, _quiet(lambda a, _: a.astype(np.int16).astype(I).view(U))),
    "bcnt1_i32_b32": (32, 1, _logic(lambda a, _: np.bitwise_count(a).astype(U))),
    "ff1_i32_b32": (32, 1, _quiet(lambda a, _: m.count_trailing(a).view(U))),
    "ctz_i32_b32": (32, 1, _quiet(lambda a, _: m.count_trailing(a).view(U))),
    "flbit_i32_b32": (32, 1, _quiet(lambda a, _: m.count_leading(a).view(U))),
    "clz_i32_u32": (32, 1, _quiet(lambda a, _: m.count_leading(a).view(U))),
    "cvt_f32_i32": (32, 1, _quiet(lambda a, _: a.view(I).astype(F).view(U))),
    "cvt_f32_u32": (32, 1, _quiet(lambda a, _: a.astype(F).view(U))),
    "cvt_u32_f32": (32, 1, _quiet(lambda a, _: m.to_u32(a.view(F)))),
    "cvt_i32_f32": (32, 1, _quiet(lambda a, _: m.to_i32(a.view(F)).view(U))),
    "floor_f32": (32, 1, _quiet(lambda a, _: np.floor(a.view(F)).view(U))),
    "ceil_f32": (32, 1, _quiet(lambda a, _: np.ceil(a.view(F)).view(U))),
    "trunc_f32": (32, 1, _quiet(lambda a, _: np.trunc(a.view(F)).view(U))),
    "rndne_f32": (32, 1, _quiet(lambda a, _: np.rint(a.view(F)).view(U))),
}  # fmt: skip
# 64-bit source, 32-bit result
FROM_WIDE: dict[str, Callable[..., Any]] = {
    "bcnt1_i32_b64": _logic(lambda a, _: np.bitwise_count(a).astype(U)),
    "ff1_i32_b64": _quiet(lambda a, _: m.count_trailing(a).view(U)),
    "ctz_i32_b64": _quiet(lambda a, _: m.count_trailing(a).view(U)),
}
SAVEEXEC: dict[str, Callable[[Array, Array], Array]] = {
    "and": lambda s, e: s & e, "or": lambda s, e: s | e, "xor": lambda s, e: s ^ e, "andn2": lambda s, e: s & ~e,
    "and_not1": lambda s, e: s & ~e, "andn1": lambda s, e: ~s & e, "and_not0": lambda s, e: ~s & e,
    "orn2": lambda s, e: s | ~e, "or_not1": lambda s, e: s | ~e,
}  # fmt: skip
COMPARISONS: dict[str, Callable[..., Array]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "lg": np.not_equal,
}  # fmt: skip
FLOAT_COMPARISONS: dict[str, Callable[..., Array]] = {
    **COMPARISONS,
    "lg": lambda a, b: (a < b) | (a > b), "neq": np.not_equal, "nlt": lambda a, b: ~(a < b),
    "nle": lambda a, b: ~(a <= b), "ngt": lambda a, b: ~(a > b), "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)), "o": lambda a, b: (a == a) & (b == b),
    "u": lambda a, b: (a != a) | (b != b),
}  # fmt: skip


def _quads(a: Array, size: int) -> Array:
    """s_wqm: all four bits of a quad that has one."""
    one = a.dtype.type(1)
    r = a * 0
    for k in range(0, size, 4):
        quad = a >> a.dtype.type(k) & a.dtype.type(15)
        r = r | (quad != 0).astype(a.dtype) * a.dtype.type(15) << a.dtype.type(k)
    return r * one


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
            r, scc = _add_signed(a(w), value, None)
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
    a, b, c = (read(layout, x) for x in ([*o[1:], o[0]] if match[1] == "c" else o[1:]))
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
del D
