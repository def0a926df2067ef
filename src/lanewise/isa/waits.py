"""Is every register that a load fills waited for before it is used?

Memory instructions finish later, and the program waits by counters: `s_waitcnt vmcnt(n)` goes on when at most n
vector memory instructions are under way. The emulator finishes them at once, so a missing wait would not show in
values. It is found here instead, on the program's control flow and before it runs: for every point, the registers that
may still be under way, and after each at least how many instructions of its counter were issued (on the path that
issued the fewest). A wait for n finishes those with at least n behind them; scalar loads come back in any order, so
that only a wait for 0 finishes them, and with one under way no other wait on their counter finishes anything.

The two halves of a vector register are waited for apart: `global_load_d16_hi_b16 v1` leaves the low half alone, so
that a use of that half is no use of what is under way. LLVM's pass for waits takes them for two as well. Not so before
generation 10: memory with error correction writes whole registers.

At a barrier, stores to LDS must have been waited for. Stores to global memory are not followed, nor are the hazards
that `s_nop` and `s_delay_alu` are for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lanewise.isa.errors import WaitError
from lanewise.isa.parse import Instruction, Operand

if TYPE_CHECKING:
    from lanewise.isa.decode import Block
    from lanewise.isa.program import Program

Key = tuple[str, str, int]  # counter, kind of register ("v", "a", "s", "lds", "smem"), its number in halves
State = dict[Key, int]  # how many of the counter were issued since, at least
MOST = 64
_TO_LDS = re.compile(r"ds_(write|store|add|max|min|or|and)")
_FROM_LDS = re.compile(r"ds_(read|load|bpermute|permute|swizzle)")
_MEMORY = re.compile(r"(global|buffer|scratch)_(load|store|atomic)")
NAMES = {"vmcnt": "load", "lgkmcnt": "lds", "vscnt": "store", "loadcnt": "load", "dscnt": "lds", "kmcnt": "scalar",
         "storecnt": "store"}  # fmt: skip


def check(program: Program) -> dict[int, State]:
    """Raises WaitError where a register is used before the wait that its load needs. What may be under way where a
    block begins, by the block's first instruction."""
    generation = program.layout.generation
    entry: dict[int, State] = {0: {}}
    todo = [0]
    while todo:
        first = todo.pop()
        block, state = program.blocks[first], dict(entry[first])
        for ins in program.instructions[first : first + block.length]:
            _step(state, ins, generation)
        for after in successors(block):
            if after not in program.blocks:
                continue
            if after not in entry:
                entry[after] = dict(state)
                todo.append(after)
            elif _merge(entry[after], state):
                todo.append(after)
    return entry


def finished(program: Program, number: int) -> set[Key]:
    """What wait `number` of the program's instructions may have to wait for: what is under way before it on some path,
    and not after it."""
    first = _block_of(program, number)
    state = dict(check(program).get(first, {}))
    for ins in program.instructions[first:number]:
        _step(state, ins, program.layout.generation)
    before = set(state)
    _step(state, program.instructions[number], program.layout.generation)
    return before - set(state)


def waited_by(program: Program, number: int, keys: set[Key]) -> list[int]:
    """Where those of `keys` that are under way after instruction `number` have all been waited for, at the latest: an
    instruction for every path, the last one where a wave ends first."""
    entry, found = check(program), set()
    todo: list[tuple[int, frozenset[Key]]] = [(number, frozenset(keys))]
    seen = set(todo)
    while todo:
        start, left = todo.pop()
        first = _block_of(program, start)
        block, state = program.blocks[first], dict(entry.get(first, {}))
        for k in range(first, first + block.length):
            _step(state, program.instructions[k], program.layout.generation)
            left = frozenset(left & state.keys()) if k >= start else left
            if not left or program.instructions[k].opcode == "s_endpgm":
                found.add(k)
                break
        else:
            ahead = {(after, left) for after in successors(block) if after in program.blocks} - seen
            todo += ahead
            seen |= ahead
    return sorted(found)


def _block_of(program: Program, number: int) -> int:
    return max(first for first in program.blocks if first <= number)


def successors(block: Block) -> list[int]:
    """First instructions of the blocks that may come next."""
    after = (
        []
        if block.ending == "end" or (block.ending == "branch" and not block.condition)
        else [block.first + block.length]
    )
    return [*after, block.target] if block.ending == "branch" else after


def _merge(into: State, state: State) -> bool:
    changed = False
    for key, later in state.items():
        if key not in into or later < into[key]:
            into[key], changed = later, True
    return changed


