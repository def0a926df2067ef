"""Why does a mutant change no output? Found by watching it beside the kernel that it was made of.

Both run wave by wave, and the registers of every wave are written down before and after the changed instruction and at
the end of each block. Either nothing ever differs, so that the change has no effect on these inputs; or registers or
memory differ for a while, and the rest of the program makes nothing of it; or waves take another way to the same
result. Waits change no value on the emulator: what a mutated one fails to wait for is followed on the control flow,
where the emulator would refuse a use that comes too early (`waits`).

What is said holds for the inputs that were run, but for waits: those hold on every path.
"""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lanewise.isa import Program, waits
from lanewise.isa.parse import SCALARS, TTMP
from lanewise.isa.state import POISON, SCALAR_ROWS, U64, Waves

MEMORY = re.compile(r"(global|buffer|scratch|flat|ds)_(?!\w*permute|swizzle)")
FACTORS = np.random.default_rng(0).integers(1, 2**63, 64, dtype=U64) | U64(1)  # of a lane, in the sum over a register

BEFORE, AFTER, END = range(3)


class Reason(NamedTuple):
    """Why no output changes: in a word, and what was seen."""

    kind: str
    text: str


class Moment(NamedTuple):
    """A wave at a place.

    Attributes:
        place: number of an instruction, and which place it is (BEFORE it, AFTER it, at the END of its block).
        registers: a sum over the lanes of every vector and scalar register, and SCC, uint64.
        idle: no lane is on.
        memory: a sum over all memory, where the instruction touches it.
    """

    place: tuple[int, int]
    registers: np.ndarray
    idle: bool
    memory: int


@dataclass
class Watch:
    """What the waves of a program go through, by launch and wave; `alone`: every workgroup is one wave.

    A mutant may name fewer registers than its kernel; `vectors` and `accumulators` are the larger numbers of both. What
    is not named holds poison."""

    vectors: int
    accumulators: int
    moments: dict[tuple[int, int], list[Moment]] = field(default_factory=dict)
    alone: bool = True
    machines: list[object] = field(default_factory=list)

    def note(self, waves: Waves, place: tuple[int, int], with_memory: bool) -> None:
        """A wave is at a place."""
        machine = waves.machine
        if not self.machines or self.machines[-1] is not machine:
            self.machines.append(machine)
            self.alone &= len(machine.group) == 0 or int(np.bincount(machine.group).max()) == 1
        layout = waves.layout
        factors = FACTORS[: layout.wave]
        sums = np.full(self.vectors + self.accumulators, (factors * U64(POISON)).sum())
        sums[: layout.vectors] = waves.vectors[: layout.vectors, 0] @ factors
        named = waves.vectors[layout.vectors : layout.temporary, 0]
        sums[self.vectors : self.vectors + layout.accumulators] = named @ factors
        registers = np.concatenate([sums, waves.scalars[0], waves.scc], dtype=U64, casting="unsafe")
        memory = 0
        for space in (machine.space, machine.lds, machine.scratch) if with_memory else ():
            memory = zlib.crc32(space.bytes, memory)
        key = (len(self.machines), int(waves.number[0]))
        self.moments.setdefault(key, []).append(Moment(place, registers, not waves.active.any(), memory))


def watch(program: Program, number: int, beside: Program, run: Callable[[Program], None]) -> Watch:
    """Runs a program wave by wave, watching the instruction `number` in which it differs from another one, and what
    stands there more."""
    layouts, more = (program.layout, beside.layout), max(len(program.instructions) - len(beside.instructions), 0)
    seen = Watch(max(x.vectors for x in layouts), max(x.accumulators for x in layouts))
    with_memory = any(MEMORY.match(x.instructions[number].opcode) for x in (program, beside))

    def noter(place: tuple[int, int]) -> Callable[[Waves], None]:
        return lambda waves: seen.note(waves, place, with_memory and place[1] == AFTER)

    ends = [block.first + block.length - 1 for block in program.blocks.values()]
    after = {end: noter((end if end <= number else end - more, END)) for end in ends}
    inner, outer = noter((number, AFTER)), after.get(number + more)

    def both(waves: Waves) -> None:
        inner(waves)
        if outer:
            outer(waves)

    run(program.observed({number: noter((number, BEFORE))}, {**after, number + more: both}))
    return seen


def explain(
    right: Program, wrong: Program, number: int, run: Callable[[Program], None], alike: str, dropped: bool
) -> Reason:
    """Why `wrong`, whose instruction `number` was changed, leaves what `right` leaves.

    Args:
        right, wrong: the kernel and its mutant, decoded.
        number: of the changed instruction.
        run: executes a program on the inputs, in the wave order "forward".
        alike: what is so where the change has no effect, for the text.
        dropped: nothing stands in the instruction's place.
    """
    changed = right.instructions[number]
    if waits.waited(changed) is not None:
        return _wait(right, wrong, number)
    seen = watch(right, number, wrong, run)
    if changed.opcode.startswith("s_barrier"):
        return _barrier(seen)
    if found := _difference(right, number, seen, watch(wrong, number, right, run)):
        return found
    moments = [m for wave in seen.moments.values() for m in wave]
    times = sum(m.place[1] == AFTER for m in moments)
    if all(m.idle for m in moments if m.place[1] == BEFORE):
        return Reason("no lane is on", f"no lane is on in any of {times} executions")
    if dropped:
        return Reason("changes nothing", f"in each of {times} executions it changes no register and no memory")
    return Reason("same effect", f"registers and memory are the same after each of {times} executions: {alike}")


