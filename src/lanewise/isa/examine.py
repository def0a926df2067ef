"""Runs mutants beside the kernel that they were made of, and says what became of each.

A mutant that changes an output must be detected: by the check of the output, or by an error of the emulator. One that
changes none is explained (`equivalence`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np

from lanewise.errors import LanewiseError
from lanewise.isa import Program, UnsupportedInstruction, load, scalar, waits
from lanewise.isa.decode import Block
from lanewise.isa.equivalence import Reason, explain
from lanewise.isa.mutate import NOTHING, Mutant
from lanewise.isa.parse import EXEC, VCC, Instruction
from lanewise.isa.schedule import ORDERS

MOST = 50_000_000  # instructions of a launch's waves


class Executed(NamedTuple):
    """One run of a program on the launches of its cases.

    Attributes:
        outputs: of every case, copies of all memory that the program may write, as it left them.
        coverage: whether each instruction was executed.
        steps: instructions of waves that the longest launch took.
    """

    outputs: Sequence[Sequence[np.ndarray]]
    coverage: np.ndarray
    steps: int


class Trial(Protocol):
    """What programs are run on: cases, each with its launches and with a check that knows nothing of the program."""

    def run(self, program: Program, order: str, limit: int) -> Executed:
        """All launches, on fresh copies of their inputs, in `limit` instructions of waves each at most."""
        ...

    def passes(self, program: Program, order: str, limit: int, cases: Sequence[int]) -> bool:
        """Whether these cases pass with the program."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant.

    Attributes:
        mutant: the mutant.
        status: "value": the check of the outputs failed. "error": the emulator refused while it ran. "same": all
            outputs kept their bits in every order. "unreached": the cases never execute the instruction. "invalid":
            the text is no program. "missed": an output changed and nothing noticed.
        detail: the error, or why no output changed.
        reason: of a mutant that changes no output, in a word.
        order: the wave order that showed it.
    """

    mutant: Mutant
    status: Literal["value", "error", "same", "unreached", "invalid", "missed"]
    detail: str = ""
    reason: str = ""
    order: str = ""


class Examination:
    """Runs mutants of one kernel beside the kernel itself.

    Args:
        text: the assembly.
        trial: what they are run on.
        kernel: the kernel's name, where the text holds several.
        orders: the wave orders, tried until one shows the mutant.

    Raises:
        ValueError: the kernel as it is does not pass.
    """

    def __init__(self, text: str, trial: Trial, kernel: str | None = None, orders: Sequence[str] = ORDERS) -> None:
        self.text, self.trial, self.kernel = text, trial, kernel
        self.program = load(text, kernel)
        self.arch = self.program.arch
        self.right = {order: trial.run(self.program, order, MOST) for order in orders}
        failed = [order for order in orders if not self._passes(order, orders[0])]
        if failed:
            raise ValueError(f"{self.program.name} is wrong before it is mutated, in the orders {failed}")
        self.covered = np.any([executed.coverage for executed in self.right.values()], axis=0)
        self.limit = 10_000 + 20 * max(executed.steps for executed in self.right.values())

    def _passes(self, order: str, first: str) -> bool:
        """The kernel itself. Cases whose outputs are those of the first order are not checked again."""
        cases = range(len(self.right[order].outputs))
        if order != first:
            cases = changed(self.right[first], self.right[order])
        return self.trial.passes(self.program, order, MOST, cases)

    def examine(self, mutant: Mutant) -> Outcome:
        """Runs a mutant in all orders, until one shows it."""
        number = next(k for k, ins in enumerate(self.program.instructions) if ins.line == mutant.line)
        if not self.covered[number]:
            return Outcome(mutant, "unreached", why_unreached(self.program, self.covered, number))
        try:
            program = load(mutant.apply(self.text), self.kernel)
        except UnsupportedInstruction as error:
            return Outcome(mutant, "invalid", str(error))
        except LanewiseError as error:
            return Outcome(mutant, "error", f"{type(error).__name__}: {error}")
        different, order = "", ""
        try:
            for order, right in self.right.items():
                cases = changed(right, self.trial.run(program, order, self.limit))
                if cases and not self.trial.passes(program, order, self.limit, cases):
                    return Outcome(mutant, "value", "the outputs are not the reference's", order=order)
                different = different or (order if cases else "")
            if different:
                return Outcome(mutant, "missed", "an output changed and passes its check", order=different)
            reason = self.explain(mutant, program, number)
        except LanewiseError as error:
            return Outcome(mutant, "error", f"{type(error).__name__}: {error}", order=order)
        return Outcome(mutant, "same", reason.text, reason.kind)

    def explain(self, mutant: Mutant, program: Program, number: int) -> Reason:
        """Why a mutant, decoded, changes no output."""

        def run(observed: Program) -> None:
            self.trial.run(observed, "forward", self.limit)

        return explain(self.program, program, number, run, mutant.rule.alike, mutant.after == NOTHING)


def changed(right: Executed, other: Executed) -> list[int]:
    """The cases whose outputs do not have the same bits."""
    pairs = enumerate(zip(right.outputs, other.outputs, strict=True))
    return [k for k, (a, b) in pairs if [x.tobytes() for x in a] != [x.tobytes() for x in b]]


def why_unreached(program: Program, covered: np.ndarray, number: int) -> str:
    """Which branches keep all waves away from an instruction, and what decides them."""
    wanted = max(first for first in program.blocks if first <= number)
    todo, seen, branches = [wanted], {wanted}, []
    while todo:
        target = todo.pop()
        for first, block in program.blocks.items():
            if target not in waits.successors(block) or first in seen:
                continue
            if covered[first]:
                decided, ins = _decided_by(program, block), program.instructions[first + block.length - 1]
                jumps = f"line {ins.line}: {ins.text} {'never' if block.target == target else 'always'} jumps"
                branches.append(f"{jumps} ({decided.text})" if decided else jumps)
            else:
                seen.add(first)
                todo.append(first)
    return "no case executes it: " + ("; ".join(sorted(set(branches))) or "no other instruction leads there")


def _decided_by(program: Program, block: Block) -> Instruction | None:
    """The last instruction of a block that sets what its branch looks at."""
    register = {"scc": None, "vcc": VCC, "exe": EXEC}.get(block.condition[:3])
    for ins in reversed(program.instructions[block.first : block.first + block.length - 1]):
        first = ins.operands[0] if ins.operands else None
        if (
            scalar.writes_scc(ins.opcode)
            if register is None
            else first is not None and (first.kind, first.index) == ("s", register)
        ):
            return ins
    return None
