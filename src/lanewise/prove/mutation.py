"""What mutants are run on: the cases of `lanewise prove`, or those of a spec.

A mutant runs on the launches of its kernel that the cases make, recorded once. Only where it leaves other bits than
the kernel does, the cases themselves run with it, for their gates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch

from lanewise import isa
from lanewise.audit.gate import FLOOR, relative_error
from lanewise.errors import LanewiseError
from lanewise.isa.examine import MOST, Executed
from lanewise.isa.parse import Instruction
from lanewise.prove import execute as execution
from lanewise.prove.cases import Case
from lanewise.prove.compile import Compiled, compile_for
from lanewise.prove.launches import Configuration
from lanewise.target import Target


class StoppedError(LanewiseError):
    """Code that works on a kernel's outputs could not go on."""


@dataclass(frozen=True)
class Launch:
    """One launch: its grid, its arguments as they were before it, how (`Program.run`), and what else lay in memory,
    (address, bytes)."""

    grid: tuple[int, int, int]
    arguments: Sequence[Any]
    how: Mapping[str, Any]
    placed: Sequence[tuple[int, np.ndarray]] = ()

    def run(self, program: isa.Program, order: str, limit: int) -> tuple[isa.Run, list[np.ndarray]]:
        """With a program, on copies; what it leaves in the arrays."""
        arguments, others, memory = copies(self.arguments), [data.copy() for _, data in self.placed], isa.Memory()
        for (address, _), data in zip(self.placed, others, strict=True):
            memory.place(data, address)
        how = {**self.how, "memory": memory, "order": order, "limit": limit}
        run = program.run(self.grid, arguments, **how)
        return run, [*(array for array in map(_array, arguments) if array is not None), *others]


def _array(argument: Any) -> np.ndarray | None:
    array = argument.array if isinstance(argument, isa.Buffer) else argument
    return array if isinstance(array, np.ndarray) else None


def copies(arguments: Sequence[Any]) -> list[Any]:
    """The same arguments, whose arrays a kernel may write into; what was one array stays one."""
    made = {_memory(array): array.copy() for array in map(_array, arguments) if array is not None}

    def copied(argument: Any) -> Any:
        array = _array(argument)
        if array is None:
            return argument
        copy = made[_memory(array)]
        return isa.Buffer(copy, argument.address, argument.start) if isinstance(argument, isa.Buffer) else copy

    return [copied(argument) for argument in arguments]


def _memory(array: np.ndarray) -> tuple[int, int]:
    """Where an array lies, and how long it is: several objects may be the same one."""
    return array.__array_interface__["data"][0], array.nbytes


@dataclass
class Recorder:
    """Stands for a program: keeps the launches that are made of it, and stops each after `limit` instructions."""

    program: isa.Program
    limit: int = MOST
    launches: list[Launch] = field(default_factory=list)

    @property
    def instructions(self) -> list[Instruction]:
        """The program's."""
        return self.program.instructions

    def order_matters(self, grid: Sequence[int], waves: int) -> bool:
        """As `Program.order_matters`."""
        return self.program.order_matters(grid, waves)

    def run(self, grid: tuple[int, int, int], arguments: Sequence[Any], **how: Any) -> isa.Run:
        """As `Program.run`."""
        memory = how.pop("memory", None) or isa.Memory()
        placed = [(address, data.copy()) for address, data in memory.placed]
        self.launches.append(Launch(grid, copies(arguments), how, placed))
        return self.program.run(grid, arguments, limit=self.limit, memory=memory, **how)


def execute_launches(program: isa.Program, launches: Sequence[Sequence[Launch]], order: str, limit: int) -> Executed:
    """The launches of every case, with a program."""
    outputs, coverage, steps = [], np.zeros(len(program.instructions), bool), 0
    for case in launches:
        left: list[np.ndarray] = []
        for launch in case:
            run, arrays = launch.run(program, order, limit)
            left += arrays
            coverage |= np.asarray(run.coverage, bool)
            steps = max(steps, run.wave_instructions)
        outputs.append(left)
    return Executed(outputs, coverage, steps)


@dataclass(frozen=True)
class Launching:
    """A case that launches a configuration and passes: the launches, and which instructions they reached."""

    case: Case
    launches: Sequence[Launch]
    reached: np.ndarray


