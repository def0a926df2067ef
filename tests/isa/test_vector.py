"""Vector opcodes against the ISA documents' formulas, evaluated with Python's whole numbers and fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from isa_lab import execute

from lanewise.isa import UnsupportedInstruction, formulas, parse, vector
from lanewise.isa.parse import VCC
from lanewise.isa.state import Layout

LANES = 32
M = 0xFFFFFFFF
RNG = np.random.default_rng(0)
WORDS = [RNG.integers(0, 2**32, LANES, dtype=np.uint32) for _ in range(3)]
for _words in WORDS:
    _words[:4] = [0, 1, M, 0x80000000]
FLOATS = [RNG.standard_normal(LANES).astype(np.float32) * 10 for _ in range(3)]


def signed(x, bits=32):
    return x - (1 << bits) if x >> (bits - 1) & 1 else x


INTEGER = {
    "v_add_nc_u32_e32 v9, v1, v2": lambda a, b: a + b,
    "v_sub_nc_u32_e32 v9, v1, v2": lambda a, b: a - b,
    "v_subrev_nc_u32_e32 v9, v1, v2": lambda a, b: b - a,
    "v_and_b32_e32 v9, v1, v2": lambda a, b: a & b,
    "v_or_b32_e32 v9, v1, v2": lambda a, b: a | b,
    "v_xor_b32_e32 v9, v1, v2": lambda a, b: a ^ b,
    "v_xnor_b32_e32 v9, v1, v2": lambda a, b: ~(a ^ b),
    "v_not_b32_e32 v9, v1": lambda a, b: ~a,
    "v_mov_b32_e32 v9, v1": lambda a, b: a,
    "v_lshlrev_b32_e32 v9, v1, v2": lambda a, b: b << (a & 31),
    "v_lshrrev_b32_e32 v9, v1, v2": lambda a, b: b >> (a & 31),
    "v_ashrrev_i32_e32 v9, v1, v2": lambda a, b: signed(b) >> (a & 31),
    "v_mul_lo_u32 v9, v1, v2": lambda a, b: a * b,
    "v_mul_hi_u32 v9, v1, v2": lambda a, b: a * b >> 32,
    "v_mul_hi_i32 v9, v1, v2": lambda a, b: signed(a) * signed(b) >> 32,
    "v_mul_u32_u24_e32 v9, v1, v2": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    "v_mul_i32_i24_e32 v9, v1, v2": lambda a, b: signed(a & 0xFFFFFF, 24) * signed(b & 0xFFFFFF, 24),
    "v_min_i32_e32 v9, v1, v2": lambda a, b: min(signed(a), signed(b)),
    "v_max_i32_e32 v9, v1, v2": lambda a, b: max(signed(a), signed(b)),
    "v_min_u32_e32 v9, v1, v2": min,
    "v_max_u32_e32 v9, v1, v2": max,
    "v_bfrev_b32_e32 v9, v1": lambda a, b: int(f"{a:032b}"[::-1], 2),
    "v_ctz_i32_b32_e32 v9, v1": lambda a, b: (a & -a).bit_length() - 1,
    "v_clz_i32_u32_e32 v9, v1": lambda a, b: 32 - a.bit_length() if a else -1,
    "v_bcnt_u32_b32 v9, v1, v2": lambda a, b: a.bit_count() + b,
    "v_bfm_b32 v9, v1, v2": lambda a, b: ((1 << (a & 31)) - 1) << (b & 31),
    "v_cvt_f32_ubyte2_e32 v9, v1": lambda a, b: int(np.float32(a >> 16 & 255).view(np.uint32)),
    "v_mov_b32_e32 v9, -7": lambda a, b: -7,
}
THREE = {
    "v_add3_u32 v9, v1, v2, v3": lambda a, b, c: a + b + c,
    "v_and_or_b32 v9, v1, v2, v3": lambda a, b, c: a & b | c,
    "v_or3_b32 v9, v1, v2, v3": lambda a, b, c: a | b | c,
    "v_xor3_b32 v9, v1, v2, v3": lambda a, b, c: a ^ b ^ c,
    "v_xad_u32 v9, v1, v2, v3": lambda a, b, c: (a ^ b) + c,
    "v_lshl_add_u32 v9, v1, v2, v3": lambda a, b, c: (a << (b & 31)) + c,
    "v_add_lshl_u32 v9, v1, v2, v3": lambda a, b, c: (a + b & M) << (c & 31),
    "v_lshl_or_b32 v9, v1, v2, v3": lambda a, b, c: a << (b & 31) | c,
    "v_bfe_u32 v9, v1, v2, v3": lambda a, b, c: a >> (b & 31) & (1 << (c & 31)) - 1,
    "v_bfe_i32 v9, v1, v2, v3": lambda a, b, c: (
        signed(signed(a) >> (b & 31) & (1 << (c & 31)) - 1, c & 31) if c & 31 else 0
    ),
    "v_bfi_b32 v9, v1, v2, v3": lambda a, b, c: a & b | ~a & c,
    "v_alignbit_b32 v9, v1, v2, v3": lambda a, b, c: (a << 32 | b) >> (c & 31),
    "v_alignbyte_b32 v9, v1, v2, v3": lambda a, b, c: (a << 32 | b) >> 8 * (c & 3),
    "v_mad_u32_u24 v9, v1, v2, v3": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c,
    "v_min3_i32 v9, v1, v2, v3": lambda a, b, c: min(signed(a), signed(b), signed(c)),
    "v_max3_u32 v9, v1, v2, v3": lambda a, b, c: max(a, b, c),
    "v_med3_i32 v9, v1, v2, v3": lambda a, b, c: sorted([signed(a), signed(b), signed(c)])[1],
    "v_perm_b32 v9, v1, v2, 0x0c070100": lambda a, b, c: a >> 24 << 16 | (b >> 8 & 255) << 8 | b & 255,
}


@pytest.mark.parametrize("text", [*INTEGER, *THREE])
def test_whole_numbers(text):
    formula = INTEGER.get(text) or THREE[text]
    waves = execute(text, dict(zip((1, 2, 3), WORDS, strict=True)))
    count = formula.__code__.co_argcount if hasattr(formula, "__code__") else 2
    want = [formula(*map(int, column)) & M for column in zip(*WORDS[:count], strict=True)]
    assert waves.u[9][0].tolist() == want


def rounded(x):
    """A fraction as float32, to nearest even."""
    return np.float32(float(x)) if Fraction(float(x)) == x else _nearest(x)


def _nearest(x):
    guess = np.float32(float(x))
    around = [np.nextafter(guess, np.float32(s) * np.float32(np.inf)) for s in (-1, 1)] + [guess]
    return min(around, key=lambda y: (abs(Fraction(float(y)) - x), int(y.view(np.uint32)) & 1))


FLOAT = {
    "v_add_f32_e32 v9, v1, v2": lambda a, b, c: a + b,
    "v_sub_f32_e32 v9, v1, v2": lambda a, b, c: a - b,
    "v_subrev_f32_e32 v9, v1, v2": lambda a, b, c: b - a,
    "v_mul_f32_e32 v9, v1, v2": lambda a, b, c: a * b,
    "v_fma_f32 v9, v1, v2, v3": lambda a, b, c: a * b + c,
    "v_fma_f32 v9, -v1, |v2|, v3": lambda a, b, c: -a * abs(b) + c,
    "v_fmaak_f32 v9, v1, v2, 0x40400000": lambda a, b, c: a * b + 3,
    "v_fmamk_f32 v9, v1, 0x40400000, v2": lambda a, b, c: a * 3 + b,
    "v_max_f32_e32 v9, v1, v2": lambda a, b, c: max(a, b),
    "v_min3_f32 v9, v1, v2, v3": lambda a, b, c: min(a, b, c),
    "v_med3_f32 v9, v1, v2, v3": lambda a, b, c: sorted([a, b, c])[1],
    "v_maxmin_f32 v9, v1, v2, v3": lambda a, b, c: min(max(a, b), c),
    "v_rcp_f32_e32 v9, v1": lambda a, b, c: 1 / a,
    "v_floor_f32_e32 v9, v1": lambda a, b, c: Fraction(math.floor(a)),
    "v_mul_f32_e64 v9, v1, v2 clamp": lambda a, b, c: min(max(a * b, 0), 1),
    "v_mul_f32_e64 v9, v1, v2 mul:2": lambda a, b, c: Fraction(float(rounded(a * b))) * 2,
}


@pytest.mark.parametrize("text", list(FLOAT))
def test_floats_are_rounded_once(text):
    waves = execute(text, dict(zip((1, 2, 3), FLOATS, strict=True)))
    want = [rounded(FLOAT[text](*(Fraction(float(x)) for x in column))) for column in zip(*FLOATS, strict=True)]
    assert waves.f[9][0].tolist() == want


def test_a_fused_multiply_add_is_not_two_roundings():
    a = np.full(LANES, 1 + 2.0**-12, np.float32)
    c = np.full(LANES, -(1 + 2.0**-11), np.float32)
    assert execute("v_fma_f32 v9, v1, v1, v3", {1: a, 3: c}).f[9][0, 0] == 2.0**-24
    waves = execute("v_fmac_f32_e32 v3, v1, v1", {1: a, 3: c})
    assert waves.f[3][0, 0] == 2.0**-24


def test_two_products_of_halves_are_added_to_the_result():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((2, LANES)).astype(np.float16) for _ in range(2))
    c = rng.standard_normal(LANES).astype(np.float32)
    words = [x[0].view(np.uint16).astype(np.uint32) | x[1].view(np.uint16).astype(np.uint32) << 16 for x in (a, b)]
    waves = execute("v_dot2c_f32_f16 v3, v1, v2", {1: words[0], 2: words[1], 3: c})
    for k in range(LANES):
        low, high = (Fraction(float(a[i, k])) * Fraction(float(b[i, k])) for i in (0, 1))
        assert waves.f[3][0, k] == rounded(Fraction(float(c[k])) + low + high)


@pytest.mark.parametrize("wave", [32, 64])
def test_only_active_lanes_are_written(wave):
    active = np.arange(wave) % 3 == 1
    waves = execute("v_mov_b32_e32 v9, 5", {9: np.full(wave, 7, np.uint32)}, active=active, wave=wave)
    assert waves.u[9][0].tolist() == np.where(active, 5, 7).tolist()


@pytest.mark.parametrize("wave", [32, 64])
def test_comparisons_write_zero_where_lanes_are_not_active(wave):
    active = np.arange(wave) % 2 == 0
    values = np.arange(wave, dtype=np.int32) - 9
    waves = execute("v_cmp_gt_i32_e64 s[4:5], 3, v1", {1: values}, active=active, wave=wave)
    assert waves.mask(4)[0].tolist() == (active & (values < 3)).tolist()


@pytest.mark.parametrize("condition", ["lt", "nlt", "ge", "nge", "neq", "lg", "o", "u", "eq"])
def test_comparisons_of_nan(condition):
    a, b = np.full(LANES, np.nan, np.float32), np.ones(LANES, np.float32)
    waves = execute(f"v_cmp_{condition}_f32_e32 vcc_lo, v1, v2", {1: a, 2: b})
    assert waves.mask(VCC).all() == (condition in ("nlt", "nge", "neq", "u"))


def test_cndmask_takes_the_second_where_the_mask_is_set():
    vectors = {1: np.full(LANES, 1.0, np.float32), 2: np.full(LANES, 2.0, np.float32)}
    waves = execute("v_cndmask_b32_e64 v9, v1, -v2, s4", vectors, {4: 0xF0})
    assert waves.f[9][0].tolist() == [-2.0 if 4 <= k < 8 else 1.0 for k in range(LANES)]


def test_additions_with_carry():
    vectors = dict(zip((1, 2), WORDS, strict=False))
    total = [int(a) + int(b) + (k & 1) for k, (a, b) in enumerate(zip(*WORDS[:2], strict=True))]
    waves = execute("v_add_co_ci_u32_e64 v9, s6, v1, v2, s4", vectors, {4: 0xAAAAAAAA})
    assert waves.u[9][0].tolist() == [t & M for t in total]
    assert waves.mask(6)[0].tolist() == [t > M for t in total]
    borrow = [int(a) - int(b) for a, b in zip(*WORDS[:2], strict=True)]
    waves = execute("v_sub_co_u32 v9, vcc_lo, v1, v2", vectors)
    assert waves.u[9][0].tolist() == [t & M for t in borrow]
    assert waves.mask(VCC)[0].tolist() == [t < 0 for t in borrow]


@pytest.mark.parametrize("name", ["u64_u32", "i64_i32"])
def test_multiply_and_add_of_64_bits(name):
    of = signed if name[0] == "i" else int
    waves = execute(
        f"v_mad_{name} v[8:9], vcc_lo, v1, v2, v[3:4]", {1: WORDS[0], 2: WORDS[1], 3: WORDS[2], 4: WORDS[0]}
    )
    got = waves.u[8][0].astype(object) + (waves.u[9][0].astype(object) << 32)
    for k in range(LANES):
        a, b, low = int(WORDS[0][k]), int(WORDS[1][k]), int(WORDS[2][k])
        assert got[k] == of(a) * of(b) + (low | a << 32) & (1 << 64) - 1


def test_doubles():
    a, b = RNG.standard_normal(LANES), RNG.standard_normal(LANES)
    words = {
        1: a.view(np.uint32)[::2],
        2: a.view(np.uint32)[1::2],
        3: b.view(np.uint32)[::2],
        4: b.view(np.uint32)[1::2],
    }
    waves = execute("v_fma_f64 v[8:9], v[1:2], -v[3:4], 1.0", words)
    got = waves.get64(8, 9)[0].view(np.float64)
    want = [float(1 - Fraction(x) * Fraction(y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert got.tolist() == want


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e37, 1e-38, 1e-44])
def test_division_is_correctly_rounded(scale):
    """The sequence that compilers emit for a / b."""
    a, b = FLOATS[0] * np.float32(scale), FLOATS[1]
    r = {1: a, 2: b}

    def step(text, vcc=0):
        waves = execute(text, r, {VCC: vcc})
        r.update({k: waves.f[k][0].copy() for k in range(1, 16)})
        return int(waves.scalars[0, VCC])

    step("v_div_scale_f32 v3, null, v2, v2, v1")
    flag = step("v_div_scale_f32 v4, vcc_lo, v1, v2, v1")
    step("v_rcp_f32_e32 v5, v3")
    for text in (
        "v_fma_f32 v6, -v3, v5, 1.0", "v_fma_f32 v5, v6, v5, v5", "v_mul_f32_e32 v6, v4, v5",
        "v_fma_f32 v7, -v3, v6, v4", "v_fma_f32 v6, v7, v5, v6", "v_fma_f32 v7, -v3, v6, v4",
    ):  # fmt: skip
        step(text)
    step("v_div_fmas_f32 v8, v7, v5, v6", flag)
    step("v_div_fixup_f32 v9, v8, v2, v1")
    off = np.abs(r[9].astype(float) - (a / b).astype(float))
    assert (off <= np.where(np.abs(a / b) < 2.0**-126, 2.0**-149, 0)).all()  # denormal quotients are rounded twice


def test_both_halves_of_a_pair_read_before_either_writes():
    waves = execute("v_dual_mov_b32 v1, v2 :: v_dual_mov_b32 v2, v1", {1: WORDS[0], 2: WORDS[1]})
    assert waves.u[1][0].tolist() == WORDS[1].tolist()
    assert waves.u[2][0].tolist() == WORDS[0].tolist()


def test_halves_of_registers():
    waves = execute("v_mov_b16_e32 v1.h, v2.l", {1: WORDS[0], 2: WORDS[1]})
    assert waves.u[1][0].tolist() == [
        int(a) & 0xFFFF | (int(b) & 0xFFFF) << 16 for a, b in zip(*WORDS[:2], strict=True)
    ]


def test_packed_floats():
    wave = np.ones(64, np.float32)
    vectors = {k: wave * (k + 1) for k in range(1, 7)}
    waves = execute("v_pk_fma_f32 v[8:9], v[1:2], v[3:4], v[5:6] op_sel_hi:[0,1,1] neg_lo:[0,0,1]", vectors, wave=64)
    assert waves.f[8][0, 0] == 2 * 4 - 6
    assert waves.f[9][0, 0] == 2 * 5 + 7


@pytest.mark.parametrize(
    "text",
    ["v_no_such_f32 v1, v2", "v_add_f32_e32 v1, v2", "v_add_f32_e64 v1, v2, v3 wrong:1", "v_add_u32_e32 v1, -v2, v3",
     "v_cvt_f32_i32_e64 v1, v2 op_sel:[1,0]", "v_add_f32_dpp v1, v2, v3 row_nowhere:1"],
)  # fmt: skip
def test_what_is_not_modelled_raises_at_decode(text):
    with pytest.raises(UnsupportedInstruction):
        execute(text)


def test_every_line_of_the_table_decodes():
    layout = Layout(32, 0, 32, "gfx1100")
    for name, (result, sources, _) in vector.TABLE.items():
        at, text = 2, []
        sources = sources[:-1] if name in vector.ADDS_TO_ITS_RESULT else sources.rstrip("m")
        for letter in (result, *sources):
            text.append(f"v[{at}:{at + 1}]" if letter in "UID" else f"v{at}")
            at += 2
        vector.decode(parse.instruction(1, f"v_{name} " + ", ".join(text)), layout)


@pytest.mark.parametrize("select", [0x07060302, 0x05040100, 0x03020100, 0x00000004, 0x0C060C02, 0x0D0B0908])
def test_bytes_that_all_lanes_select_alike(select: int):
    """One selector for all takes a shorter way: the same as where another lane's differs."""
    g = np.random.default_rng(0)
    a, b = (g.integers(0, 2**32, (2, 32), dtype=np.uint32) for _ in range(2))
    alike = np.full((2, 32), select, np.uint32)
    other = alike.copy()
    other[1, 31] ^= 0x0C000000
    got, want = (formulas.permute_bytes(a, b, x) for x in (alike, other))
    assert (got[0] == want[0]).all()
    assert (got[1, :31] == want[1, :31]).all()
    assert (formulas.permute_bytes(a, b, alike[:, :1]) == got).all()
    both = a.astype(object) << 32 | b
    if max(select.to_bytes(4, "little")) < 8:
        assert (
            got.tolist()
            == sum((both >> 8 * s & 255) << 8 * k for k, s in enumerate(select.to_bytes(4, "little"))).tolist()
        )
