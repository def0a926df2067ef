"""An evaluator of the pseudocode in which AMD's ISA documents define their instructions.

The pseudocode itself is not here: the test takes it from a package that ships it. One instruction is evaluated for one
lane, on Python integers and floats, so that it has nothing in common with the emulator that it judges.

    Machine(definitions, registers={"S0": 3, "S1": 4}).run("V_ADD_NC_U32")

Registers are integers of bits. `S0.f32` reads them as a float, `S0[4 : 0]` as a slice; floats are computed in double
precision and rounded where they are stored, which rounds +, -, *, / and sqrt correctly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

FORMATS = {16: np.float16, 32: np.float32, 64: np.float64}
TOKEN = re.compile(
    r"\s*(?:(\d+'[UIFB])|(\d+)'(0x[\da-fA-F]+|\d+)U?|(0x[\da-fA-F]+(?:ULL|LL|U)?)|(\d+\.\d+F?|\d+F)"
    r"|(\d+)(ULL|LL|U)?|([A-Za-z_]\w*)|(\*\*|<<|>>|<>|<=|>=|==|!=|&&|\|\||\+=|-=|\|=|[-+*/%<>=!~&|^?:()\[\]{},;.]))"
)
PRECEDENCE = ["?", "||", "&&", "|", "^", "&", "==", "<", "<<", "+", "*", "**"]
LEVEL = {
    **dict.fromkeys(("==", "!=", "<>"), "=="),
    **dict.fromkeys(("<", "<=", ">", ">="), "<"),
    **dict.fromkeys(("<<", ">>"), "<<"),
    **dict.fromkeys(("+", "-"), "+"),
    **dict.fromkeys(("*", "/", "%"), "*"),
}


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


def tokens_of(text: str) -> list[tuple[str, Any]]:
    text = re.sub(r"//[^\n]*", "", text)
    out: list[tuple[str, Any]] = []
    at = 0
    while text[at:].strip():
        match = TOKEN.match(text, at)
        if not match:
            raise NotCoveredError(text[at : at + 20])
        cast, width, sized, hexadecimal, real, decimal, suffix, name, sign = match.groups()
        if cast:
            out.append(("cast", cast))
        elif width:
            out.append(("number", Int(int(sized, 0), int(width), False)))
        elif hexadecimal:
            digits = re.sub(r"[UL]+$", "", hexadecimal)
            out.append(("number", Int(int(digits, 16), 64 if "LL" in hexadecimal else 32, "U" not in hexadecimal)))
        elif real:
            out.append(("number", float(real.rstrip("F"))))
        elif decimal:
            out.append(
                ("number", Int(int(decimal), 64 if suffix and "LL" in suffix else 32, not (suffix and "U" in suffix)))
            )
        else:
            out.append(("name", name) if name else ("sign", sign))
        at = match.end()
    return [*out, ("end", None)]


class Machine:
    """Evaluates definitions for one lane, on `registers`: bits by name. Written registers are changed in place."""

    def __init__(self, definitions: Mapping[str, str], registers: dict[str, int], lane: int = 0) -> None:
        self.definitions, self.registers, self.lane = definitions, registers, lane
        self.locals: dict[str, Any] = {"laneId": Int(lane, 32, False)}
        self.arrays: dict[str, int] = {}  # bits of an element
        self.lambdas: dict[str, tuple[list[str], int]] = {}  # parameters, and where the body is
        self.broken = False
        self.returned: Any = None
        self.double = False

    def run(self, name: str) -> None:
        """Executes the definition of an instruction."""
        self.tokens, self.at = tokens_of(self.definitions[name]), 0
        self.double = "_F64" in name
        self.block(True, ())
        if self.tokens[self.at][0] != "end":
            raise NotCoveredError(str(self.tokens[self.at]))

    # Reading tokens. Both sides of every decision are parsed; `live` says whether they take effect.
    def peek(self, *texts: str) -> bool:
        return self.tokens[self.at][0] in ("sign", "name") and self.tokens[self.at][1] in texts

    def accept(self, *texts: str) -> bool:
        if self.peek(*texts):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise NotCoveredError(f"expected {text}, got {self.tokens[self.at]}")

    def name(self) -> str:
        kind, text = self.tokens[self.at]
        if kind != "name":
            raise NotCoveredError(str((kind, text)))
        self.at += 1
        return text

    # Statements.
    def block(self, live: bool, ends: tuple[str, ...]) -> None:
        while self.tokens[self.at][0] != "end" and not self.peek(*ends):
            self.statement(live and self.returned is None)
            self.accept(";")

    def statement(self, live: bool) -> None:
        if self.accept("if"):
            taken = False
            while True:
                condition = self.expression(live and not taken)
                self.expect("then")
                now = live and not taken and truth(condition)
                self.block(now, ("elsif", "else", "endif"))
                taken = taken or now
                if self.accept("elsif"):
                    continue
                if self.accept("else"):
                    self.block(live and not taken, ("endif",))
                self.expect("endif")
                return None
        if self.accept("for"):
            return self.loop(live)
        if self.accept("declare"):
            return self.declare()
        if self.accept("break"):
            self.broken = self.broken or live
            return None
        if self.accept("return"):
            value = self.expression(live)
            self.returned = value if live else self.returned
            return None
        return self.assignment(live)

    def loop(self, live: bool) -> None:
        variable = self.name()
        self.expect("in")
        first, _ = self.expression(live), self.expect(":")
        last, _ = self.expression(live), self.expect("do")
        start, self.broken = self.at, False
        turns = range(first.value, last.value + 1) if live else range(1)
        for i in turns:
            self.at, self.locals[variable] = start, Int(i)
            self.block(live and not self.broken, ("endfor",))
            if self.broken:
                break
        if self.broken or not turns:
            self.at, depth = start, 0
            while depth or not self.peek("endfor"):
                depth += 1 if self.peek("for") else -1 if self.peek("endfor") else 0
                self.at += 1
        self.broken = False
        self.expect("endfor")

    def declare(self) -> None:
        name = self.name()
        self.expect(":")
        element = int(self.tokens[self.at][1].split("'")[0])
        self.at += 1
        if self.accept("["):
            self.expression(False)
            self.expect("]")
            self.arrays[name] = element
        self.registers.setdefault(name, 0)

    def define(self, name: str) -> None:
        """`name = lambda(a, b) (body)`: keeps where the body is, and passes over it."""
        self.expect("(")
        parameters = [self.name()]
        while self.accept(","):
            parameters.append(self.name())
        self.expect(")")
        self.lambdas[name], depth = (parameters, self.at), 0
        while True:
            depth += 1 if self.peek("(") else -1 if self.peek(")") else 0
            self.at += 1
            if not depth:
                return

    def assignment(self, live: bool) -> None:
        targets = []
        while True:
            start = self.at
            try:
                target = self.target(live)
            except NotCoveredError:  # no place: the value itself
                self.at = start
                break
            op = next((o for o in ("=", "+=", "-=", "|=") if self.accept(o)), None)
            if op is None:
                self.at = start
                break
            targets.append((target, op))
            if op != "=":
                break
            if self.accept("lambda"):
                return self.define(target[0])
        if not targets:
            raise NotCoveredError(f"statement at {self.tokens[self.at]}")
        value = self.expression(live)
        for target, op in reversed(targets) if live else ():
            self.store(target, value if op == "=" else operate(op[0], self.load(target), value))
        return None

    # Places: (name, lowest bit, width, type or None), or a list of them for { high, low }.
    def target(self, live: bool) -> Any:
        if self.accept("{"):
            places = [self.target(live)]
            while self.accept(","):
                places.append(self.target(live))
            self.expect("}")
            return places
        if self.tokens[self.at][0] != "name":
            return None
        return self.place(live)

    def place(self, live: bool) -> Any:
        name = self.name()
        if name == "MEM":
            self.expect("[")
            self.expression(False)
            self.expect("]")
        low, width, kind, reverse = 0, 128, None, False
        if name == "VGPR":
            name, low, width = self.vgpr(live)
        elif name in self.arrays and self.accept("["):
            index = self.expression(live)
            self.expect("]")
            width = self.arrays[name]
            low = index.value * width if live else 0
        while True:
            if self.accept("."):
                text = self.name()
                if match := re.fullmatch(r"(bf|[fuib])(\d+)", text):
                    kind, width = (
                        match[1],
                        min(width, int(match[2]))
                        if kind is None and width < 32 and match[1] in "ub"
                        else int(match[2]),
                    )
                else:
                    name = f"{name}.{text}"
            elif self.accept("["):
                high = self.expression(live)
                bottom = high
                if self.accept(":"):
                    bottom = self.expression(live)
                self.expect("]")
                if live:
                    reverse = bottom.value > high.value
                    first, last = sorted((high.value, bottom.value))
                    low, width, kind = low + first, last - first + 1, None
            else:
                return name, low, width, kind, reverse

    def vgpr(self, live: bool) -> tuple[str, int, int]:
        """VGPR[lane][register]: registers of a whole wave are "VGPR0", ..., lane after lane."""
        self.expect("[")
        lane = self.expression(live)
        self.expect("]")
        self.expect("[")
        register = self.expression(live)
        self.expect("]")
        return (f"VGPR{register.value}", 32 * lane.value, 32) if live else ("VGPR", 0, 32)

    def load(self, place: Any) -> Any:
        name, low, width, kind, reverse = place
        if name in self.locals and name not in self.registers:
            value = self.locals[name]
            if width == 128 and kind is None:
                return value
            bits = value.bits if isinstance(value, Int) else bits_of(value, width)
        elif name in self.registers:
            bits = self.registers[name]
        elif name == "DENORM":
            return DENORMAL_F64 if self.double else DENORMAL_F32  # of the instruction's own format
        elif re.sub(r"_F\d+", "", name) in CONSTANTS:
            return CONSTANTS[re.sub(r"_F\d+", "", name)]
        elif name in FLAGS:
            return Int(FLAGS[name])
        else:
            raise NotCoveredError(name)
        bits = bits >> low & ((1 << width) - 1)
        if reverse:
            bits = int(format(bits, f"0{width}b")[::-1], 2)
        return typed(bits, kind or "u", width) if kind or width < 128 else integer(bits, 64, False)

    def store(self, place: Any, value: Any) -> None:
        value = as_value(value)
        if isinstance(place, list):
            for part in reversed(place):
                width = part[2]
                self.store(part, integer(value.value, width, False))
                value = Int(value.value >> width, value.width)
            return
        name, low, width, kind, _ = place
        if width == 128 and kind is None and name not in self.registers:
            self.locals[name] = value
            return
        if name in self.locals and name not in self.registers and not isinstance(self.locals[name], float):
            self.registers[name] = self.locals.pop(name).bits
        if width == 128:
            width = 1 if name == "SCC" else 64 if isinstance(value, Int) or self.double else 32
        bits = raw(value, kind or "u", width)
        mask = (1 << width) - 1
        whole = low == 0 and name.startswith(("D", "tmp")) and kind is not None
        old = 0 if whole and width >= 32 else self.registers.get(name, 0)
        self.registers[name] = old & ~(mask << low) | bits << low

    # Expressions.
    def expression(self, live: bool, level: int = 0) -> Any:
        if level == len(PRECEDENCE):
            return self.unary(live)
        left = self.expression(live, level + 1)
        if PRECEDENCE[level] == "?":
            if not self.accept("?"):
                return left
            chosen = truth(left) if live else False
            a = self.expression(live and chosen)
            self.expect(":")
            b = self.expression(live and not chosen)
            return a if chosen else b
        while (
            self.tokens[self.at][0] == "sign"
            and LEVEL.get(self.tokens[self.at][1], self.tokens[self.at][1]) == PRECEDENCE[level]
        ):
            op = self.tokens[self.at][1]
            self.at += 1
            if op in ("&&", "||"):
                decided = live and truth(left) == (op == "||")
                right = self.expression(live and not decided, level + 1)
                left = as_value(truth(left) if decided else truth(right)) if live else left
            else:
                right = self.expression(live, level + 1)
                left = operate(op, left, right) if live else left
        return left

    def unary(self, live: bool) -> Any:
        if self.accept("!"):
            value = self.unary(live)
            return as_value(not truth(value))
        if self.accept("~"):
            value = self.unary(live)
            return integer(~value.value, value.width, value.signed)
        if self.accept("-"):
            value = self.unary(live)
            return integer(-value.value, value.width, value.signed) if isinstance(value, Int) else -value
        if self.accept("+"):
            return self.unary(live)
        return self.primary(live)

    def primary(self, live: bool) -> Any:
        kind, token = self.tokens[self.at]
        if kind == "number":
            self.at += 1
            return token
        if kind == "cast":
            return self.cast(live)
        if self.accept("("):
            value = self.expression(live)
            self.expect(")")
            return value
        if self.accept("{"):
            parts = [self.expression(live)]
            while self.accept(","):
                parts.append(self.expression(live))
            self.expect("}")
            bits = width = 0
            for part in parts:
                bits, width = bits << part.width | part.bits, width + part.width
            return integer(bits, width, False)
        if kind == "name" and self.tokens[self.at + 1] == ("sign", "("):
            return self.call(live)
        return self.load_if(live, self.place(live))

    def load_if(self, live: bool, place: Any) -> Any:
        return self.load(place) if live else Int(0)

    def cast(self, live: bool) -> Any:
        text = self.tokens[self.at][1]
        self.at += 2
        literal = self.tokens[self.at][0] == "number" and self.tokens[self.at + 1] == ("sign", ")")
        value = as_value(self.expression(live))
        self.expect(")")
        width, kind = int(text.split("'")[0]), text[-1]
        if kind == "F":
            return (
                float_of(value.bits, width) if literal and isinstance(value, Int) and value.value > 9 else number(value)
            )
        if isinstance(value, float):
            raise NotCoveredError("a float cast to an integer")
        return integer(value.value, width, kind == "I")

    def call(self, live: bool) -> Any:
        name = self.name()
        self.expect("(")
        arguments = [self.expression(live)]
        while self.accept(","):
            arguments.append(self.expression(live))
        self.expect(")")
        if not live:
            return Int(0)
        if name in self.lambdas:
            return self.call_lambda(name, arguments)
        if name == "exponent":
            return exponent(number(arguments[0]), self.double)
        if name in FUNCTIONS:
            return as_value(FUNCTIONS[name](*arguments))
        return self.instruction(name.upper(), arguments)

    def call_lambda(self, name: str, arguments: list[Value]) -> Any:
        parameters, body = self.lambdas[name]
        inner = Machine(self.definitions, dict(self.registers), self.lane)
        inner.tokens, inner.at = self.tokens, body + 1
        for parameter, value in zip(parameters, arguments, strict=True):
            inner.registers.pop(parameter, None)
            inner.locals[parameter] = value
        if not inner.peek("declare", "if"):
            return inner.expression(True)
        inner.block(True, (")",))
        return inner.returned

    def instruction(self, name: str, arguments: list[Value]) -> Value:
        """A definition that is used in another one, as a function."""
        if name not in self.definitions:
            raise NotCoveredError(name)
        match = re.search(r"_([fiu])(\d+)(?:_[a-z]\d+)?$", name.lower())
        if not match:
            raise NotCoveredError(name)
        kind, width = match[1], int(match[2])
        registers = {f"S{i}": raw(a, kind, width) for i, a in enumerate(arguments)}
        Machine(self.definitions, registers, self.lane).run(name)
        return typed(registers["D0"], kind, width)
