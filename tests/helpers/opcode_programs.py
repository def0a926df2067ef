"""Programs of one instruction each, made from the instruction's own definition, for every architecture that has it.

What surrounds the instruction (descriptor, metadata, kernel arguments) is taken from an assembly that a compiler wrote.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lanewise.isa import Program, load

SKELETONS = Path(__file__).parents[1] / "incidents" / "wavefront"
# Registers: S0, S1, S2, the old D0, and VCC as 0 or 1 a lane, in rows of one wave.
ROWS = {"S0": 2, "S1": 4, "S2": 6, "D0": 8}
SCALARS = {"S0": 16, "S1": 18, "D0": 20}


@dataclass(frozen=True)
class Dialect:
    """How an architecture spells what the programs need."""

    arch: str

    @property
    def wave(self) -> int:
        return 64 if self.arch.startswith("gfx9") else 32

    @property
    def mask(self) -> str:
        return "vcc" if self.wave == 64 else "vcc_lo"

    @property
    def new(self) -> bool:
        return self.arch.startswith(("gfx11", "gfx12"))

    def memory(self, what: str, dwords: int = 1) -> str:
        words = f"b{32 * dwords}" if self.new else "dword" + (f"x{dwords}" if dwords > 1 else "")
        return f"{what}_{words}"

    @property
    def wait(self) -> list[str]:
        if self.arch.startswith("gfx12"):
            return ["s_wait_kmcnt 0x0", "s_wait_loadcnt 0x0", "s_wait_dscnt 0x0"]
        return ["s_waitcnt vmcnt(0) lgkmcnt(0)"]


def width(definition: str, operand: str) -> int:
    """The bits of an operand that a definition reads: the widest type or slice."""
    types = [int(n) for n in re.findall(rf"\b{operand}\.[a-z]+(\d+)", definition)]
    slices = [int(n) + 1 for n in re.findall(rf"\b{operand}\[(\d+) :", definition)]
    return max(32, *types, *slices) if types or slices else 0 if not re.search(rf"\b{operand}\b", definition) else 32


def register(kind: str, first: int, bits: int) -> str:
    return f"{kind}{first}" if bits <= 32 else f"{kind}[{first}:{first + bits // 32 - 1}]"


def vector_texts(name: str, definition: str, dialect: Dialect) -> list[str]:
    """The instruction in the spellings that assemblers have, one of which the architecture may know."""
    used = [o for o in ("S0", "S1", "S2") if width(definition, o)]
    sources = [register("v", ROWS[o], width(definition, o)) for o in used]
    low, mask = name.lower(), dialect.mask
    if "SIMM32" in definition:
        # v_fmaak: src0, src1, constant; v_fmamk: src0, constant, src1
        at = 1 if "fmamk" in low else 2
        sources.insert(at, hex(CONSTANT))
    if low.startswith("v_cmpx"):
        return [f"{low}_e32 {', '.join(sources)}", f"{low}_e32 {mask}, {', '.join(sources)}"]
    if low.startswith("v_cmp"):
        return [f"{low}_e32 {mask}, {', '.join(sources)}", f"{low}_e64 {mask}, {', '.join(sources)}"]
    carry_out = bool(re.search(r"VCC(\.u64\[laneId\])? = |D1\.", definition))
    carry_in = bool(re.search(r"(?<!^)VCC\.u64\[laneId\](?! =)", definition)) and "FMAS" not in name
    target = [register("v", ROWS["D0"], width(definition, "D0")), *([mask] if carry_out else [])]
    operands = ", ".join([*target, *sources, *([mask] if carry_in else [])])
    return [f"{low}{form} {operands}" for form in ("_e32", "_e64", "")]


CONSTANT = 0x3FC01234


def scalar_texts(name: str, definition: str) -> list[str]:
    low = name.lower()
    bits = {o: width(definition, o) for o in ("S0", "S1", "D0")}
    narrow = re.fullmatch(r"s_\w+_[iub]32_b64", low) or low.endswith("_i32_i64")
    if narrow:
        bits["D0"] = 32
    if low.startswith("v_s_"):
        return [f"{low} s20, s16"]
    target = [register("s", SCALARS["D0"], bits["D0"])] if bits["D0"] else []
    sources = [register("s", SCALARS[o], bits[o]) for o in ("S0", "S1") if bits[o]]
    immediate = "SIMM16" in definition or "k_" in low
    if immediate:
        return [f"{low} {', '.join([*target, *sources][:1])}, {hex(IMMEDIATE)}"]
    return [f"{low} {', '.join([*target, *sources])}"]


IMMEDIATE = 0x1235


def assembled(dialect: Dialect, body: list[str]) -> Program:
    """A program of `body`, which finds its inputs at s[24:25], puts its outputs to s[28:29], and has 4 * lane in v1."""
    text = (SKELETONS / f"fixed.{dialect.arch}.s").read_text()
    head, rest = text.split("sum_by_label:", 1)
    code, tail = rest.split("s_endpgm", 1)
    match = re.search(r"s_load_\w+ \S+ (s\[\d+:\d+\])", code)
    assert match
    begin = [
        f"{dialect.memory('s_load', 2)} s[24:25], {match[1]}, 0x0",
        f"{dialect.memory('s_load', 2)} s[28:29], {match[1]}, 0x10",
        "v_and_b32_e32 v1, 0x3ff, v0",
        "v_lshlrev_b32_e32 v1, 2, v1",
        *dialect.wait,
    ]
    for key, count in (
        ("next_free_vgpr", 64),
        ("next_free_sgpr", 48),
        ("accum_offset", 64),
        ("group_segment_fixed_size", 512),
    ):
        tail = re.sub(rf"(\.amdhsa_{key}) \S+", rf"\1 {count}", tail)
    tail = re.sub(r"(\.vgpr_count:\s+)\d+", r"\g<1>64", re.sub(r"(\.sgpr_count:\s+)\d+", r"\g<1>48", tail))
    lines = "\n".join(f"\t{line}" for line in [*begin, *body])
    return load(f"{head}sum_by_label:\n{lines}\n\ts_endpgm{tail}", "sum_by_label")


def run(program: Program, inputs: np.ndarray, rows: int) -> np.ndarray:
    """Runs one wave on words; returns `rows` rows of the words it wrote, [rows, wave]."""
    out = np.zeros((rows, program.wave), np.float32)
    program.run((1, 1, 1), [inputs.view(np.int32), np.zeros(1, np.float32), out, 0], waves=1)
    return out.view(np.uint32)


def vector_program(text: str, dialect: Dialect) -> Program:
    """Inputs: rows of v2 to v10. Outputs: rows of D0's two words, VCC and EXEC."""
    mask, exec_ = dialect.mask, "exec" if dialect.wave == 64 else "exec_lo"
    suffix = "b64" if dialect.wave == 64 else "b32"
    saved = "s[40:41]" if dialect.wave == 64 else "s40"
    row = 4 * dialect.wave
    body = [f"{dialect.memory('global_load')} v{2 + i}, v1, s[24:25] offset:{i * row}" for i in range(9)]
    body += [*dialect.wait, f"v_cmp_ne_u32_e32 {mask}, 0, v10", text]
    body += [f"s_mov_{suffix} {saved}, {exec_}", f"s_mov_{suffix} {exec_}, -1"]
    body += [f"v_cndmask_b32_e64 v10, 0, 1, {mask}", f"v_cndmask_b32_e64 v11, 0, 1, {saved}"]
    body += [f"{dialect.memory('global_store')} v1, v{8 + i}, s[28:29] offset:{i * row}" for i in range(4)]
    return assembled(dialect, body)