def _step(state: State, ins: Instruction, generation: int) -> None:
    """What one instruction waits for, uses and starts."""
    limits = waited(ins)
    if limits is not None:
        for counter, n in limits.items():
            _finish(state, counter, n, generation)
        return
    if not state and not ins.opcode.startswith(("global_", "buffer_", "scratch_", "ds_", "s_load")):
        return
    counter, filled = issued(ins, generation)
    if ins.opcode in ("s_barrier", "s_barrier_signal") and any(kind == "lds" for _, kind, _ in state):
        raise WaitError(f"line {ins.line}: {ins.text}: a barrier with stores to LDS under way")
    _require(state, ins, counter, filled, generation)
    if not counter:
        return
    for key in state:
        if key[0] == counter:
            state[key] = min(state[key] + 1, MOST)
    for o in filled:
        for half in halves(ins, o, generation):
            state[(counter, o.kind, half)] = 0
    if ins.opcode.startswith("s_load"):
        state[(counter, "smem", 0)] = 0
    elif _TO_LDS.match(ins.opcode):
        state[(counter, "lds", 0)] = 0


def waited(ins: Instruction) -> dict[str, int] | None:
    """Counters and limits of a wait instruction; None for another instruction."""
    name, rest = ins.opcode, ins.modifiers.get("rest", "")
    if not name.startswith("s_wait"):
        return None
    if name == "s_waitcnt":
        found = {NAMES[c]: int(n, 0) for c, n in re.findall(r"(vmcnt|lgkmcnt)\((\w+)\)", rest)}
        return dict.fromkeys(("load", "lds"), 0) if rest.strip() in ("0", "0x0") else found
    if m := re.fullmatch(r"s_waitcnt_(vscnt|vmcnt|lgkmcnt)", name):
        return {NAMES[m[1]]: int(rest.split(",")[1], 0)}
    if m := re.fullmatch(r"s_wait_(loadcnt|storecnt)_dscnt", name):
        both = int(rest, 0)
        return {NAMES[m[1]]: both >> 8, "lds": both & 63}
    if m := re.fullmatch(r"s_wait_(loadcnt|storecnt|dscnt|kmcnt)", name):
        return {NAMES[m[1]]: int(rest, 0)}
    if name == "s_wait_idle":
        return dict.fromkeys(("load", "lds", "scalar", "store"), 0)
    return {}


def _finish(state: State, counter: str, n: int, generation: int) -> None:
    # Before generation 12, LDS and scalar memory share lgkmcnt.
    unordered = counter == "scalar" or (counter == "lds" and generation < 12 and ("lds", "smem", 0) in state)
    for key in [k for k, later in state.items() if k[0] == counter and (n == 0 or (not unordered and later >= n))]:
        del state[key]


def issued(ins: Instruction, generation: int) -> tuple[str, list[Operand]]:
    """The counter of a memory instruction and the registers that it fills later; "" for another one."""
    name, o = ins.opcode, ins.operands
    if name.startswith("s_load_"):
        return ("scalar" if generation >= 12 else "lds"), [o[0]]
    if name.startswith("ds_"):
        loads = _FROM_LDS.match(name) or "_rtn" in name
        return "lds", [o[0]] if loads else []
    m = _MEMORY.match(name)
    if not m:
        return "", []
    policy = ins.modifiers
    returns = "glc" in policy or "sc0" in policy or policy.get("th") == "TH_ATOMIC_RETURN"
    if m[2] == "load":
        return "load", [o[0]]
    if m[2] == "atomic" and returns:
        return "load", [o[0]]
    return ("load" if generation < 10 else "store"), []


def halves(ins: Instruction, o: Operand, generation: int) -> range:
    """The halves of registers that an instruction touches of an operand: register k has 2k and 2k + 1."""
    first, after = 2 * o.index, 2 * (o.index + o.count)
    if o.kind != "v" or o.count != 1 or generation < 10:
        return range(first, after)
    part = o.part
    if o is _data(ins):
        part = "WORD_1" if "d16_hi" in ins.opcode else "WORD_0" if _LOW.search(ins.opcode) else ""
    return range(first + (part == "WORD_1"), after - (part == "WORD_0"))


_DATA = re.compile(r"(ds|global|buffer|scratch)_(load|read|store|write)")
_LOW = re.compile(r"d16|_store_(byte|short|b8|b16)$|ds_(write|store)_b(8|16)$")  # a load without d16 fills all


def _data(ins: Instruction) -> Operand | None:
    """The register that a load fills or a store takes."""
    m = _DATA.match(ins.opcode)
    if not m:
        return None
    return ins.operands[0 if m[2] in ("load", "read") or m[1] == "buffer" else 1]


def _require(state: State, ins: Instruction, counter: str, filled: list[Operand], generation: int) -> None:
    """No register that the instruction touches is under way. A load may follow another one of the same registers:
    loads of one counter come back in order, but for scalar ones."""
    if not state:
        return
    operands = ins.operands + (ins.second.operands if ins.second else [])
    for o in operands:
        if o.kind not in "vas":
            continue
        for half in halves(ins, o, generation):
            for other in ("load", "lds", "scalar"):
                if (other, o.kind, half) not in state:
                    continue
                if o in filled and other == counter and not ins.opcode.startswith("s_load"):
                    continue
                raise WaitError(
                    f"line {ins.line}: {ins.text}: {o.kind}{half // 2} is used before the wait for its load"
                )
