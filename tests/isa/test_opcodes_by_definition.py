"""Every instruction that the emulator has, against AMD's own definition of it, on random and special operands.

The definitions are in tinygrad (`pip install tinygrad`), which takes them from AMD's ISA documents; they are read from
there and evaluated by `pseudocode.py`. Nothing of them is kept here.
"""

from __future__ import annotations

import functools
import importlib
import re
from importlib import util

import numpy as np
import pytest
from opcode_programs import (
    CONSTANT,
    IMMEDIATE,
    ROWS,
    Dialect,
    memory_program,
    memory_texts,
    register,
    run,
    scalar_program,
    scalar_texts,
    vector_program,
    vector_texts,
    wave_program,
    wave_texts,
    width,
)
from pseudocode import Machine, NotCoveredError

from lanewise.isa import UnsupportedInstruction

pytestmark = pytest.mark.skipif(
    not util.find_spec("tinygrad"), reason="tinygrad, which ships AMD's definitions, is not installed"
)
DOCUMENTS = {"gfx1100": "rdna3", "gfx1201": "rdna4", "gfx950": "cdna"}
SAMPLES = 12  # of a scalar instruction

# Where the text is known to be wrong, and why. (Quotients as a whole are tested in test_quotient.py.)
DIFFERS = {
    "V_DIV_FMAS_F32": "the text scales by 2^32; a quotient needs 2^64 or 2^-64, the inverse of what V_DIV_SCALE did",
    "V_DIV_FMAS_F64": "as for F32, with 2^128 or 2^-128",
    "V_DIV_SCALE_F32": "the text scales a denominator up where that overflows; a quotient needs it scaled down",
    "V_DIV_SCALE_F64": "as for F32",
    "V_FREXP_EXP_I32_F32": "the text takes a denormal's exponent for 0, and so does not agree with V_FREXP_MANT",
    "V_FREXP_EXP_I32_F64": "as for F32",
}
SPECIAL = np.array(
    [0, 1 << 31, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 1, 0x7F7FFFFF, 0x807FFFFF], np.uint32
)
# Within an ulp or two on hardware: the definition is a formula, not the bits.
# (FRACT stays below 1 by an ulp.)
APPROXIMATE = re.compile(r"V_(S_)?(EXP|LOG|RCP|RCP_IFLAG|RSQ|SQRT|SIN|COS|FRACT)_F\d+")
# The formula loses the sign of a zero (a number rounded as floor(x + 0.5)).
ZERO_OF_ANY_SIGN = re.compile(r"[VS]_(RNDNE|FRACT)_F\d+")


@functools.cache
def definitions(document: str) -> dict[str, str]:
    """Definitions of vector and scalar instructions by name."""
    module = importlib.import_module(f"tinygrad.runtime.autogen.amd.{document}.str_pcode")
    return {re.sub(r"_E(32|64)$", "", key.name): text for key, text in module.PCODE.items()}


