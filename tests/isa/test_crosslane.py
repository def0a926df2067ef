"""What moves between lanes."""

import numpy as np
import pytest
from isa_lab import execute

from lanewise.isa import UnsupportedInstruction

LANE32, LANE64 = np.arange(32, dtype=np.uint32), np.arange(64, dtype=np.uint32)


def dpp(control, wave=64, active=None, old=1000):
    lanes = np.arange(wave, dtype=np.uint32)
    waves = execute(f"v_mov_b32_dpp v2, v1 {control}", {1: lanes, 2: lanes + old}, wave=wave, active=active)
    return waves.u[2][0].tolist()


def test_dpp_moves_within_rows_of_16():
    assert dpp("row_shr:1 row_mask:0xf bank_mask:0xf") == [k - 1 if k % 16 else k + 1000 for k in range(64)]
    assert dpp("row_shl:2 row_mask:0xf bank_mask:0xf bound_ctrl:1") == [k + 2 if k % 16 < 14 else 0 for k in range(64)]
    assert dpp("row_ror:4 row_mask:0xf bank_mask:0xf") == [k & ~15 | (k - 4) % 16 for k in range(64)]
    assert dpp("row_mirror row_mask:0xf bank_mask:0xf") == [k & ~15 | 15 - k % 16 for k in range(64)]
    assert dpp("row_half_mirror row_mask:0xf bank_mask:0xf") == [k & ~7 | 7 - k % 8 for k in range(64)]
    assert dpp("quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf") == [k ^ 1 for k in range(64)]
    assert dpp("row_xmask:8 row_mask:0xf bank_mask:0xf", wave=32) == [k ^ 8 for k in range(32)]


def test_dpp_broadcasts_and_masks():
    assert dpp("row_bcast:15 row_mask:0xa bank_mask:0xf") == [
        (k & ~15) - 1 if k // 16 in (1, 3) else k + 1000 for k in range(64)
    ]
    assert dpp("row_bcast:31 row_mask:0xc bank_mask:0xf") == [31 if k >= 32 else k + 1000 for k in range(64)]
    assert dpp("wave_shr:1 row_mask:0xf bank_mask:0xf") == [k - 1 if k else 1000 for k in range(64)]


def test_dpp_does_not_read_lanes_that_are_not_active():
    active = LANE64 % 2 == 1
    assert dpp("quad_perm:[0,0,2,2] row_mask:0xf bank_mask:0xf", active=active) == [k + 1000 for k in range(64)]
    assert dpp("quad_perm:[0,0,2,2] row_mask:0xf bank_mask:0xf bound_ctrl:1", active=active) == [
        0 if k % 2 else k + 1000 for k in range(64)
    ]


@pytest.mark.parametrize(("wave", "lanes"), [(32, LANE32), (64, LANE64)])
def test_bpermute_pulls_and_permute_pushes(wave, lanes):
    address = (lanes * 7 + 3) % wave * 4
    pulled = execute("ds_bpermute_b32 v3, v1, v2", {1: address, 2: lanes + 5}, wave=wave).u[3][0]
    assert pulled.tolist() == ((lanes * 7 + 3) % wave + 5).tolist()
    pushed = execute("ds_permute_b32 v3, v1, v2", {1: address, 2: lanes + 5}, wave=wave).u[3][0]
    want = np.zeros(wave, np.uint32)
    want[(lanes * 7 + 3) % wave] = lanes + 5
    assert pushed.tolist() == want.tolist()


def test_swizzle():
    lanes = execute("ds_swizzle_b32 v3, v1 offset:swizzle(SWAP,16)", {1: LANE64}, wave=64).u[3][0]
    assert lanes.tolist() == [k ^ 16 for k in range(64)]
    lanes = execute("ds_swizzle_b32 v3, v1 offset:0x401f", {1: LANE32}).u[3][0]
    assert lanes.tolist() == [k ^ 16 for k in range(32)]


def test_permlanex16_reads_the_other_row():
    text = "v_permlanex16_b32 v2, v1, s4, s5"
    waves = execute(text, {1: LANE32}, {4: 0x76543210, 5: 0xFEDCBA98})
    assert waves.u[2][0].tolist() == [k ^ 16 for k in range(32)]


@pytest.mark.parametrize("distance", [16, 32])
def test_permlane_swap(distance):
    waves = execute(f"v_permlane{distance}_swap_b32 v1, v2", {1: LANE64, 2: LANE64 + 100}, wave=64, arch="gfx950")
    assert waves.u[1][0].tolist() == [k + 100 - distance if k & distance else k for k in range(64)]
    assert waves.u[2][0].tolist() == [k + 100 if k & distance else k + distance for k in range(64)]


def test_lane_reads_and_writes():
    active = LANE64 >= 5
    assert int(execute("v_readfirstlane_b32 s8, v1", {1: LANE64 + 9}, wave=64, active=active).scalars[0, 8]) == 14
    assert int(execute("v_readlane_b32 s8, v1, 63", {1: LANE64 + 9}, wave=64).scalars[0, 8]) == 72
    waves = execute("v_writelane_b32 v1, s4, 2", {1: LANE64}, {4: 77}, wave=64, active=active)
    assert waves.u[1][0, :4].tolist() == [0, 1, 77, 3]


def test_mbcnt_counts_the_bits_below_a_lane():
    waves = execute("v_mbcnt_lo_u32_b32 v2, s4, v1", {1: LANE64}, {4: 0xF0F0F0F0}, wave=64)
    assert waves.u[2][0].tolist() == [(0xF0F0F0F0 & (1 << min(k, 32)) - 1).bit_count() + k for k in range(64)]
    waves = execute("v_mbcnt_hi_u32_b32 v2, -1, 0", wave=64)
    assert waves.u[2][0].tolist() == [max(k - 32, 0) for k in range(64)]


def test_sdwa_selects_parts():
    words = np.array([0x11223344 + k for k in range(64)], np.uint32)
    text = "v_and_b32_sdwa v2, v1, v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_2 src1_sel:WORD_1"
    waves = execute(text, {1: words, 3: np.full(64, 0x00FF0000, np.uint32)}, wave=64)
    assert waves.u[2][0].tolist() == [0x22] * 64


@pytest.mark.parametrize(
    ("part", "want"), [("WORD_1", 0x33440000), ("WORD_0", 0x3344), ("BYTE_2", 0x440000), ("BYTE_3", 0x44000000)]
)
def test_sdwa_makes_a_part_of_its_result_and_zeros_elsewhere(part: str, want: int):
    words, active = np.full(32, 0x11223344, np.uint32), np.arange(32) % 2 == 0
    text = f"v_or_b32_sdwa v1, v1, v3 dst_sel:{part} dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD"
    waves = execute(text, {1: words, 3: np.zeros(32, np.uint32)}, active=active, wave=32)
    assert waves.u[1][0].tolist() == np.where(active, want, 0x11223344).tolist()


def test_sdwa_that_keeps_other_bits_is_refused():
    text = "v_or_b32_sdwa v1, v1, v3 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD src1_sel:DWORD"
    with pytest.raises(UnsupportedInstruction, match="dst_sel"):
        execute(text, wave=32)
