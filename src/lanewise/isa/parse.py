"""Assembly text -> the instructions, operands and metadata of one kernel. Nothing here knows what an opcode does.

Follows the syntax of LLVM's "User Guide for AMDGPU Backend" and "AMDGPU Operand Syntax".
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lanewise.isa.errors import UnsupportedInstruction

# Numbers of the scalar registers with a name of their own; trap temporaries follow the last that a program addresses.
VCC, TTMP, NULL, M0, EXEC = 106, 108, 124, 125, 126
SCALARS = {"vcc": (VCC, 2), "vcc_lo": (VCC, 1), "vcc_hi": (VCC + 1, 1), "exec": (EXEC, 2), "exec_lo": (EXEC, 1),
           "exec_hi": (EXEC + 1, 1), "m0": (M0, 1), "null": (NULL, 1)}  # fmt: skip
FLOATS = {"0.5": 0.5, "1.0": 1.0, "2.0": 2.0, "4.0": 4.0, "0.15915494": 0.15915494309189535,
          "0.15915494309189532": 0.15915494309189535}  # fmt: skip
_INTEGER = re.compile(r"-?(0x[0-9a-fA-F]+|\d+)")
_NEGATIVE = re.compile(r"-(\|?(?:[vsa]|ttmp|vcc)[\w\[\]:.|]*)")
_SIGNED = re.compile(r"sext\((.*)\)")
_REGISTER = re.compile(r"(v|s|a|ttmp)(?:(\d+)(\.[lh])?|\[(\d+)(?::(\d+))?\])")
_LINE = re.compile(r"([a-z]\w+)\s*(.*)")
_UNPARSED = re.compile(
    r"s_(wait|delay_alu|c?branch|sendmsg|nop|clause|setprio|sleep|endpgm|barrier|set_inst|inst_)|(global|buffer)_(inv|wb|gl)"
)
_FORM = re.compile(r"(\w+?)_(e64_dpp|e32|e64|dpp|sdwa)")
_LABEL = re.compile(r"([.\w$]+):")
_INDENTED = re.compile(r"\s+[a-z]\w+")


@dataclass
class Operand:
    """One operand.

    Attributes:
        kind: "v" vector, "a" accumulation, "s" scalar register, "c" constant, "off" no address register.
        index: first register, or the constant's 64 bits.
        count: registers that the text names.
        negative, absolute: float source modifiers.
        part: "" or what is selected of the register: "BYTE_0" .. "BYTE_3", "WORD_0", "WORD_1".
        signed: the part is sign-extended.
        real: the constant's value where it was written as a float.
    """

    kind: str
    index: int
    count: int = 1
    negative: bool = False
    absolute: bool = False
    part: str = ""
    signed: bool = False
    real: float | None = None

    @property
    def plain(self) -> bool:
        """No modifier."""
        return not (self.negative or self.absolute or self.part)

    def word(self, k: int) -> Operand:
        """Register `k` of several."""
        if self.kind == "c":
            return Operand("c", (self.index >> (32 * k)) & 0xFFFFFFFF)
        return Operand(self.kind, self.index + k)


@dataclass
class Instruction:
    """One instruction: opcode without its encoding suffix, which is `form` ("e32", "e64", "dpp", "e64_dpp", "sdwa")."""

    line: int
    text: str
    opcode: str
    form: str = ""
    operands: list[Operand] = field(default_factory=list)
    modifiers: dict[str, Any] = field(default_factory=dict)
    second: Instruction | None = None  # the Y half of a VOPD pair
    target: int = -1  # of a branch: number of an instruction
    scc_dead: bool = False  # nobody reads the SCC that it writes


def operand(text: str) -> Operand:
    """Parse one operand."""
    return Operand(*_fields(text))


@functools.lru_cache(maxsize=2**14)
def _fields(text: str) -> tuple[Any, ...]:
    """An operand's fields. (A program names its registers again and again; operands are told apart by identity.)"""
    t = text.strip()
    negative = absolute = signed = False
    bare = t.removeprefix("-")
    if bare in FLOATS:
        value = -FLOATS[bare] if t.startswith("-") else FLOATS[bare]
        return "c", int(np.float32(value).view(np.uint32)), 1, False, False, "", False, value
    if _INTEGER.fullmatch(t):
        return "c", int(t, 0) & (1 << 64) - 1
    if t == "off":
        return "off", 0
    if m := _NEGATIVE.fullmatch(t):
        negative, t = True, m.group(1)
    if t.startswith("|") and t.endswith("|"):
        absolute, t = True, t[1:-1]
    if m := _SIGNED.fullmatch(t):
        signed, t = True, m.group(1)
    if t in SCALARS:
        return "s", *SCALARS[t], negative, absolute
    m = _REGISTER.fullmatch(t)
    if not m:
        raise UnsupportedInstruction(f"operand {text!r}")
    kind, one, half, first, last = m.groups()
    index = int(one or first)
    count = int(last) - index + 1 if last else 1
    part = {None: "", ".l": "WORD_0", ".h": "WORD_1"}[half]
    if kind == "ttmp":
        kind, index = "s", index + TTMP
    return kind, index, count, negative, absolute, part, signed


def _split(text: str) -> list[str]:
    """At commas outside of brackets."""
    parts = []
    for part in text.split(","):
        if parts and parts[-1].count("[") + parts[-1].count("(") > parts[-1].count("]") + parts[-1].count(")"):
            parts[-1] += "," + part
        else:
            parts.append(part)
    return parts if parts[-1].strip() else parts[:-1]