def launched(cases: Sequence[Case], target: Target, attributes: bool = True) -> dict[Configuration, list[Launching]]:
    """For every configuration that is launched the cases that do and pass, those of the fewest kernels first."""
    found: dict[Configuration, list[Launching]] = {}
    recorders: dict[tuple[str, str], Recorder] = {}

    def load(compiled: Compiled) -> Recorder:
        key = (compiled.function, compiled.assembly)
        if key not in recorders:
            recorders[key] = Recorder(isa.load(compiled.assembly, compiled.function))
        return recorders[key]

    for case in sorted(cases, key=lambda case: len(case.kernels)):
        for recorder in recorders.values():
            recorder.launches = []
        emulation = execution.Emulation(target, attributes)
        with mock.patch.object(execution, "load", load), execution.emulated(emulation):
            try:
                passed = all(gate.ok for gate in case.gates())
            except LanewiseError:
                passed = False
        for config, done in emulation.executed.items() if passed else ():
            launches = load(done.compiled).launches
            found.setdefault(config, []).append(Launching(case, launches, done.reached))
    return found


def chosen(launching: Sequence[Launching], most: int) -> list[Launching]:
    """The first `most`, and of the others those that reach an instruction that the ones before do not."""
    kept, reached = [], np.zeros_like(launching[0].reached)
    for one in launching:
        if len(kept) < most or (one.reached & ~reached).any():
            kept.append(one)
            reached |= one.reached
    return kept


class OnCases:
    """Cases of `lanewise prove` with another program in the place of one of their kernels; their gates decide.

    Args:
        launching: the cases with their launches of the configuration.
        target: an AMD target.
        config: of the kernel that is replaced.
    """

    def __init__(self, launching: Sequence[Launching], target: Target, config: Configuration) -> None:
        self.launching, self.target, self.config = launching, target, config
        self.compiled = compile_for(config, target)

    def run(self, program: isa.Program, order: str, limit: int) -> Executed:
        """The recorded launches."""
        return execute_launches(program, [one.launches for one in self.launching], order, limit)

    def passes(self, program: isa.Program, order: str, limit: int, cases: Sequence[int]) -> bool:
        """The cases, from end to end."""
        emulation = execution.Emulation(self.target, bool(self.config.attributes), order)
        instead = {(self.compiled.function, self.compiled.assembly): Recorder(program, limit)}
        with mock.patch.dict(execution._programs, instead), execution.emulated(emulation):
            for case in cases:
                try:
                    if not all(gate.ok for gate in self.launching[case].case.gates()):
                        return False
                except LanewiseError:
                    raise
                except Exception as error:
                    raise StoppedError(f"{type(error).__name__}: {error}") from error
        return True


class OnSpec:
    """The cases of a spec (`lanewise.prove.asm`), whose expected arrays decide. A case is one launch."""

    def __init__(self, cases: Sequence[Mapping[str, Any]]) -> None:
        self.cases = cases

    def launch(self, case: Mapping[str, Any], wave: int) -> Launch:
        """A case's launch, for waves of so many lanes."""
        waves = case["waves"] if "waves" in case else -(-case.get("threads", wave) // wave)
        return Launch(tuple(case["grid"]), case["arguments"], {"waves": waves, "shared": case.get("shared")})

    def run(self, program: isa.Program, order: str, limit: int) -> Executed:
        """All launches."""
        return execute_launches(program, [[self.launch(case, program.wave)] for case in self.cases], order, limit)

    def passes(self, program: isa.Program, order: str, limit: int, cases: Sequence[int]) -> bool:
        """Each case's arrays against the expected ones."""
        for case in (self.cases[k] for k in cases):
            launch = self.launch(case, program.wave)
            _, left = launch.run(program, order, limit)
            arrays = iter(left)
            places = {k: next(arrays) for k, a in enumerate(launch.arguments) if _array(a) is not None}
            for place, expected in case["expected"].items():
                error = relative_error(torch.as_tensor(places[place]), torch.as_tensor(np.asarray(expected)))
                if not error <= case.get("limit", FLOOR):
                    return False
        return True
