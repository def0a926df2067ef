"""The formulas of opcodes that are more than one numpy function, as the ISA documents give them."""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.isa.fused import fma, fma64
from lanewise.isa.state import I64, U64, D, F, I, U

Array = Any
__all__ = ["fma", "fma64"]


def bits(x: Array) -> Array:
    """float32 as uint32."""
    return np.ascontiguousarray(x, F).view(U)


def reciprocal(a: Array) -> Array:
    """1 / a rounded once (the hardware is off by up to one unit in the last place)."""
    return (1 / a.astype(D)).astype(F)


def modified_bits(a: Array, negative: bool, absolute: bool) -> Array:
    """Float source modifiers on the bits."""
    a = a & U(0x7FFFFFFF) if absolute else a
    return a ^ U(0x80000000) if negative else a


def largest(a: Array, b: Array) -> Array:
    """v_max: a number before NaN, 0 before -0."""
    larger = np.fmax(a, b)
    return larger if larger.all() else np.where((a == 0) & (b == 0), a + b, larger)


def least(a: Array, b: Array) -> Array:
    """v_min: a number before NaN, -0 before 0."""
    smaller = np.fmin(a, b)
    return smaller if smaller.all() else np.where((a == 0) & (b == 0), -(-a - b), smaller)


def fraction(a: Array) -> Array:
    """v_fract_f32: less than 1; NaN where there is none."""
    return np.minimum(a - np.floor(a), F(0.99999994))


def median(a: Array, b: Array, c: Array) -> Array:
    """v_med3_f32: of three numbers; where one is NaN the least of the others."""
    none = np.isnan(a) | np.isnan(b) | np.isnan(c)
    return np.where(none, least(least(a, b), c), largest(least(a, b), least(largest(a, b), c)))


# ---- whole numbers


def count_bits(a: Array) -> Array:
    """Bits that are set."""
    if hasattr(np, "bitwise_count"):  # since numpy 2.0
        return np.bitwise_count(a)
    a = np.ascontiguousarray(a)
    return np.unpackbits(a.view(np.uint8).reshape(*a.shape, a.itemsize), axis=-1).sum(-1, dtype=np.uint8)


def low24(a: Array) -> Array:
    """The low 24 bits, sign-extended."""
    return (a << I(8)) >> I(8)


def field(a: Array, offset: Array, width: Array) -> Array:
    """v_bfe_u32."""
    return (a >> (offset & U(31))) & ((U(1) << (width & U(31))) - U(1))


def signed_field(a: Array, offset: Array, width: Array) -> Array:
    """v_bfe_i32: the field of the sign-extended number, and its own sign extended."""
    n = (width & U(31)).astype(I64)
    x = (a.view(I).astype(I64) >> (offset & U(31)).astype(I64)) & ((I64(1) << n) - 1)
    sign = np.where(n > 0, I64(1) << np.maximum(n - 1, 0), 0)
    return ((x ^ sign) - sign).astype(U)


def reverse_bits(a: Array) -> Array:
    """Bit 0 becomes bit 31."""
    for shift, ones in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        a = a >> U(shift) & U(ones) | (a & U(ones)) << U(shift)
    return a >> U(16) | a << U(16)


def count_trailing(a: Array) -> Array:
    """Position of the lowest set bit; -1 where there is none."""
    one = a.dtype.type(1)
    return np.where(a == 0, I(-1), count_bits((a & (~a + one)) - one).astype(I))


def count_leading(a: Array) -> Array:
    """Zeros above the highest set bit; -1 where there is none."""
    return np.where(a == 0, I(-1), I(32) - np.frexp(a.astype(D))[1])


def permute_bytes(a: Array, b: Array, select: Array) -> Array:
    """v_perm_b32: selectors 0..3: bytes of b, 4..7: of a, 8..11: the signs of their odd bytes, 12: 0, above: 255."""
    first = int(select.flat[0])
    if (
        not first & 0xF8F8F8F8 and (select == U(first)).all()
    ):  # as in nearly all code: bytes, the same ones in all lanes
        return _chosen_bytes(a, b, first)
    both, result = (a.astype(U64) << U64(32)) | b, U(0)
    for k in range(4):
        s = select >> U(8 * k) & U(255)
        sign = (s >= 8) & (s < 12)
        place = np.where(sign, U(2) * s - U(15), s & U(7))
        byte = (both >> place.astype(U64) * U64(8) & U64(255)).astype(U)
        byte = np.where(sign, (byte >> U(7)) * U(255), byte)
        result = result | np.where(s < 12, byte, np.where(s == 12, U(0), U(255))) << U(8 * k)
    return result


