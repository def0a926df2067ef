"""The scalar opcodes, without "s_": (bits, sources, function).

The function takes the sources as uint32 or uint64 [waves] and SCC as bool [waves], and returns the result and the new
SCC, or None where SCC stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lanewise.isa import formulas as m
from lanewise.isa.state import I64, U64, F, I, U

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


def add_signed(a: Array, b: Array, _: Array) -> tuple[Array, Array]:
    """Sum, and whether it overflows as signed numbers."""
    r = a + b
    return r, ((a ^ r) & (b ^ r)).view(I) < 0


add_signed.value = _add_without.value = lambda a, b: a + b  # type: ignore[attr-defined]
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
    **dict.fromkeys(("add_i32", "add_co_i32"), (32, 2, add_signed)),
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
    "bcnt1_i32_b32": (32, 1, _logic(lambda a, _: m.count_bits(a).astype(U))),
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
    "bcnt1_i32_b64": _logic(lambda a, _: m.count_bits(a).astype(U)),
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