def scalar_program(text: str, dialect: Dialect, samples: int) -> Program:
    """Inputs: 8 words a sample (two each of S0, S1, D0; SCC, EXEC). Outputs: rows of D0 (two), SCC and EXEC (two)."""
    suffix, exec_ = ("b64", "exec") if dialect.wave == 64 else ("b32", "exec_lo")
    load_exec = "s[44:45]" if dialect.wave == 64 else "s44"
    add = "v_add_u32_e32" if dialect.wave == 64 else "v_add_nc_u32_e32"
    body = ["s_mov_b32 s45, -1"]
    for k in range(samples):
        for i, first in enumerate((16, 18, 20, 22)):
            body.append(f"{dialect.memory('s_load', 2)} s[{first}:{first + 1}], s[24:25], {hex(32 * k + 8 * i)}")
        body += [
            *dialect.wait,
            "s_mov_b32 s44, s23",
            "s_cmp_lg_u32 s22, 0",
            f"s_mov_{suffix} {exec_}, {load_exec}",
            text,
        ]
        body += ["s_cselect_b32 s40, 1, 0", "s_mov_b32 s41, exec_lo", "s_mov_b32 s42, exec_hi"]
        body += [f"s_mov_{suffix} {exec_}, -1"]
        for i, source in enumerate((20, 21, 40, 41, 42)):
            body += [f"v_mov_b32_e32 v2, s{source}"]
            body += [f"{dialect.memory('global_store')} v1, v2, s[28:29] offset:{i * 4 * dialect.wave}"]
        body += [f"{add} v1, {hex(5 * 4 * dialect.wave)}, v1"]
    return assembled(dialect, body)


