"""Expressions of the pseudocode, and the places that they read: registers, their slices, and locals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pseudocode_tokens import Reader
from pseudocode_values import (
    CONSTANTS,
    DENORMAL_F32,
    DENORMAL_F64,
    FLAGS,
    FUNCTIONS,
    Int,
    NotCoveredError,
    Value,
    as_value,
    bits_of,
    exponent,
    float_of,
    integer,
    number,
    operate,
    raw,
    truth,
    typed,
)

PRECEDENCE = ["?", "||", "&&", "|", "^", "&", "==", "<", "<<", "+", "*", "**"]
LEVEL = {
    **dict.fromkeys(("==", "!=", "<>"), "=="),
    **dict.fromkeys(("<", "<=", ">", ">="), "<"),
    **dict.fromkeys(("<<", ">>"), "<<"),
    **dict.fromkeys(("+", "-"), "+"),
    **dict.fromkeys(("*", "/", "%"), "*"),
}


class Expressions(Reader):
    """Evaluates for one lane, on `registers`: bits by name. Both sides of every decision are parsed; `live` says
    whether they take effect."""

    def __init__(self, definitions: Mapping[str, str], registers: dict[str, int], lane: int = 0) -> None:
        self.definitions, self.registers, self.lane = definitions, registers, lane
        self.locals: dict[str, Any] = {"laneId": Int(lane, 32, False)}
        self.arrays: dict[str, int] = {}  # bits of an element
        self.lambdas: dict[str, tuple[list[str], int]] = {}  # parameters, and where the body is
        self.broken = False
        self.returned: Any = None
        self.double = False

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
        inner = type(self)(self.definitions, dict(self.registers), self.lane)
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
        type(self)(self.definitions, registers, self.lane).run(name)
        return typed(registers["D0"], kind, width)
