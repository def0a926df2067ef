"""Running the waves of a grid: who is next, barriers, the step limit, coverage.

Orders: "lockstep" runs all waves at the smallest program counter together; "forward" and "reverse" run one wave at a
time, the first or the last that can run, up to its next barrier or its end; "random" switches between waves at random
blocks. Waves that never hear of one another (`meeting`) take such a turn together. Memory is sequentially consistent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lanewise.isa.errors import StepLimitError, UnsupportedInstruction
from lanewise.isa.meeting import teams
from lanewise.isa.memory import GUARD, PRIVATE, SWIZZLED, Memory, Space
from lanewise.isa.parse import EXEC, TTMP, VCC
from lanewise.isa.races import Shadow
from lanewise.isa.state import I64, POISON, U, Waves

if TYPE_CHECKING:
    from lanewise.isa.decode import Block
    from lanewise.isa.program import Program

ORDERS = ("lockstep", "forward", "reverse", "random")


class Machine:
    """What the waves of one run share."""

    def __init__(
        self, program: Program, grid: tuple[int, int, int], waves: int, lds_bytes: int, memory: Memory
    ) -> None:
        groups = grid[0] * grid[1] * grid[2]
        self.group = np.repeat(np.arange(groups, dtype=I64), waves)
        self.memory, self.space = memory, memory.build(self.group)
        self.lds_bytes, self.lds_stride = lds_bytes, -(-lds_bytes // 16) * 16
        shared = groups * self.lds_stride
        watch = Shadow(self.group, "LDS", GUARD) if waves > 1 and lds_bytes else None
        self.lds = Space(shared, watch)
        self.lds.views[U][...] = POISON
        self.scratch_bytes = -(-program.descriptor.get("private_segment_fixed_size", 0) // 16) * 16
        self.scratch = Space(len(self.group) * program.wave * self.scratch_bytes)
        self.scratch.views[U][...] = POISON

    def barrier(self, groups: np.ndarray) -> None:
        """All waves of these workgroups have arrived."""
        for shadow in (self.lds.shadow, self.space.shadow):
            if shadow is not None:
                shadow.epoch[groups] += 1

    def check_races(self) -> None:
        """Raises RaceError."""
        for shadow in (self.lds.shadow, self.space.shadow):
            if shadow is not None:
                shadow.check()


class Schedule:
    """One run of a program.

    Attributes:
        steps: instructions issued; wave_instructions: summed over the waves they were issued for.
        coverage: bool, an instruction of the program each.
    """

    def __init__(self, program: Program, machine: Machine, limit: int) -> None:
        self.program, self.machine, self.limit = program, machine, limit
        self.steps = self.wave_instructions = 0
        self.coverage = np.zeros(len(program.instructions), bool)
        self.home = self._waves(len(machine.group))
        count = self.home.count
        self.home.number, self.home.group = np.arange(count), machine.group
        self.at = np.zeros(count, I64)
        self.done, self.waiting = np.zeros(count, bool), np.zeros(count, bool)
        waves = int(np.count_nonzero(machine.group == machine.group[0]))
        self.team = teams(program.meeting, waves, count)

    def _waves(self, count: int) -> Waves:
        pool = self.program.pool
        if count not in pool:
            pool[count] = Waves(self.program.layout, count)
        waves = pool[count]
        waves.machine, waves.write = self.machine, None
        return waves

    def prepare(self, grid: tuple[int, int, int], arguments: int) -> None:
        """Registers as the hardware hands them over; all others are poisoned."""
        home, program = self.home, self.program
        d, lanes = program.descriptor, program.wave
        home.vectors[...] = POISON
        home.scalars[...] = POISON
        home.masks.clear()
        home.scc[...] = False
        home.scalars[:, EXEC], home.scalars[:, EXEC + 1] = 0xFFFFFFFF, 0xFFFFFFFF if lanes == 64 else 0
        home.exec_changed()
        group = self.machine.group
        ids = group % grid[0], group // grid[0] % grid[1], group // (grid[0] * grid[1])
        wave = home.number % (home.count // max(grid[0] * grid[1] * grid[2], 1)) if home.count else home.number
        home.u[0][...] = wave[:, None] * lanes + np.arange(lanes)
        k = 4 * d.get("user_sgpr_private_segment_buffer", 0) + 2 * d.get("user_sgpr_dispatch_ptr", 0)
        k += 2 * d.get("user_sgpr_queue_ptr", 0)
        # Arguments that may be preloaded are loaded by the code before the first label, which runs where the firmware
        # does not preload; so it does here.
        if not d.get("user_sgpr_kernarg_segment_ptr", 1):
            raise UnsupportedInstruction("how the kernel gets its arguments")
        home.scalars[:, k], home.scalars[:, k + 1] = arguments & 0xFFFFFFFF, arguments >> 32
        if program.layout.generation >= 12:
            home.scalars[:, TTMP + 9], home.scalars[:, TTMP + 7] = ids[0], ids[1] | ids[2] << 16
            home.scalars[:, TTMP + 8] = wave << 25
            return
        private = d.get("user_sgpr_private_segment_buffer", 0) and self.machine.scratch_bytes
        if private:
            home.scalars[:, 0], home.scalars[:, 1] = PRIVATE & 0xFFFFFFFF, U(PRIVATE >> 32) | SWIZZLED
        k = d["user_sgpr_count"]
        for axis, number in zip("xyz", ids, strict=True):
            if d.get(f"system_sgpr_workgroup_id_{axis}", axis == "x"):
                home.scalars[:, k] = number
                k += 1
        if private:
            home.scalars[:, k] = home.number * lanes * self.machine.scratch_bytes

    def run(self, order: str, seed: int) -> None:
        """Until all waves have ended."""
        if order not in ORDERS:
            raise ValueError(f"order {order!r}: expected one of {', '.join(ORDERS)}")
        generator = np.random.default_rng(seed)
        with np.errstate(all="ignore"):
            while True:
                ready = ~(self.done | self.waiting)
                if not ready.any():
                    if self.done.all():
                        return
                    self._release()
                elif order == "lockstep":
                    self._together(ready)
                elif order == "random":
                    self._turn(generator.choice(np.unique(self.team[ready])), int(generator.integers(1, 9)))
                else:
                    able = self.team[ready]
                    self._turn(able.min() if order == "forward" else able.max(), 0)

    def _release(self) -> None:
        self.machine.barrier(np.unique(self.machine.group[self.waiting]))
        self.waiting[:] = False

    def _turn(self, team: int, blocks: int) -> None:
        """The waves of a team, for some blocks (0: up to a barrier or their end)."""
        members = self.team == team
        if np.count_nonzero(members) == 1:
            self._alone(int(np.argmax(members)), blocks)
            return
        done = 0
        while (ready := members & ~(self.done | self.waiting)).any() and (not blocks or done < blocks):
            self._together(ready)
            done += 1

    def _together(self, ready: np.ndarray) -> None:
        first = int(self.at[ready].min())
        chosen = ready & (self.at == first)
        block = self.program.blocks[first]
        if chosen.all():
            self._run_block(block, self.home, slice(None))
            return
        numbers = np.flatnonzero(chosen)
        few = self._waves(len(numbers))
        self._copy_in(few, numbers, block.rows)
        self._run_block(block, few, numbers)
        self._copy_out(few, numbers, block.rows)

    def _alone(self, number: int, blocks: int) -> None:
        """One wave, for some blocks (0: up to a barrier or its end)."""
        numbers = np.array([number])
        one, everything = self._waves(1), slice(0, self.program.layout.temporary)
        if self.home.count == 1:
            one = self.home
        else:
            self._copy_in(one, numbers, everything)
        done = 0
        while not (self.done[number] or self.waiting[number]) and (not blocks or done < blocks):
            self._run_block(self.program.blocks[int(self.at[number])], one, numbers)
            done += 1
        if one is not self.home:
            self._copy_out(one, numbers, everything)

    def _copy_in(self, few: Waves, numbers: np.ndarray, rows: Any) -> None:
        home = self.home
        few.number, few.group = numbers, self.machine.group[numbers]
        if isinstance(rows, slice):
            few.vectors[rows] = home.vectors[rows, numbers]
        else:
            few.vectors[rows] = home.vectors[rows[:, None], numbers]
        few.scalars[...] = home.scalars[numbers]
        few.masks.clear()
        few.scc[...] = home.scc[numbers]
        few.active = home.active[numbers]
        few.full = bool(few.active.all())

    def _copy_out(self, few: Waves, numbers: np.ndarray, rows: Any) -> None:
        home = self.home
        if isinstance(rows, slice):
            home.vectors[rows, numbers] = few.vectors[rows]
        else:
            home.vectors[rows[:, None], numbers] = few.vectors[rows]
        home.scalars[numbers] = few.scalars
        home.masks.clear()
        home.scc[numbers] = few.scc
        active = home.active.copy()  # the race detector keeps the one before
        active[numbers] = few.active
        home.active, home.full = active, bool(active.all())

    def _run_block(self, block: Block, waves: Waves, numbers: Any) -> None:
        self.steps += block.length
        self.wave_instructions += block.length * waves.count
        if self.wave_instructions > self.limit:
            raise StepLimitError(f"{self.program.name}: more than {self.limit} instructions of waves")
        self.coverage[block.first : block.first + block.length] = True
        for instruction in block.body:
            instruction(waves)
        after = block.first + block.length
        if block.ending == "branch":
            self.at[numbers] = np.where(_condition(block.condition, waves), block.target, after)
        elif block.ending == "end":
            self.done[numbers] = True
        else:
            self.at[numbers] = after
            if block.ending == "barrier":
                self.waiting[numbers] = True


def _condition(name: str, waves: Waves) -> Any:
    if not name:
        return True
    if name.startswith("scc"):
        return waves.scc == (name == "scc1")
    some = waves.any_lane(EXEC if name.startswith("exec") else VCC)
    return some if name.endswith("nz") else ~some