def _wait(right: Program, wrong: Program, number: int) -> Reason:
    keys = waits.finished(right, number) - waits.finished(wrong, number)
    if not keys:
        return Reason("nothing to wait for", "no register is under way there on any path that it would have waited for")
    found = [right.instructions[k] for k in waits.waited_by(wrong, number, keys)]
    places = _words(["the wave's end" if x.opcode == "s_endpgm" else f"line {x.line}" for x in found])
    text = f"{_words(_under_way(keys))} under way there, not used before, and on every path waited for by {places}"
    return Reason("waited for later", text)


def _under_way(keys: Iterable[waits.Key]) -> list[str]:
    names = {"lds": "a store to LDS", "smem": "a scalar load"}
    return list(dict.fromkeys(names.get(kind, f"{kind}{half // 2}") for _, kind, half in sorted(keys)))


def _barrier(seen: Watch) -> Reason:
    if seen.alone:
        return Reason("one wave", "every workgroup is one wave, which has nobody to wait for")
    return Reason(
        "no conflict",
        "without it no two waves touch a word that one of them writes between the barriers that are left: "
        "the race detector compares all pairs of accesses",
    )


def _difference(program: Program, number: int, right: Watch, wrong: Watch) -> Reason | None:
    """What differs at some moment, if anything does."""
    ways = [k for k, wave in right.moments.items() if _places(wave) != _places(wrong.moments[k])]
    if ways:
        return _another_way(program, right, wrong, ways)
    pairs = [pair for k, wave in right.moments.items() for pair in zip(wave, wrong.moments[k], strict=True)]
    # A difference in SCC that matters, of another instruction than a comparison, shows in registers or ways.
    compares = program.instructions[number].opcode.startswith(("s_cmp", "s_bitcmp"))
    rows = slice(None if compares else -1)
    differ = [(a.place, np.flatnonzero((a.registers != b.registers)[rows])) for a, b in pairs]
    times = f"{sum(a.place[1] == AFTER for a, _ in pairs)} executions"
    if any(len(found) for _, found in differ):
        last = {k: (wave[-1].registers != wrong.moments[k][-1].registers)[rows] for k, wave in right.moments.items()}
        names = register_names(right.vectors, right.accumulators)
        found = [([names[row] for row in rows], place) for place, rows in differ if len(rows)]
        return _passing(program, found, times, any(x.any() for x in last.values()))
    apart = sum(a.memory != b.memory for a, b in pairs)
    if apart:
        text = f"memory differs after {apart} of {times}, no register ever: it is overwritten before anybody reads it"
        return Reason("overwritten", text)
    return None


def _places(wave: list[Moment]) -> list[tuple[int, int]]:
    return [m.place for m in wave]


def _another_way(program: Program, right: Watch, wrong: Watch, ways: list[tuple[int, int]]) -> Reason:
    """Waves part at a branch. Which, and how much more or less they do."""
    branches, blocks = set(), 0
    for key in ways:
        a, b = _places(right.moments[key]), _places(wrong.moments[key])
        together = list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
        branches.add(together[-1][0][0] if together else 0)
        blocks += len(b) - len(a)
    lines = [f"line {program.instructions[k].line}: {program.instructions[k].text}" for k in sorted(branches)]
    more = f"{abs(blocks)} blocks {'more' if blocks > 0 else 'fewer'}" if blocks else "as many blocks"
    text = f"{len(ways)} of {len(right.moments)} waves part at {_words(lines)}, pass {more}, and leave the same memory"
    return Reason("another way", text)


def _passing(program: Program, differ: list[tuple[list[str], tuple[int, int]]], times: str, lasting: bool) -> Reason:
    """Registers differ for a while: their names, by moment."""
    at_once = [names for names, place in differ if place[1] == AFTER]
    direct = list(dict.fromkeys(itertools.chain(*at_once)))
    others = [name for name in dict.fromkeys(itertools.chain(*(names for names, _ in differ))) if name not in direct]
    first = f"{_words(direct)} differ after {len(at_once)} of {times}" if direct else "memory differs"
    last = max(program.instructions[place[0]].line for _, place in differ)
    gone = "until the wave ends" if lasting else f"up to line {last} at most"
    if others:
        return Reason("absorbed", f"{first}, then {_words(others)}, {gone}; what is stored comes out the same")
    return Reason("not used", f"{first}, {gone}; nothing that is computed from them differs")


def register_names(vectors: int, accumulators: int) -> list[str]:
    """Of the rows of a moment."""
    named = {first + k: name for name, (first, count) in SCALARS.items() for k in range(count) if count == 1}
    scalars = [named.get(k, f"s{k}" if k < TTMP else f"ttmp{k - TTMP}") for k in range(SCALAR_ROWS)]
    return [f"v{k}" for k in range(vectors)] + [f"a{k}" for k in range(accumulators)] + scalars + ["scc"]


def _words(names: list[str], most: int = 4) -> str:
    names = list(dict.fromkeys(names))
    more = [f"{len(names) - most} more"] if len(names) > most else []
    *some, last = names[:most] + more
    return f"{', '.join(some)} and {last}" if some else last