def _chosen_bytes(a: Array, b: Array, select: int) -> Array:
    """The same, of one selector for all whose bytes are 0 to 7."""
    result = U(0)
    for k in range(4):
        place = select >> 8 * k & 7
        result = result | ((a if place > 3 else b) >> U(8 * (place & 3)) & U(255)) << U(8 * k)
    return result


def bitop3(table: int, a: Array, b: Array, c: Array) -> Array:
    """Any function of three bits; bit 4a + 2b + c of the table is its value."""
    result = U(0)
    for k in range(8):
        if table >> k & 1:
            result = result | ((a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c))
    return np.broadcast_to(result, np.broadcast_shapes(a.shape, b.shape, c.shape)).astype(U)


# ---- conversions


def to_u32(x: Array) -> Array:
    """Towards zero, saturating; NaN gives 0."""
    return np.where(np.isnan(x), 0, np.clip(np.trunc(x.astype(D)), 0, 2**32 - 1)).astype(U)


def to_i32(x: Array) -> Array:
    """Towards zero, saturating; NaN gives 0."""
    return np.where(np.isnan(x), 0, np.clip(np.trunc(x.astype(D)), -(2**31), 2**31 - 1)).astype(I)


def bfloat_bits(x: Array) -> Array:
    """bfloat16, to nearest even."""
    u = bits(x)
    return np.where(np.isnan(x), u >> U(16) | U(0x40), (u + U(0x7FFF) + (u >> U(16) & U(1))) >> U(16))


def half_bits(x: Array) -> Array:
    """float16, to nearest even."""
    return x.astype(np.float16).view(np.uint16).astype(U)


def dot2(a: Array, b: Array, c: Array) -> Array:
    """c plus the products of the low and of the high halves, rounded once; hardware may take a denormal for 0."""
    (a0, a1), (b0, b1) = ([w.view(np.float16).astype(D) for w in halves(x)] for x in (a, b))
    return (c + a0 * b0 + a1 * b1).astype(F)


def halves(a: Array) -> tuple[Array, Array]:
    """The low and the high 16 bits."""
    return a.astype(np.uint16), (a >> U(16)).astype(np.uint16)


# ---- division: v_div_scale, v_div_fmas and v_div_fixup make one that is correctly rounded. float32 and float64 alike.


def _exponent(x: Array) -> Array:
    """The biased exponent."""
    if x.dtype == D:
        return (np.ascontiguousarray(x).view(U64) >> U64(52) & U64(2047)).astype(I64)
    return (bits(x) >> U(23) & U(255)).astype(I64)


def _same(a: Array, b: Array) -> Array:
    kind = U64 if a.dtype == D else U
    return np.ascontiguousarray(a).view(kind) == np.ascontiguousarray(b).view(kind)


def _moderate(x: Array) -> bool:
    """Whether all magnitudes are so near 1 that a quotient of two needs no scaling and is no special case."""
    size = np.abs(x)
    return bool(size.min() > 2.0**-20) and bool(size.max() < 2.0**20)  # NaN is neither


