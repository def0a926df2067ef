"""A decoded kernel, and how to run it."""

from __future__ import annotations

import gc
import re
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lanewise.errors import InputError
from lanewise.isa import access, crosslane, lds, matrix, parse, scalar, vector, waits
from lanewise.isa.errors import UnsupportedInstruction
from lanewise.isa.memory import Buffer, Memory
from lanewise.isa.parse import Argument, Instruction, Kernel, Operand
from lanewise.isa.schedule import Machine, Schedule
from lanewise.isa.state import Layout, Waves

Run_ = Callable[[Waves], None]
NOTHING = re.compile(
    r"s_(waitcnt\w*|wait_\w+|delay_alu|clause|nop|barrier_signal|setprio|inst_prefetch|set_inst_prefetch_distance|sleep"
    r"|code_end)|buffer_(gl[01]_inv|inv|wbl2|wbinvl1\w*)|global_(inv|wb|wbinv)"
)
BARRIERS = ("s_barrier", "s_barrier_wait")


@dataclass
class Block:
    """Straight-line code: `body` are its instructions as functions, `ending` what follows ("next", "branch",
    "barrier", "end"); rows: vector rows that it touches, int [..]."""

    first: int
    length: int
    body: list[Run_]
    ending: str
    condition: str = ""
    target: int = -1
    rows: Any = None


