"""Instructions -> functions of waves, and the straight lines between branches and barriers that they stand in."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lanewise.isa import access, crosslane, lds, matrix, scalar, vector
from lanewise.isa.errors import UnsupportedInstruction
from lanewise.isa.parse import Instruction, Operand
from lanewise.isa.state import Layout, Waves

Function = Callable[[Waves], None]
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
    body: list[Function]
    ending: str
    condition: str = ""
    target: int = -1
    rows: Any = None


def operands(ins: Instruction) -> list[Operand]:
    """Those of both halves of a pair."""
    return ins.operands + (ins.second.operands if ins.second else [])


def blocks(instructions: list[Instruction], layout: Layout) -> dict[int, Block]:
    """Every straight line by its first instruction."""
    starts = {0}
    for k, ins in enumerate(instructions):
        if ins.target >= 0:
            starts |= {ins.target, k + 1}
        elif ins.opcode in BARRIERS or ins.opcode == "s_endpgm":
            starts.add(k + 1)
    order = sorted(start for start in starts if start < len(instructions))
    found = {}
    for first, after in zip(order, [*order[1:], len(instructions)], strict=True):
        lines = instructions[first:after]
        block = Block(first, len(lines), [], "next")
        rows: set[int] = set()
        scalar.mark_dead_scc(lines)
        for ins in lines:
            function = decode(ins, layout)
            if function is not None:
                block.body.append(function)
            for o in operands(ins):
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
        found[first] = block
    return found


def decode(ins: Instruction, layout: Layout) -> Function | None:
    """The function of an instruction, or None where it does nothing by itself."""
    try:
        if ins.second is not None:
            return _pair(ins, ins.second, layout)
        return _single(ins, layout)
    except UnsupportedInstruction as error:
        raise UnsupportedInstruction(f"line {ins.line}: {ins.text}: {error}") from None


def _single(ins: Instruction, layout: Layout) -> Function | None:
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


def _decoder(ins: Instruction) -> Callable[[Instruction, Layout], Function]:
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


def _pair(x: Instruction, y: Instruction, layout: Layout) -> Function:
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
