"""Mutants of an assembly: would a green run have noticed?

A mutant is a kernel's text with one instruction changed the way a programmer, a compiler or a port gets it wrong: a
lane control that is off by one, an EXEC mask not taken, an atomic that became a store, a missing barrier or wait, an
address that is four bytes off, a 64 where a 32 belongs. `mutants` finds them, `lanewise.isa.examine` runs them and says
what became of each, `lanewise.isa.equivalence` why one changes nothing.

A rule is a row of `RULES`. What only costs or saves time (`s_delay_alu`, cache policies, `s_nop`, branches around code
that no lane is in) has no rule.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from lanewise.isa import load

NOTHING = "s_nop 0"


class Edit(NamedTuple):
    """Rewrites the first match of `pattern` in an instruction, on architectures that `archs` matches."""

    pattern: str
    replacement: str | Callable[[re.Match[str]], str]
    archs: str = ""

    def apply(self, instruction: str, arch: str) -> str | None:
        """The changed instruction; None where the edit does not apply or changes nothing."""
        if not re.match(self.archs, arch):
            return None
        changed = re.sub(self.pattern, self.replacement, instruction, count=1)
        return changed if changed != instruction else None


class Rule(NamedTuple):
    """A way to be wrong: its name, its edits (each makes a mutant), and what is so where an edit has no effect."""

    name: str
    edits: tuple[Edit, ...]
    alike: str

    def changes(self, instruction: str, arch: str) -> list[str]:
        """All ways in which the rule changes an instruction."""
        found = (edit.apply(instruction, arch) for edit in self.edits)
        changed = (NOTHING if text.strip() == "s_waitcnt" else text for text in found if text)
        return list(dict.fromkeys(changed))


def _add(number: int) -> Callable[[re.Match[str]], str]:
    """Adds to the integer that the second group holds; the first is what stands before it."""

    def replacement(match: re.Match[str]) -> str:
        value = int(match[2], 0) + number
        return match[1] + (hex(value) if match[2].startswith("0x") else str(value))

    return replacement


def _swap(one: str, other: str) -> Callable[[re.Match[str]], str]:
    """The other of two words."""
    return lambda match: other if match[0] == one else one


def _without(*words: str) -> tuple[Edit, ...]:
    """Nothing in place of the instructions that begin with one of `words`."""
    return tuple(Edit(rf"^{word}.*", NOTHING) for word in words)


def _next_in_row(match: re.Match[str]) -> str:
    return f"{match[1]}:{int(match[2]) % 15 + 1}"


_HALF = ("exec_hi, 0", "exec_lo, 0xffff")  # the upper half of a wave of 64 or 32 lanes, off
_MEMORY = r"(?:global|buffer|scratch|flat|ds)_"

RULES: tuple[Rule, ...] = (
    Rule(
        "cross-lane control",
        (
            Edit(r"(row_(?:shr|shl|ror|share|newbcast)):(\d+)", _next_in_row),
            Edit(r"quad_perm:\[[\d,]+\]", "quad_perm:[0,1,2,3]"),
            Edit(r"(row_xmask:)(\d+)", lambda m: f"{m[1]}{int(m[2]) ^ 1}"),
            Edit(r"row_mirror|row_half_mirror", _swap("row_mirror", "row_half_mirror")),
            Edit(r"row_bcast:15|row_bcast:31", _swap("row_bcast:15", "row_bcast:31")),
            Edit(r"wave_shl|wave_shr", _swap("wave_shl", "wave_shr")),
            Edit(r"permlane16_swap|permlane32_swap", _swap("permlane16_swap", "permlane32_swap")),
            Edit(r"^(v_permlane\w+ .*), -1, -1", r"\1, 0, 0"),
            Edit(r"(?<=, )0x1234567\b", "0x1234576"),
            Edit(r"^(v_(?:readlane|writelane)_b32 .*, )(\d+)$", lambda m: f"{m[1]}{int(m[2]) ^ 1}"),
            Edit(r"^(v_mbcnt_\w+ \S+) \S+,", r"\1 0,"),
            Edit(r"(?<=[ ,(])(bank_mask:0x|row_mask:0x)[1-9a-f]", r"\g<1>1"),
            Edit(r"^(ds_(?:bpermute|permute)_b32 [^o]+)$", r"\1 offset:4"),
            Edit(r"^(ds_(?:bpermute|permute)_b32 .* offset:)(\d+)", _add(4)),
            Edit(r"(swizzle\(SWAP, ?)(\d+)", lambda m: m[1] + str(int(m[2]) * 2 % 31)),
            Edit(r"(swizzle\(BROADCAST, ?\d+, ?)(\d+)", lambda m: m[1] + str(int(m[2]) ^ 1)),
            Edit(r"^(ds_swizzle_b32 .* offset:)(\d+)$", lambda m: f"{m[1]}{int(m[2]) ^ 0x400}"),
        ),
        "what it takes of other lanes is the same",
    ),
    Rule(
        "EXEC",
        (
            Edit(r"^s_and_saveexec_b(32) ([^,]+),.*", r"s_mov_b\1 \2, exec_lo"),
            Edit(r"^s_and_saveexec_b(64) ([^,]+),.*", r"s_mov_b\1 \2, exec"),
            *_without(r"s_(?:or|xor|and|andn2|and_not1|mov|cmov)_b(?:32|64) exec\b", r"s_\w+_b32 exec_lo", r"v_cmpx_"),
            *(
                Edit(rf"^(?={_MEMORY}(?:atomic|store|write|add))", f"s_mov_b32 {half}\n", archs)
                for half, archs in zip(_HALF, ("gfx9", "gfx1"), strict=True)
            ),
        ),
        "the same lanes are on",
    ),
    Rule(
        "atomic",
        (
            Edit(r"^(?:global|buffer)_atomic_(?!cmpswap).*(?<!glc)(?<!sc0)(?<!RETURN)$", NOTHING),
            Edit(  # a compare and swap that claims to have succeeded
                r"^global_atomic_cmpswap\S* (v\d+), (?:v\[\S+\]|v\d+), v\[(\d+):(\d+)\].*", r"v_mov_b32_e32 \1, v\3"
            ),
            Edit(r"^(global|buffer)_atomic_(?:add_f32|pk_add_\w+) (.*)", r"\1_store_dword \2", "gfx9|gfx10"),
            Edit(r"^(global|buffer)_atomic_(?:add_f32|pk_add_\w+) (.*)", r"\1_store_b32 \2", "gfx11|gfx12"),
            Edit(r"^ds_add_(?!rtn).*", NOTHING),
        ),
        "what is added to is zero, and one lane adds",
    ),
    Rule(
        "store",
        _without(r"(?:global|buffer|scratch|flat)_store_", r"ds_(?:write|store)"),
        "memory holds the value already",
    ),
    Rule(
        "barrier",
        _without(r"s_barrier(?!_signal)"),
        "no wave waits",
    ),
    Rule(
        "wait",
        (
            Edit(r"(vmcnt\(|lgkmcnt\(|vscnt\()(\d+)(?=\))", _add(1)),
            Edit(r"vmcnt\(\d+\)", ""),
            Edit(r"lgkmcnt\(\d+\)", ""),
            Edit(r"^(s_wait_(?:load|ds|km|store|sample|bvh)cnt\w* )(0x[\da-f]+)", _add(1)),
            *_without(r"s_wait_(?:load|ds|km|store)cnt"),
        ),
        "nothing is waited for",
    ),
    Rule(
        "offset",
        (
            Edit(rf"^({_MEMORY}(?!.*permute|.*swizzle).* offset:)(\d+)", _add(4)),
            Edit(rf"^({_MEMORY}(?:load|store|read|write|atomic|add)(?!.*offset)[^;]*)", r"\1 offset:4"),
            Edit(r"^(s_(?:buffer_)?load_\w+ [^,]+, [^,]+, )(0x[\da-f]+|\d+)", _add(4)),
        ),
        "both addresses hold the same value",
    ),
    Rule(
        "wave width",
        (
            Edit(r"(?<=, )(?:63|31)\b(?!\))", _swap("31", "63")),
            Edit(r"(?<=, )(?:64|32)\b(?!\))", _swap("32", "64")),
            Edit(r"(?<=, )0x(?:ff|7f)\b", _swap("0xff", "0x7f")),
        ),
        "the bits that differ decide nothing",
    ),
    Rule(
        "comparison",
        (
            Edit(r"(?<=_)(?:lt|le)(?=_[iuf](?:16|32|64))", _swap("lt", "le")),
            Edit(r"(?<=_)(?:gt|ge)(?=_[iuf](?:16|32|64))", _swap("gt", "ge")),
            Edit(r"(?<=^s_cmp_)(?:eq|lg)", _swap("eq", "lg")),
            Edit(r"(?<=^s_cmpk_)(?:eq|lg)", _swap("eq", "lg")),
            Edit(r"(?<=^v_cmp_)(?:eq|ne)(?=_[iu])", _swap("eq", "ne")),
            Edit(r"(?<=^v_cmpx_)(?:eq|ne)(?=_[iu])", _swap("eq", "ne")),
            Edit(r"(?<=^s_cbranch_scc)[01]", _swap("0", "1")),
            Edit(r"(?<=^s_cbranch_vcc)n?z", _swap("z", "nz")),
        ),
        "the two sides are never equal",
    ),
    Rule(
        "sum",
        (
            Edit(r"(?<=^v_)(?:add|sub)(?=_f32_e\d+)", _swap("add", "sub")),
            Edit(r"(?<=^s_)(?:add|sub)(?=_i32|_u32)", _swap("add", "sub")),
            Edit(r"^(v_fmac_f32_e32) ([^,]+), [^,]+, ([^,]+)$", r"\1 \2, 0, \3"),
        ),
        "the amount is zero",
    ),
)


@dataclass(frozen=True)
class Mutant:
    """One changed instruction: the rule, the line (from 1), its text before and after."""

    rule: Rule
    line: int
    before: str
    after: str

    def apply(self, text: str) -> str:
        """The assembly with this change."""
        lines = text.split("\n")
        lines[self.line - 1] = "\t" + self.after.replace("\n", "\n\t")
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"line {self.line}: {self.before}  ->  {self.after!r} ({self.rule.name})"


def mutants(text: str, kernel: str | None = None, rules: Iterable[Rule] = RULES) -> Iterator[Mutant]:
    """All mutants of a kernel, in the order of its lines.

    Args:
        text: an assembly that `lanewise.isa.load` decodes.
        kernel: the kernel's name, where the text holds several.
        rules: the rules to apply.

    Raises:
        UnsupportedInstruction: the text does not decode.
    """
    program = load(text, kernel)
    for instruction in program.instructions:
        for rule in rules:
            for after in rule.changes(instruction.text, program.arch):
                yield Mutant(rule, instruction.line, instruction.text, after)


def sample(candidates: Iterable[Mutant], each: int, seed: int = 0) -> list[Mutant]:
    """At most `each` mutants of every rule, drawn at random, in the order of their lines."""
    by_rule: dict[str, list[Mutant]] = {}
    for mutant in candidates:
        by_rule.setdefault(mutant.rule.name, []).append(mutant)
    draw = random.Random(seed)
    drawn = [m for group in by_rule.values() for m in draw.sample(group, min(each, len(group)))]
    return sorted(drawn, key=lambda mutant: mutant.line)