@dataclass
class Run:
    """What one run did.

    Attributes:
        steps: instructions issued, for one or several waves at once.
        wave_instructions: summed over those waves.
        coverage: bool, one an instruction of the program: has it been executed?
        seconds: of the run itself.
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
        packed = self._pack(arguments, memory, size, waves)
        where = memory.place(packed)
        if 0 in size:
            return Run(0, 0, np.zeros(len(self.instructions), bool), 0.0)
        machine = Machine(self, size, waves, max(self.lds, shared or 0), memory)
        schedule = Schedule(self, machine, limit)
        schedule.prepare(size, where)
        start = time.perf_counter()
        collects = gc.isenabled()
        gc.disable()  # the race detector's many small records hold no cycles
        try:
            schedule.run(order, seed)
            machine.check_races()
        finally:
            if collects:
                gc.enable()
        seconds = time.perf_counter() - start
        memory.write_back()
        return Run(schedule.steps, schedule.wave_instructions, schedule.coverage, seconds)

    def observed(self, before: Mapping[int, Run_], after: Mapping[int, Run_]) -> Program:
        """The same program, which hands its waves to a function before and after instructions, by their number."""
        blocks = {}
        for first, block in self.blocks.items():
            body: list[Run_ | None] = []
            for number in range(first, first + block.length):
                decoded = _decode(self.instructions[number], self.layout)
                body += [before.get(number), decoded, after.get(number)]
            blocks[first] = replace(block, body=[function for function in body if function])
        return replace(self, blocks=blocks, pool={})

    def _pack(self, given: Sequence[Any], memory: Memory, grid: tuple[int, ...], waves: int) -> np.ndarray:
        """The kernel argument segment, uint8."""
        size = max([a.offset + a.size for a in self.arguments] + [self.descriptor.get("kernarg_size", 0), 8])
        packed = np.zeros(size, np.uint8)
        visible = [a for a in self.arguments if not a.kind.startswith("hidden")]
        if not self.arguments:
            raise InputError("kernel", got="no metadata", expected="an .amdgpu_metadata section with its arguments")
        if len(given) > len(visible):
            raise InputError("arguments", got=len(given), expected=f"at most {len(visible)}")
        if any(a.kind == "by_value" for a in visible[len(given) :]):  # pointers that a compiler appends may stay null
            raise InputError("arguments", got=len(given), expected=f"the kernel's {len(visible)}")
        placed: dict[tuple[int, int], int] = {}
        for argument, value in zip(visible, given, strict=False):
            encoded = _encode(argument, value, memory, placed)
            packed[argument.offset : argument.offset + argument.size] = np.frombuffer(encoded, np.uint8)
        hidden = {
            "hidden_group_size_x": waves * self.wave, "hidden_group_size_y": 1, "hidden_group_size_z": 1,
            "hidden_grid_dims": 3 if grid[2] > 1 else 2 if grid[1] > 1 else 1,
            **{f"hidden_block_count_{axis}": n for axis, n in zip("xyz", grid, strict=True)},
        }  # fmt: skip
        for argument in self.arguments:
            if argument.kind in hidden:
                encoded = int(hidden[argument.kind]).to_bytes(argument.size, "little")
                packed[argument.offset : argument.offset + argument.size] = np.frombuffer(encoded, np.uint8)
        packed.flags.writeable = False
        return packed


def _encode(argument: Argument, value: Any, memory: Memory, placed: dict[tuple[int, int], int]) -> bytes:
    if argument.kind == "global_buffer":
        if value is None:
            return bytes(argument.size)
        buffer = value if isinstance(value, Buffer) else Buffer(value)
        array = buffer.array
        if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
            raise InputError("arguments", got=type(array).__name__, expected="a contiguous numpy array")
        key = array.__array_interface__["data"][0], array.nbytes
        if key not in placed:
            placed[key] = memory.place(array.reshape(-1).view(np.uint8), buffer.address)
        address = placed[key] + buffer.start * array.itemsize
        return (address & (1 << 64) - 1).to_bytes(argument.size, "little")
    if isinstance(value, (float, np.floating)):
        return struct.pack("<f" if argument.size == 4 else "<d", value)
    return (int(value) & (1 << 8 * argument.size) - 1).to_bytes(argument.size, "little")


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
    blocks = _blocks(parsed.instructions, layout)
    numbers, d = parsed.metadata, parsed.descriptor
    registers = {
        "vgpr": numbers.get("vgpr_count", d.get("next_free_vgpr", 0)),
        "agpr": numbers.get("agpr_count", 0),
        "sgpr": numbers.get("sgpr_count", d.get("next_free_sgpr", 0)),
    }
    spills = numbers.get("vgpr_spill_count", 0) + numbers.get("sgpr_spill_count", 0)
    return Program(
        parsed.name, parsed.arch, parsed.wave, registers, d.get("group_segment_fixed_size", 0), spills,
        parsed.instructions, parsed.arguments, d, layout, blocks,
    )  # fmt: skip


def _check_mode(parsed: Kernel, packed: bool) -> None:
    """packed: a thread's three numbers stand in one register, which holds the first where the others are 0."""
    d = parsed.descriptor
    if d.get("float_denorm_mode_32", 3) != 3 or d.get("float_round_mode_32", 0):
        raise UnsupportedInstruction("a float mode other than round to nearest with denormals")
    if d.get("system_vgpr_workitem_id", 0) and not packed:
        raise UnsupportedInstruction("workgroups of more than one dimension")
    if d.get("user_sgpr_private_segment_buffer", 0) and d.get("private_segment_fixed_size", 0):
        raise UnsupportedInstruction("spills through a buffer (before gfx942, and on gfx10); scratch_* are modelled")


def _operands(ins: Instruction) -> list[Operand]:
    return ins.operands + (ins.second.operands if ins.second else [])


def _layout(parsed: Kernel) -> Layout:
    last = {"v": 0, "a": -1}
    for ins in parsed.instructions:
        for o in _operands(ins):
            if o.kind in last:
                last[o.kind] = max(last[o.kind], o.index + o.count - 1)
    return Layout(last["v"] + 1, last["a"] + 1, parsed.wave, parsed.arch)


def _blocks(instructions: list[Instruction], layout: Layout) -> dict[int, Block]:
    """Every straight line by its first instruction."""
    starts = {0}
    for k, ins in enumerate(instructions):
        if ins.target >= 0:
            starts |= {ins.target, k + 1}
        elif ins.opcode in BARRIERS or ins.opcode == "s_endpgm":
            starts.add(k + 1)
    order = sorted(start for start in starts if start < len(instructions))
    blocks = {}
    for first, after in zip(order, [*order[1:], len(instructions)], strict=True):
        lines = instructions[first:after]
        block = Block(first, len(lines), [], "next")
        rows: set[int] = set()
        scalar.mark_dead_scc(lines)
        for ins in lines:
            function = _decode(ins, layout)
            if function is not None:
                block.body.append(function)
            for o in _operands(ins):
                if o.kind in "va":
                    rows.update(range(layout.row(o), layout.row(o) + o.count))
        block.rows = np.array(sorted(rows), np.int64)
        last = lines[-1]
        if last.target >= 0:
            block.ending, block.target = "branch", last.target
            block.condition = last.opcode.removeprefix("s_branch").removeprefix("s_cbranch_")
        elif last.opcode in BARRIERS:
            block.ending = "barrier"
        elif last.opcode == "s_endpgm":
            block.ending = "end"
        blocks[first] = block
    return blocks