def _modifier(token: str) -> tuple[str, Any]:
    name, _, value = token.partition(":")
    if not re.fullmatch(r"[a-z_]\w*", name):
        raise UnsupportedInstruction(f"modifier {token!r}")
    if not value:
        return name, True
    if value.startswith("["):
        return name, [int(x, 0) for x in value[1:-1].split(",")]
    return name, int(value, 0) if _INTEGER.fullmatch(value) else value


def instruction(line: int, text: str) -> Instruction:
    """Parse one line. Waits and branches, whose operands are expressions, keep them in modifiers["rest"]."""
    if "::" in text:
        first, second = (instruction(line, half.strip()) for half in text.split("::"))
        first.second, first.text = second, text
        return first
    m = _LINE.match(text)
    if not m:
        raise UnsupportedInstruction(f"line {line}: {text}")
    name, rest = m.group(1), m.group(2).strip()
    if _UNPARSED.match(name):
        return Instruction(line, text, name, modifiers={"rest": rest})
    parts = _split(rest)
    modifiers: dict[str, Any] = {}
    if parts:
        tokens = re.findall(r"(?:[^\s(\[]|\([^)]*\)|\[[^\]]*\])+", parts[-1])
        parts[-1] = tokens[0]
        for key, value in map(_modifier, tokens[1:]):
            if key in modifiers:
                raise UnsupportedInstruction(f"modifier {key} twice")
            modifiers[key] = value
    form = _FORM.fullmatch(name)
    opcode = (form.group(1) if form else name).replace("v_dual_", "v_")
    return Instruction(line, text, opcode, form.group(2) if form else "", [operand(p) for p in parts], modifiers)


@dataclass(frozen=True)
class Argument:
    """One kernel argument: byte offset and size, and what it is ("global_buffer", "by_value", "hidden_...")."""

    offset: int
    size: int
    kind: str


@dataclass
class Kernel:
    """One kernel's text, parsed: instructions, descriptor (the `.amdhsa_` lines) and the metadata of its arguments."""

    name: str
    arch: str
    wave: int
    instructions: list[Instruction]
    descriptor: dict[str, int]
    arguments: list[Argument]
    metadata: dict[str, int]


def kernel(text: str, name: str | None = None) -> Kernel:
    """The kernel `name` (or the only one) of an assembly file.

    Raises:
        UnsupportedInstruction: with the line's number and text.
    """
    names = re.findall(r"^\s*\.amdhsa_kernel\s+(\S+)", text, re.M)
    name = name or (names[0] if len(names) == 1 else None)
    if name is None or name not in names:
        raise UnsupportedInstruction(f"no kernel {name!r} among {names}; name one of them")
    target = re.search(r'\.amdgcn_target\s+"[^"]*?(gfx\w+)', text)
    if not target:
        raise UnsupportedInstruction("no .amdgcn_target line")
    block = re.search(r"\.amdhsa_kernel\s+" + re.escape(name) + r"\s*\n(.*?)\.end_amdhsa_kernel", text, re.S)
    assert block
    descriptor = {k: int(v) for k, v in re.findall(r"\.amdhsa_(\w+)\s+(\d+)\s*$", block.group(1), re.M)}
    wave = 32 if descriptor.get("wavefront_size32", 0) else 64
    instructions = _instructions(text.split("\n"), name)
    arguments, metadata = _metadata(text, name)
    return Kernel(name, target.group(1), wave, instructions, descriptor, arguments, metadata)


def _instructions(lines: list[str], name: str) -> list[Instruction]:
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    inside = False
    for number, raw in enumerate(lines, 1):
        line = raw.split(";")[0].split("//")[0].rstrip()
        if line.startswith(name + ":"):
            inside = True
            continue
        if not inside or not line.strip():
            continue
        if line.lstrip().startswith((".section", ".Lfunc_end", ".end_amdhsa")):
            break
        if m := _LABEL.match(line):
            labels[m.group(1)] = len(found)
        elif _INDENTED.match(line):
            try:
                found.append(instruction(number, line.strip()))
            except UnsupportedInstruction as error:
                raise UnsupportedInstruction(f"line {number}: {line.strip()}: {error}") from None
        elif not line.lstrip().startswith("."):
            raise UnsupportedInstruction(f"line {number}: {line}")
    for one in found:
        if re.match(r"s_c?branch", one.opcode):
            label = one.modifiers["rest"].strip()
            if label not in labels:
                raise UnsupportedInstruction(f"line {one.line}: {one.text}: no label {label}")
            one.target = labels[label]
    if not found:
        raise UnsupportedInstruction(f"kernel {name} has no instructions")
    return found


def _metadata(text: str, name: str) -> tuple[list[Argument], dict[str, int]]:
    """Arguments and numbers of the kernel's entry in the `.amdgpu_metadata` YAML."""
    note = re.search(r"\.amdgpu_metadata\n(.*?)\.end_amdgpu_metadata", text, re.S)
    if not note:
        return [], {}
    entries = re.split(r"^  - ", note.group(1), flags=re.M)
    entry = next((e for e in entries if re.search(r"\.name:\s+'?" + re.escape(name) + r"'?\s*$", e, re.M)), "")
    fields = [
        dict(re.findall(r"\.(\w+):\s+(\S+)", argument))
        for argument in re.split(r"^\s+- ", entry.split(".group_segment")[0], flags=re.M)
    ]
    arguments = [
        Argument(int(f["offset"]), int(f["size"]), f["value_kind"]) for f in fields if {"offset", "size"} <= f.keys()
    ]
    numbers = {k: int(v) for k, v in re.findall(r"^\s+\.(\w+):\s+(\d+)\s*$", entry, re.M)}
    return sorted(arguments, key=lambda a: a.offset), numbers
