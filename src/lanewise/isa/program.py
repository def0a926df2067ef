"""A decoded kernel, and how to run it."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lanewise.isa import parse, waits
from lanewise.isa.arguments import pack
from lanewise.isa.decode import Block, blocks, decode, operands
from lanewise.isa.errors import UnsupportedInstruction
from lanewise.isa.meeting import Meeting, meeting, teams
from lanewise.isa.memory import Memory
from lanewise.isa.parse import Argument, Instruction, Kernel
from lanewise.isa.schedule import Machine, Schedule
from lanewise.isa.state import Layout, Waves

Function = Callable[[Waves], None]


@dataclass
class Run:
    """What one run did.

    Attributes:
        steps: instructions issued, for one or several waves at once.
        wave_instructions: summed over those waves.
        coverage: bool, one an instruction of the program: has it been executed?
        seconds: of the processor, for the run itself.
    """

    steps: int
    wave_instructions: int
    coverage: np.ndarray
    seconds: float


@dataclass
class Program:
    """One kernel, decoded.

    Attributes:
        name, arch, wave: of the kernel; lanes of a wave.
        registers: "vgpr", "agpr", "sgpr" as the metadata states them.
        lds: bytes of LDS that the kernel asks for by itself; the launcher may add to it (`shared`).
        spills: registers spilled.
        instructions: in the order of the text, with .line, .text and .opcode.
        arguments: offset, size and kind of the kernel's arguments.
        meeting: which waves can tell the order in which they run.
    """

    name: str
    arch: str
    wave: int
    registers: dict[str, int]
    lds: int
    spills: int
    instructions: list[Instruction]
    arguments: list[Argument]
    descriptor: dict[str, int]
    layout: Layout
    blocks: dict[int, Block]
    meeting: Meeting
    pool: dict[int, Waves] = field(default_factory=dict)
    waits_checked: bool = False

    def run(
        self,
        grid: Sequence[int],
        arguments: Sequence[Any],
        *,
        waves: int = 1,
        order: str = "lockstep",
        seed: int = 0,
        shared: int | None = None,
        limit: int = 50_000_000,
        memory: Memory | None = None,
    ) -> Run:
        """Execute the kernel on a grid of workgroups.

        Args:
            grid: workgroups along x, y, z; shorter ones are filled with 1.
            arguments: in the kernel's order: numpy arrays (written in place) or None for a null pointer, `Buffer`s,
                ints and floats. Those that the compiler appends are filled in.
            waves: of a workgroup.
            order: "lockstep", "forward", "reverse" or "random".
            seed: of the random order.
            shared: bytes of LDS of a workgroup; None takes the kernel's own.
            limit: instructions, summed over waves.
            memory: buffers beside the arguments.

        Raises:
            MemoryFault, RaceError, StepLimitError, WaitError: what the program did wrong.
            UnsupportedInstruction: a use of an instruction that is not modelled.
            InputError: arguments that do not fit the kernel's.
        """
        x, y, z, *_ = (*(int(n) for n in grid), 1, 1)
        size = (x, y, z)
        if not self.waits_checked:
            waits.check(self)
            self.waits_checked = True
        memory = memory or Memory()
        packed = pack(self, arguments, memory, size, waves)
        where = memory.place(packed)
        if 0 in size:
            return Run(0, 0, np.zeros(len(self.instructions), bool), 0.0)
        machine = Machine(self, size, waves, max(self.lds, shared or 0), memory)
        schedule = Schedule(self, machine, limit)
        schedule.prepare(size, where)
        start = time.process_time()
        collects = gc.isenabled()
        gc.disable()  # the race detector's many small records hold no cycles
        try:
            schedule.run(order, seed)
            machine.check_races()
        finally:
            if collects:
                gc.enable()
        seconds = time.process_time() - start
        memory.write_back()
        return Run(schedule.steps, schedule.wave_instructions, schedule.coverage, seconds)

    def observed(self, before: Mapping[int, Function], after: Mapping[int, Function]) -> Program:
        """The same program, which hands its waves to a function before and after instructions, by their number; one by
        one, in orders of waves."""
        observed = {}
        for first, block in self.blocks.items():
            body: list[Function | None] = []
            for number in range(first, first + block.length):
                decoded = decode(self.instructions[number], self.layout)
                body += [before.get(number), decoded, after.get(number)]
            observed[first] = replace(block, body=[function for function in body if function])
        return replace(self, blocks=observed, meeting="grid", pool={})

    def order_matters(self, grid: Sequence[int], waves: int) -> bool:
        """Whether some wave of a launch can tell in which order they run. Where none can, all orders are one."""
        return int(teams(self.meeting, waves, waves * math.prod(grid)).max(initial=0)) > 0


def load(text: str, kernel: str | None = None) -> Program:
    """Decode one kernel of an assembly file, all of it.

    Args:
        text: what LLVM emits for an AMD target.
        kernel: its name; None where the file has one.

    Raises:
        UnsupportedInstruction: with the line's number and text.
    """
    parsed = parse.kernel(text, kernel)
    layout = _layout(parsed)
    _check_mode(parsed, packed=layout.generation != 10)
    lines = blocks(parsed.instructions, layout)
    numbers, d = parsed.metadata, parsed.descriptor
    registers = {
        "vgpr": numbers.get("vgpr_count", d.get("next_free_vgpr", 0)),
        "agpr": numbers.get("agpr_count", 0),
        "sgpr": numbers.get("sgpr_count", d.get("next_free_sgpr", 0)),
    }
    spills = numbers.get("vgpr_spill_count", 0) + numbers.get("sgpr_spill_count", 0)
    return Program(
        parsed.name, parsed.arch, parsed.wave, registers, d.get("group_segment_fixed_size", 0), spills,
        parsed.instructions, parsed.arguments, d, layout, lines, meeting(parsed.instructions),
    )  # fmt: skip


def _check_mode(parsed: Kernel, packed: bool) -> None:
    """packed: a thread's three numbers stand in one register, which holds the first where the others are 0."""
    d = parsed.descriptor
    if d.get("float_denorm_mode_32", 3) != 3 or d.get("float_round_mode_32", 0):
        raise UnsupportedInstruction("a float mode other than round to nearest with denormals")
    if d.get("system_vgpr_workitem_id", 0) and not packed:
        raise UnsupportedInstruction("workgroups of more than one dimension")
    if d.get("system_sgpr_workgroup_info", 0):
        raise UnsupportedInstruction("a register that holds what the hardware says of the workgroup")


def _layout(parsed: Kernel) -> Layout:
    last = {"v": 0, "a": -1}
    for ins in parsed.instructions:
        for o in operands(ins):
            if o.kind in last:
                last[o.kind] = max(last[o.kind], o.index + o.count - 1)
    return Layout(last["v"] + 1, last["a"] + 1, parsed.wave, parsed.arch)