def div_scale(s0: Array, s1: Array, s2: Array) -> tuple[Array, Array]:
    """(s0 scaled, flag): s1 is the denominator, s2 the numerator, s0 the one of the two to be scaled."""
    if _moderate(s1) and _moderate(s2):
        return s0, np.zeros((1, 1), bool)
    s0, s1, s2 = np.broadcast_arrays(s0, s1, s2)
    double = s0.dtype == D
    by, far, small = (128, 768, 53) if double else (64, 96, 23)
    ahead = _exponent(s2) - _exponent(s1)
    middle = (far, 2047 - far) if double else (30, 220)
    if (
        all(((e > middle[0]) & (e < middle[1])).all() for e in (_exponent(s1), _exponent(s2)))
        and (np.abs(ahead) < far // 2).all()
    ):
        return s0, np.zeros(s0.shape, bool)  # nothing to scale
    tiny = np.finfo(s0.dtype).tiny
    wide = s0.dtype if double else D  # 1 / a and b / a of float32 are told apart from denormals in double
    up, down = np.ldexp(s0, by), np.ldexp(s0, -by)
    a, b = s1.astype(wide), s2.astype(wide)

    def denormal(x: Array) -> Array:
        return (x != 0) & (np.abs(x) < tiny)

    rcp, quotient = denormal(1 / a), denormal(b / a)
    same1, same2 = _same(s0, s1), _same(s0, s2)
    rules: list[tuple[Array, Array, bool]] = [
        ((s2 == 0) | (s1 == 0), np.full_like(s0, np.nan), False),
        (ahead >= far, np.where(same1, up, s0), True),
        (denormal(a), up, False),
        (rcp & quotient, np.where(same1, down, s0), True),  # the document says up, which overflows
        (rcp, down, False),
        (quotient, np.where(same2, up, s0), True),
        (_exponent(s2) <= small, up, False),
    ]
    conditions = [rule[0] for rule in rules]
    value = np.select(conditions, [rule[1] for rule in rules], s0).astype(s0.dtype)
    return value, np.select(conditions, [np.full(s0.shape, rule[2]) for rule in rules], False)


def div_fmas(a: Array, b: Array, c: Array, vcc: Array) -> Array:
    """fma(a, b, c), scaled back where v_div_scale's flag says so."""
    if not vcc.any():
        return fma64(a, b, c) if a.dtype == D else fma(a, b, c)
    middle, by = (1023, 128) if a.dtype == D else (127, 64)
    scale = np.where(vcc, np.where(_exponent(c) > middle, by, -by), 0).astype(I)
    if a.dtype == D:
        return np.ldexp(fma64(a, b, c), scale)
    exact = fma64(a.astype(D), b.astype(D), c.astype(D))  # a denormal quotient is rounded once
    return np.where(vcc, np.ldexp(exact, scale), fma(a, b, c)).astype(F)


def div_fixup(quotient: Array, denominator: Array, numerator: Array) -> Array:
    """The quotient with the special cases of its operands."""
    negative = np.signbit(denominator) ^ np.signbit(numerator)
    sign = np.where(negative, -1, 1).astype(quotient.dtype)
    if _moderate(denominator) and _moderate(numerator):
        return sign * np.abs(quotient)
    both_zero, both_infinite = (denominator == 0) & (numerator == 0), np.isinf(denominator) & np.isinf(numerator)
    invalid = np.isnan(denominator) | np.isnan(numerator) | both_zero | both_infinite
    lost = -1075 if quotient.dtype == D else -150
    conditions = [
        invalid,
        (denominator == 0) | np.isinf(numerator),
        np.isinf(denominator) | (numerator == 0),
        _exponent(numerator) - _exponent(denominator) < lost,
    ]
    values = [np.full_like(sign, np.nan), sign * np.inf, sign * 0, sign * 0]
    return np.select(conditions, values, sign * np.abs(quotient)).astype(quotient.dtype)


div_fixup64 = div_fixup


def has_class(x: Array, wanted: Array) -> Array:
    """v_cmp_class_f32: the number is of one of the classes whose bits are set."""
    u = bits(x)
    nan, infinite, negative, zero = np.isnan(x), np.isinf(x), np.signbit(x), x == 0
    quiet = nan & (u & U(0x400000) != 0)
    denormal = ~zero & (np.abs(x) < F(2.0**-126))
    normal = ~nan & ~infinite & ~zero & ~denormal
    classes = [nan & ~quiet, quiet, infinite & negative, normal & negative, denormal & negative, zero & negative,
               zero & ~negative, denormal & ~negative, normal & ~negative, infinite & ~negative]  # fmt: skip
    result = np.zeros(np.broadcast_shapes(x.shape, wanted.shape), bool)
    for k, member in enumerate(classes):
        result |= member & (wanted >> U(k) & U(1)).astype(bool)
    return result