def words(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Words of every kind: floats, whole numbers, bits, and what has a rule of its own; no signalling NaN."""
    floats = (rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 7, shape)).astype(np.float32).view(np.uint32)
    kinds = [floats, rng.integers(0, 80, shape), rng.integers(0, 2**32, shape), rng.choice(SPECIAL, shape)]
    drawn = np.choose(rng.choice(4, shape, p=[0.45, 0.2, 0.2, 0.15]), kinds).astype(np.uint32)
    is_nan = (drawn & 0x7F800000 == 0x7F800000) & (drawn & 0x7FFFFF != 0)
    return np.where(is_nan, drawn | 1 << 22 | 1 << 19, drawn).astype(np.uint32)


def agrees(name: str, definition: str, got: int, want: int) -> bool:
    """Whether two results are the same: bits, any NaN for a NaN, two ulp where the instruction is approximate."""
    match = re.search(r"\bD0(?:\[[^]]*\])?\.(bf|[fuib])(\d+)", definition) or re.search(r"\.(f)(32)", definition)
    kind, bits = (match[1], int(match[2])) if match else ("u", 32)
    size, parts = bits, 1
    if kind == "f" and (slices := re.findall(r"\b(?:D0|tmp)\[(\d+) :", definition)):  # packed
        parts = (1 + max(map(int, slices))) // bits
    for i in range(parts):
        a, b = (x >> size * i & ((1 << size) - 1) for x in (got, want))
        if a == b:
            continue
        if kind != "f":
            return False
        u, f = {16: (np.uint16, np.float16), 32: (np.uint32, np.float32), 64: (np.uint64, np.float64)}[size]
        x, y = (float(np.array(v, u).view(f)) for v in (a, b))
        close = APPROXIMATE.fullmatch(name) and abs(x - y) <= 3e-7 * abs(y) + 1.2e-38
        zero = ZERO_OF_ANY_SIGN.fullmatch(name) and x == y == 0
        if not ((np.isnan(x) and np.isnan(y)) or close or zero):
            return False
    return True


def assemble(texts, build):
    """The first spelling that the emulator decodes, or None."""
    for text in texts:
        try:
            return text, build(text)
        except UnsupportedInstruction:
            continue
    return None


def vector_disagreements(name: str, arch: str, rng: np.random.Generator) -> list[str] | None:
    """Where the emulator and the definition differ; None where it has no such instruction."""
    table, dialect = definitions(DOCUMENTS[arch]), Dialect(arch)
    definition = table[name]
    made = assemble(vector_texts(name, definition, dialect), lambda text: vector_program(text, dialect))
    if made is None:
        return None
    text, program = made
    inputs = words(rng, (9, dialect.wave))
    inputs[:, ::4] = rng.choice(SPECIAL, inputs[:, ::4].shape)  # also against one another
    inputs[2:4, 2::8], inputs[4:6, 6::8] = inputs[:2, 2::8], inputs[:2, 6::8]  # now and then equal
    inputs[8] &= 1
    out = run(program, inputs, 4)
    vcc = sum(int(bit) << lane for lane, bit in enumerate(inputs[8]))
    faults = []
    for lane in range(dialect.wave):
        registers = {"VCC": vcc, "EXEC": (1 << dialect.wave) - 1, "SIMM32": CONSTANT, "D1": 0}
        for operand, first in ROWS.items():
            registers[operand] = int(inputs[first - 2, lane]) | int(inputs[first - 1, lane]) << 32
        old = dict(registers)
        if "DIV_SCALE" in name:
            registers["D0"] = registers["S0"]  # what is not scaled passes; the text leaves it out
        Machine(table, registers, lane).run(name)
        got = int(out[0, lane]) | int(out[1, lane]) << 32
        fine = True
        if name.startswith("V_CMP_"):
            fine = bool(out[2, lane]) == bool(registers["D0"] >> lane & 1)
        elif name.startswith("V_CMPX"):
            fine = bool(out[3, lane]) == bool(registers["EXEC"] >> lane & 1)
        else:
            fine = agrees(name, definition, got, registers["D0"])
            if "DIV_SCALE" in name:  # one lane's bit, which the definition writes as a number
                fine = fine and bool(out[2, lane]) == bool(registers["VCC"] & 1)
            elif re.search(r"D1\.", definition):
                fine = fine and bool(out[2, lane]) == bool(registers["D1"] & 1)
            elif re.search(r"VCC\.u64\[laneId\] = ", definition):
                fine = fine and bool(out[2, lane]) == bool(registers["VCC"] >> lane & 1)
        if not fine:
            operands = " ".join(f"{k}={old[k]:#x}" for k in ROWS)
            faults.append(
                f"{text}: {operands} vcc={vcc >> lane & 1}: got {got:#x} {out[2:, lane]}, expected {registers['D0']:#x}"
            )
    return faults


def scalar_disagreements(name: str, arch: str, rng: np.random.Generator) -> list[str] | None:
    table, dialect = definitions(DOCUMENTS[arch]), Dialect(arch)
    definition = table[name]
    made = assemble(scalar_texts(name, definition), lambda text: scalar_program(text, dialect, SAMPLES))
    if made is None:
        return None
    text, program = made
    inputs = words(rng, (SAMPLES, 8))
    inputs[:, 6] &= 1
    out = run(program, inputs, 5 * SAMPLES).reshape(SAMPLES, 5, dialect.wave)[:, :, 0]
    bits = width(definition, "D0")
    faults = []
    for sample, left in zip(inputs, out, strict=True):
        value = [int(x) for x in sample]
        everyone = value[7] | (0xFFFFFFFF << 32 if dialect.wave == 64 else 0)
        registers = {"SCC": value[6], "EXEC": everyone, "SIMM16": IMMEDIATE}
        for i, operand in enumerate(("S0", "S1", "D0")):
            registers[operand] = value[2 * i] | value[2 * i + 1] << 32
        if "SIMM16" not in definition and "K_" in name:  # the document calls the constant a source
            registers["S1" if width(definition, "S1") else "S0"] = IMMEDIATE
        old = dict(registers)
        Machine(table, registers).run(name)
        got, scc = int(left[0]) | int(left[1]) << 32, int(left[2])
        fine = scc == registers["SCC"] & 1
        fine = fine and (not bits or agrees(name, definition, got, registers["D0"]))
        if "EXEC" in definition:
            fine = fine and (int(left[3]) | int(left[4]) << 32) == registers["EXEC"] & ((1 << dialect.wave) - 1)
        if not fine:
            faults.append(
                f"{text}: {old}: got {got:#x} scc {scc}, expected {registers['D0']:#x} scc {registers['SCC'] & 1}"
            )
    return faults


def wave_disagreements(name: str, arch: str, rng: np.random.Generator) -> list[str] | None:
    table, dialect = definitions(DOCUMENTS[arch]), Dialect(arch)
    made = assemble(wave_texts(name), lambda text: wave_program(text, dialect))
    if made is None:
        return None
    text, program = made
    inputs = rng.integers(0, 2**32, (4, dialect.wave), dtype=np.uint32)
    if name.startswith("DS_"):
        inputs[0] = inputs[0] % 8192 * (4 if "BPERMUTE" in name else 1)
    full = "PERMLANE" in name  # which lanes a lane that is off is replaced by is a modifier's matter
    inputs[3, 2:4] = 0xFFFFFFFF if full else inputs[3, 2:4]
    out = run(program, inputs, 3)
    everyone = int(inputs[3, 2]) | (int(inputs[3, 3]) << 32 if dialect.wave == 64 else 0)

    def packed(row: np.ndarray) -> int:
        return int.from_bytes(row.astype("<u4").tobytes(), "little")

    registers = {
        "EXEC": everyone,
        "EXEC_LO": everyone & 0xFFFFFFFF,
        "WAVE64": int(dialect.wave == 64),
        "D0": 0,
        "OFFSET": 8,
    }
    registers |= {"WAVE32": int(dialect.wave == 32), "VDST": 8, "SRC0": 4, "ADDR": 2, "DATA0": 4}
    registers |= {f"VGPR{v}": packed(inputs[i]) for i, v in enumerate((2, 4, 8))}
    scalars = [int(inputs[3, i]) for i in range(2)]
    names = ("S1", "S0") if "WRITELANE" in name else ("S1", "S2")
    registers |= dict(zip(names, scalars, strict=True))
    Machine(table, registers).run(name)
    want = [registers["VGPR4"], registers["VGPR8"], packed(np.full(dialect.wave, registers["D0"], np.uint32))]
    return [f"{text}: output {i} differs" for i in range(3) if packed(out[i]) != want[i]]


def memory_disagreements(name: str, arch: str, rng: np.random.Generator) -> list[str] | None:
    table, dialect = definitions(DOCUMENTS[arch]), Dialect(arch)
    definition = table[name]
    made = assemble(memory_texts(name, definition, dialect), lambda text: memory_program(text, dialect))
    if made is None:
        return None
    text, program = made
    inputs = words(rng, (6, dialect.wave))
    equal = rng.random(dialect.wave) < 0.4  # what is compared with is there now and then
    for there, data in ((0, 2), (1, 3), (0, 3), (0, 4), (1, 5)):
        inputs[data] = np.where(equal, inputs[there], inputs[data])
    out = run(program, inputs, 4)
    after = out[2:].reshape(dialect.wave, 2)
    faults = []
    for lane in range(dialect.wave):
        cell = [int(x) for x in inputs[:, lane]]
        registers = {"MEM": cell[0] | cell[1] << 32, "RETURN_DATA": 0, "DATA2": cell[4] | cell[5] << 32}
        registers["DATA"] = sum(word << 32 * i for i, word in enumerate(cell[2:]))
        registers |= dict.fromkeys(
            re.findall(r"\w+", "ADDR SADDR OFFSET OFFSET0 OFFSET1 v_addr s_saddr vgpr_a offset"), 0
        )
        before = registers["MEM"]
        Machine(table, registers).run(name)
        got = int(out[0, lane]) | int(out[1, lane]) << 32, int(after[lane, 0]) | int(after[lane, 1]) << 32
        as_result = re.sub(r"MEM\[\w+\]", "D0", definition)
        if got[0] != registers["RETURN_DATA"] or not agrees(name, as_result, got[1], registers["MEM"]):
            data = registers["DATA"]
            faults.append(f"{text}: {before:#x} and {data:#x}: got {got}, expected {registers['MEM']:#x}")
    return faults


def covered(arch: str, kind: str) -> list[str]:
    """Instructions whose definition can be evaluated on its own."""
    table = definitions(DOCUMENTS[arch])
    if kind == "wave":
        return [
            name for name in table if re.search("DS_B?PERMUTE_B32|READLANE|READFIRSTLANE|WRITELANE|PERMLANE.*B32", name)
        ]
    if kind == "memory":
        return [name for name in table if re.match(r"GLOBAL_ATOMIC_|DS_\w+_RTN_\w+", name)]
    elsewhere = ("VGPR", "M0", "MEM", "SRC0")
    start = r"V_(?!S_)" if kind == "vector" else r"(V_)?S_"
    other = r"S_(.*BRANCH|.*PC_|SETREG|GETREG|SENDMSG|WAIT|NOP|SLEEP|DELAY|BARRIER|ENDPGM|TRAP|SETPRIO)"
    narrow = r"S_\w+(SAVE|WR)EXEC_B64" if Dialect(arch).wave == 32 else "-"  # no compiler emits those for 32 lanes
    return [
        name
        for name, text in table.items()
        if re.match(start, name)
        and re.search(r"\b(D0|D1|EXEC|VCC|SCC)\b", text)
        and not any(word in text for word in elsewhere)
        and not re.match(other, name)
        and not re.match(narrow, name)
        and name not in DIFFERS
    ]


COMPARE = {
    "vector": vector_disagreements,
    "scalar": scalar_disagreements,
    "wave": wave_disagreements,
    "memory": memory_disagreements,
}


@pytest.mark.parametrize("arch", DOCUMENTS)
@pytest.mark.parametrize(("kind", "least"), [("vector", 150), ("scalar", 90), ("wave", 5), ("memory", 10)])
def test_instructions_do_what_their_definition_says(arch: str, kind: str, least: int) -> None:
    rng = np.random.default_rng(0)
    tested, faults = 0, []
    for name in covered(arch, kind):
        try:
            found = COMPARE[kind](name, arch, rng)
        except NotCoveredError:
            continue
        tested += found is not None
        faults += found[:2] if found else []
    assert not faults, "\n".join(faults)
    assert tested >= least


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("name", ["V_FMA_MIX_F32", "V_FMA_MIXLO_F16", "V_FMA_MIXHI_F16"])
def test_mixed_precisions_are_taken_as_the_definition_says(name: str, arch: str) -> None:
    """Every way to choose the sources: whole words, low and high halves. The definition's loop over them is unrolled,
    because its modifiers are bits of the instruction."""
    table, dialect, rng = dict(definitions(DOCUMENTS[arch])), Dialect(arch), np.random.default_rng(1)
    word, high, low = re.findall(r"\nin\[i\] = (.*)", table[name])
    ending = table[name].rsplit("\n", 1)[1]
    for code in range(27):
        ways = [code // 3**i % 3 for i in range(3)]
        whole = ending
        for i, way in enumerate(ways):
            whole = whole.replace(f"in[{i}]", (word, low, high)[way].replace("S[i]", f"S{i}"))
        table[name] = whole
        inputs = words(rng, (9, dialect.wave))
        operands = ", ".join(register("v", ROWS[o], 32) for o in ("D0", "S0", "S1", "S2"))
        bits = [",".join(str(int(way in chosen)) for way in ways) for chosen in ((2,), (1, 2))]
        text = f"{name.lower()} {operands} op_sel:[{bits[0]}] op_sel_hi:[{bits[1]}]"
        out = run(vector_program(text, dialect), inputs, 4)
        for lane in range(dialect.wave):
            registers = {operand: int(inputs[first - 2, lane]) for operand, first in ROWS.items()}
            Machine(table, registers, lane).run(name)
            assert agrees(name, whole, int(out[0, lane]), registers["D0"] & 0xFFFFFFFF), (text, lane)


@pytest.mark.parametrize(
    ("kind", "name", "wrong"),
    [
        ("vector", "V_XOR_B32", "D0.u32 = S0.u32 | S1.u32"),
        ("vector", "V_CMP_LT_F32", "D0.u64[laneId] = S0.f32 <= S1.f32"),
        ("scalar", "S_ADD_U32", "D0.u32 = S0.u32 + S1.u32"),  # no carry
        ("wave", "DS_BPERMUTE_B32", "VGPR[0][VDST] = 0U"),
        ("memory", "GLOBAL_ATOMIC_ADD_U32", "RETURN_DATA.u32 = MEM[ADDR].u32"),
    ],
)
def test_another_definition_is_noticed(kind: str, name: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(definitions("rdna3"), name, wrong)
    assert COMPARE[kind](name, "gfx1100", np.random.default_rng(0))
