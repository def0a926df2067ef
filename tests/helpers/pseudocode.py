"""An evaluator of the pseudocode in which AMD's ISA documents define their instructions.

The pseudocode itself is not here: the test takes it from a package that ships it. One instruction is evaluated for one
lane, on Python integers and floats, so that it has nothing in common with the emulator that it judges.

    Machine(definitions, registers={"S0": 3, "S1": 4}).run("V_ADD_NC_U32")

Registers are integers of bits. `S0.f32` reads them as a float, `S0[4 : 0]` as a slice; floats are computed in double
precision and rounded where they are stored, which rounds +, -, *, / and sqrt correctly.
"""

from __future__ import annotations

from pseudocode_expressions import Expressions
from pseudocode_tokens import tokens_of
from pseudocode_values import Int, NotCoveredError, bits_of, fma, operate, truth

__all__ = ["Machine", "NotCoveredError", "bits_of", "fma"]


class Machine(Expressions):
    """Executes definitions for one lane, on `registers`: bits by name. Written registers are changed in place."""

    def run(self, name: str) -> None:
        """Executes the definition of an instruction."""
        self.tokens, self.at = tokens_of(self.definitions[name]), 0
        self.double = "_F64" in name
        self.block(True, ())
        if self.tokens[self.at][0] != "end":
            raise NotCoveredError(str(self.tokens[self.at]))

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