def _decode(ins: Instruction, layout: Layout) -> Run_ | None:
    """The function of an instruction, or None where it does nothing by itself."""
    try:
        if ins.second is not None:
            return _pair(ins, ins.second, layout)
        return _single(ins, layout)
    except UnsupportedInstruction as error:
        raise UnsupportedInstruction(f"line {ins.line}: {ins.text}: {error}") from None


def _single(ins: Instruction, layout: Layout) -> Run_ | None:
    name = ins.opcode
    if name in BARRIERS or name == "s_endpgm" or NOTHING.fullmatch(name):
        return None
    if name == "s_sendmsg":
        if "MSG_DEALLOC_VGPRS" not in ins.modifiers["rest"]:
            raise UnsupportedInstruction("message")
        return None
    if ins.target >= 0:
        if not re.fullmatch(r"s_branch|s_cbranch_(execz|execnz|vccz|vccnz|scc0|scc1)", name):
            raise UnsupportedInstruction("branch")
        return None
    copy = Instruction(ins.line, ins.text, name, ins.form, list(ins.operands), dict(ins.modifiers))
    copy.scc_dead = ins.scc_dead
    function = _decoder(copy)(copy, layout)
    if copy.modifiers:
        raise UnsupportedInstruction(f"modifier {' '.join(copy.modifiers)}")
    return function


def _decoder(ins: Instruction) -> Callable[[Instruction, Layout], Run_]:
    """Which part of the package knows the opcode."""
    name = ins.opcode
    if "dpp" in ins.form:
        return crosslane.decode_dpp
    if ins.form == "sdwa":
        return crosslane.decode_sdwa
    if name in crosslane.LANES:
        return lambda i, layout: crosslane.LANES[name](i.operands, i.modifiers, layout)
    if name in crosslane.SCALAR_RESULT:
        return crosslane.decode_scalar_result
    if name in ("ds_bpermute_b32", "ds_permute_b32", "ds_swizzle_b32"):
        return crosslane.decode_ds_permutation
    for start, decoder in (
        ("v_mfma_", matrix.decode), ("v_wmma_", matrix.decode), ("v_", vector.decode),
        ("s_load_", access.decode_scalar_load), ("s_", scalar.decode), ("ds_", lds.decode_lds),
        ("global_", access.decode_global), ("buffer_", access.decode_buffer), ("scratch_", access.decode_scratch),
    ):  # fmt: skip
        if name.startswith(start):
            return decoder
    raise UnsupportedInstruction("opcode")


def _pair(x: Instruction, y: Instruction, layout: Layout) -> Run_:
    """Both halves of a VOPD pair read before either writes: Y takes what X overwrites from a temporary."""
    target = x.operands[0]
    operands = [
        Operand("v", layout.temporary + 2, 1, o.negative, o.absolute)
        if k and o.kind == "v" and o.index == target.index else o
        for k, o in enumerate(y.operands)
    ]  # fmt: skip
    first = _single(Instruction(x.line, x.text, x.opcode, x.form, x.operands, x.modifiers), layout)
    second = _single(Instruction(y.line, y.text, y.opcode, y.form, operands, y.modifiers), layout)
    assert first
    assert second
    row, spare = layout.row(target), layout.temporary + 2
    if operands == y.operands:

        def both(w: Waves) -> None:
            first(w)
            second(w)

        return both

    def both_saved(w: Waves) -> None:
        w.u[spare][...] = w.u[row]
        first(w)
        second(w)

    return both_saved
