"""Numbers of the pseudocode: integers of a width, floats and exact fractions, and what it computes with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

FORMATS = {16: np.float16, 32: np.float32, 64: np.float64}


class NotCoveredError(Exception):
    """The definition is prose, or uses something that this evaluator does not have."""


@dataclass(frozen=True)
class Int:
    """`value` of `width` bits, read as signed or not."""

    value: int
    width: int = 32
    signed: bool = True

    @property
    def bits(self) -> int:
        return self.value & ((1 << self.width) - 1)


Value = Int | float | Fraction  # a fraction is exact, and rounded once where it is stored


def integer(value: int, width: int, signed: bool) -> Int:
    """`value` modulo 2^width, in the range of its type."""
    value &= (1 << width) - 1
    return Int(value - (1 << width) if signed and value >> (width - 1) else value, width, signed)


def float_of(bits: int, width: int) -> float:
    unsigned = {16: np.uint16, 32: np.uint32, 64: np.uint64}[width]
    return float(np.array(bits & ((1 << width) - 1), unsigned).view(FORMATS[width]))


def bits_of(value: float | Fraction, width: int) -> int:
    """The nearest number of the format, the even one of two."""
    unsigned, number = {16: np.uint16, 32: np.uint32, 64: np.uint64}[width], FORMATS[width]
    with np.errstate(all="ignore"):
        if not isinstance(value, Fraction):
            return int(np.array(value, number).view(unsigned))
        near = number(to_float(value))
        around = [near, np.nextafter(near, number(np.inf)), np.nextafter(near, number(-np.inf))]
    finite = [x for x in around if np.isfinite(x)]
    if len(finite) == 3:
        near = min(finite, key=lambda x: (abs(Fraction(float(x)) - value), int(x.view(unsigned)) & 1))
    return int(near.view(unsigned))


def to_float(value: float | Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def typed(bits: int, kind: str, width: int) -> Value:
    """Bits read as `f32`, `u64`, `i24`, `b16`, ..."""
    if kind == "f":
        return float_of(bits, width)
    if kind == "bf":
        return float_of(bits << 16, 32)
    return integer(bits, width, kind == "i")


def raw(value: Value, kind: str, width: int) -> int:
    """The bits that storing `value` as a type leaves."""
    if kind == "f":
        return bits_of(value if isinstance(value, Fraction) else number(value), width)
    if kind == "bf":
        return value.bits & 0xFFFF if isinstance(value, Int) else bf16(number(value))
    return (value.value if isinstance(value, Int) else bits_of(value, 32 if width < 64 else 64)) & ((1 << width) - 1)


def number(value: Value) -> float:
    return float(value.value) if isinstance(value, Int) else to_float(value)


def bf16(x: float) -> int:
    bits = bits_of(x, 32)
    return (bits >> 16) | 0x40 if math.isnan(x) else (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def fma(a: float, b: float, c: float) -> float | Fraction:
    """a * b + c, exactly."""
    if all(map(math.isfinite, (a, b, c))) and (exact := Fraction(a) * Fraction(b) + Fraction(c)):
        return exact
    with np.errstate(all="ignore"):
        return float(np.float64(a) * np.float64(b) + np.float64(c))


def divide(a: float, b: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(a) / np.float64(b))


def power(a: float, b: float) -> float | Fraction:
    if a == 2 and math.isfinite(b) and b == int(b):
        return Fraction(2) ** max(-5000, min(5000, int(b)))
    with np.errstate(all="ignore"):
        return float(np.power(np.float64(a), np.float64(b)))


def to_integer(signed: bool) -> Callable[[float], Int]:
    def convert(x: float) -> Int:
        low, high = (-(2**31), 2**31 - 1) if signed else (0, 2**32 - 1)
        return Int(
            0 if math.isnan(x) else int(max(low, min(high, math.trunc(x) if math.isfinite(x) else x))), 32, signed
        )

    return convert


def quiet(x: float) -> bool:
    return math.isnan(x)  # the tests give no signalling NaN


def exponent(x: float, double: bool) -> Int:
    return Int(bits_of(x, 64) >> 52 & 2047 if double else bits_of(x, 32) >> 23 & 255)


def numpy_function(name: str) -> Callable[[float], float]:
    def call(x: float) -> float:
        with np.errstate(all="ignore"):
            return float(getattr(np, name)(np.float64(x)))

    return call


def sign_extend_from(value: Int, bit: Int) -> Int:
    return integer(value.value, bit.value, True) if bit.value else Int(0)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "pow": power,
    "fma": fma,
    "ldexp": lambda x, n: operate("*", x, power(2.0, n.value)),
    "abs": lambda x: abs(x) if isinstance(x, float) else integer(abs(x.value), x.width, x.signed),
    "sign": lambda x: Int(int(math.copysign(1, x) < 0), 1, False),
    "fract": lambda x: x - math.floor(x) if math.isfinite(x) else math.nan,
    "isEven": lambda x: math.isfinite(x) and x % 2 == 0,
    "isNAN": math.isnan,
    **dict.fromkeys(("CalcGlobalAddr", "CalcDsAddr"), lambda *parts: Int(0)),  # memory is one cell
    "isQuietNAN": quiet,
    "isSignalNAN": lambda x: False,
    "cvtToQuietNAN": lambda x: x,
    **dict.fromkeys(("f32_to_u32", "f64_to_u32"), to_integer(False)),
    **dict.fromkeys(("f32_to_i32", "f64_to_i32"), to_integer(True)),
    **dict.fromkeys(("s_ff1_i32_b32", "s_ff1_i32_b64"), lambda x: Int((x.bits & -x.bits).bit_length() - 1)),
    "f32_to_f16": lambda x: float_of(bits_of(x, 16), 16),
    "f32_to_bf16": lambda x: float_of(bf16(x) << 16, 32),
    "signext": lambda x: integer(x.value, 64, True),
    "signext_from_bit": sign_extend_from,
    **dict.fromkeys(("f16_to_f32", "i32_to_f32", "u32_to_f32", "f32_to_f64", "f64_to_f32", "i32_to_f64"), number),
    "u32_to_f64": number,
    **{name: numpy_function(name) for name in ("log2", "sqrt", "floor", "trunc", "ceil", "sin", "cos")},
}
CONSTANTS = {"INF": math.inf, "NAN": math.nan, "PI": math.pi, "UNDERFLOW": 0.0, "OVERFLOW": math.inf}
FLAGS = {"WAVE_MODE.IEEE": 1, "ROUND_MODE": 0, "ROUND_NEAREST_EVEN": 0}
DENORMAL_F32, DENORMAL_F64 = object(), object()


def truth(value: Any) -> bool:
    return bool(value.value) if isinstance(value, Int) else bool(value)


def as_value(value: Any) -> Value:
    return Int(int(value), 1, False) if isinstance(value, (bool, np.bool_)) else value


def operate(op: str, a: Any, b: Any) -> Value:
    """One binary operation: in double precision where either side is a float, else modulo 2^width."""
    if b is DENORMAL_F32 or b is DENORMAL_F64:
        return as_value(a != 0 and abs(a) < (2.0**-126 if b is DENORMAL_F32 else 2.0**-1022))
    if isinstance(a, Fraction) or isinstance(b, Fraction):
        exact, other = (a, b) if isinstance(a, Fraction) else (b, a)
        x = number(other)
        if op == "*" and exact:
            return exact * Fraction(x) if math.isfinite(x) and x else x * math.copysign(1.0, float(exact > 0) - 0.5)
    if not (isinstance(a, Int) and isinstance(b, Int)):
        x, y = number(a), number(b)
        if op in COMPARE:
            return as_value(COMPARE[op](x, y))
        with np.errstate(all="ignore"):
            return {"/": divide, "**": power}.get(op, lambda p, q: float(ARITHMETIC[op](np.float64(p), np.float64(q))))(
                x, y
            )
    if op in COMPARE:
        return as_value(COMPARE[op](a.value, b.value))
    if op in ("<<", ">>"):
        return integer(a.value << b.value if op == "<<" else a.value >> b.value, a.width, a.signed)
    if op == "**":
        return integer(a.value**b.value, a.width, a.signed)
    return integer(ARITHMETIC[op](a.value, b.value), max(a.width, b.width), a.signed and b.signed)


COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<>": lambda a, b: a < b or a > b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}
