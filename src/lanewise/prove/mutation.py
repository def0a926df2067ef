"""What a mutant is run on: the cases of `lanewise prove`, or those of a spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
import torch

from lanewise import isa
from lanewise.audit.gate import FLOOR, relative_error
from lanewise.errors import LanewiseError
from lanewise.isa.mutate import Execute, Executed
from lanewise.prove import execute as execution
from lanewise.prove.cases import Case
from lanewise.prove.compile import compile_for
from lanewise.prove.launches import Configuration
from lanewise.target import Target


class StoppedError(LanewiseError):
    """Code that works on a kernel's outputs could not go on."""


class Recorded:
    """Stands for a program: runs it in at most `limit` steps, and keeps what every run leaves in memory."""

    def __init__(self, program: isa.Program, limit: int) -> None:
        self.program, self.limit = program, limit
        self.instructions = program.instructions
        self.outputs: list[np.ndarray] = []
        self.coverage = np.zeros(len(program.instructions), bool)
        self.steps = 0

    def run(self, grid: tuple[int, int, int], arguments: Sequence[Any], **how: Any) -> isa.Run:
        """As `Program.run`."""
        run = self.program.run(grid, arguments, limit=self.limit, **how)
        arrays = [a.array if isinstance(a, isa.Buffer) else a for a in arguments]
        self.outputs += [a.copy() for a in arrays if isinstance(a, np.ndarray)]
        self.coverage |= np.asarray(run.coverage, bool)
        self.steps = max(self.steps, run.steps)
        return run


def launched(cases: Sequence[Case], target: Target, attributes: bool = True) -> dict[Configuration, list[Case]]:
    """For every configuration of a kernel the cases that launch it and pass, those of the fewest kernels first."""
    found: dict[Configuration, list[Case]] = {}
    for case in sorted(cases, key=lambda case: len(case.kernels)):
        emulation = execution.Emulation(target, attributes)
        with execution.emulated(emulation):
            try:
                passed = all(gate.ok for gate in case.gates())
            except LanewiseError:
                passed = False
        for config in emulation.executed if passed else ():
            found.setdefault(config, []).append(case)
    return found


def on_cases(cases: Sequence[Case], target: Target, config: Configuration) -> Execute:
    """Runs cases with another program in the place of one of their kernels; the gates say whether it passes."""
    compiled = compile_for(config, target)

    def execute(program: isa.Program, order: str, limit: int) -> Executed:
        recorded, passed = Recorded(program, limit), True
        emulation = execution.Emulation(target, bool(config.attributes), order)
        instead = {(compiled.function, compiled.assembly): recorded}
        with mock.patch.dict(execution._programs, instead), execution.emulated(emulation):
            for case in cases:
                try:
                    passed = passed and all(gate.ok for gate in case.gates())
                except LanewiseError:
                    raise
                except Exception as error:
                    raise StoppedError(f"{type(error).__name__}: {error}") from error
        return Executed(recorded.outputs, passed, recorded.coverage, recorded.steps)

    return execute


def on_spec(cases: Sequence[Mapping[str, Any]]) -> Execute:
    """Runs the cases of a spec (`lanewise.prove.asm`)."""

    def execute(program: isa.Program, order: str, limit: int) -> Executed:
        recorded, passed = Recorded(program, limit), True
        for case in cases:
            arguments = [a.copy() if isinstance(a, np.ndarray) else a for a in case["arguments"]]
            waves = case["waves"] if "waves" in case else -(-case.get("threads", program.wave) // program.wave)
            recorded.run(tuple(case["grid"]), arguments, waves=waves, order=order, shared=case.get("shared"))
            for place, expected in case["expected"].items():
                error = relative_error(torch.as_tensor(arguments[place]), torch.as_tensor(np.asarray(expected)))
                passed = passed and error <= case.get("limit", FLOOR)
        return Executed(recorded.outputs, passed, recorded.coverage, recorded.steps)

    return execute