def wave_texts(name: str) -> list[str]:
    """Instructions that are defined over the registers of a whole wave: v2 and v4 are read, v8 or s40 is written."""
    low = name.lower()
    if low.startswith("ds_"):
        return [f"{low} v8, v2, v4 offset:8"]
    if "readlane" in low:
        return [f"{low} s40, v4, s16"]
    if "readfirstlane" in low:
        return [f"{low}_e32 s40, v4", f"{low} s40, v4"]
    if "writelane" in low:
        return [f"{low} v8, s18, s16"]
    if "swap" in low:
        return [f"{low}_e32 v8, v4", f"{low} v8, v4"]
    return [f"{low} v8, v4, s16, s18"]


def wave_program(text: str, dialect: Dialect) -> Program:
    """Inputs: rows of v2, v4, v8, and one with s16, s18 and EXEC's two words. Outputs: rows of v4, v8 and s40."""
    suffix, exec_ = ("b64", "exec") if dialect.wave == 64 else ("b32", "exec_lo")
    row = 4 * dialect.wave
    body = [f"{dialect.memory('global_load')} v{v}, v1, s[24:25] offset:{i * row}" for i, v in enumerate((2, 4, 8))]
    body += [
        f"{dialect.memory('s_load')} s{r}, s[24:25], {hex(3 * row + 4 * i)}" for i, r in enumerate((16, 18, 20, 21))
    ]
    body += [
        *dialect.wait,
        "s_mov_b32 s40, 0",
        f"s_mov_{suffix} {exec_}, s[20:21]" if dialect.wave == 64 else "s_mov_b32 exec_lo, s20",
    ]
    body += [text, *dialect.wait, f"s_mov_{suffix} {exec_}, -1", "v_mov_b32_e32 v9, s40"]
    body += [f"{dialect.memory('global_store')} v1, v{v}, s[28:29] offset:{i * row}" for i, v in enumerate((4, 8, 9))]
    return assembled(dialect, body)


def memory_texts(name: str, definition: str, dialect: Dialect) -> list[str]:
    """An atomic that returns what was there: data in v4 to v7, result in v8 and v9, cells of 8 bytes at v11."""
    low = name.lower()
    wide = bool(re.search(r"MEM\[\w+\]\.\w64", definition))
    words = (4 if wide else 2) if "DATA[" in definition else 2 if wide else 1
    data, result = register("v", 4, 32 * words), register("v", 8, 64 if wide else 32)
    if low.startswith("ds_"):
        second = f", {register('v', 6, 64 if wide else 32)}" if "DATA2" in definition else ""
        return [f"{low} {result}, v11, {data}{second}"]
    address = f"s[28:29] offset:{8 * dialect.wave}"
    returns = {"gfx12": "th:TH_ATOMIC_RETURN", "gfx95": "sc0"}.get(dialect.arch[:5], "glc")
    return [f"{low} {result}, v11, {data}, {address} {returns}"]


def memory_program(text: str, dialect: Dialect) -> Program:
    """Inputs: rows of v2 to v7; memory holds v2 and v3 before. Outputs: rows of v8, v9, and memory after (two)."""
    row, shared = 4 * dialect.wave, text.startswith("ds_")
    body = [f"{dialect.memory('global_load')} v{2 + i}, v1, s[24:25] offset:{i * row}" for i in range(6)]
    body += ["v_lshlrev_b32_e32 v11, 1, v1", "v_mov_b32_e32 v8, 0", "v_mov_b32_e32 v9, 0", *dialect.wait]
    if shared:
        put, get = ("ds_store_b64", "ds_load_b64") if dialect.new else ("ds_write_b64", "ds_read_b64")
        body += [f"{put} v11, v[2:3]", *dialect.wait, text, *dialect.wait, f"{get} v[2:3], v11", *dialect.wait]
        body += [f"{dialect.memory('global_store', 2)} v11, v[2:3], s[28:29] offset:{2 * row}"]
    else:
        body += [f"{dialect.memory('global_store', 2)} v11, v[2:3], s[28:29] offset:{2 * row}", *dialect.wait]
        body += [text, *dialect.wait]
    body += [f"{dialect.memory('global_store')} v1, v{8 + i}, s[28:29] offset:{i * row}" for i in range(2)]
    return assembled(dialect, body)
