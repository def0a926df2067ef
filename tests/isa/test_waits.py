"""Waits that are missing, or that wait for too few."""

import numpy as np
import pytest
from isa_lab import kernel

from lanewise.isa import WaitError, load, waits

BODY = """
    s_load_b128 s[4:7], s[0:1], 0x0
    v_lshlrev_b32_e32 v1, 2, v0
    s_waitcnt lgkmcnt(0)
    global_load_b32 v2, v1, s[4:5]
    global_load_b32 v3, v1, s[4:5]
    s_waitcnt vmcnt(1)
    v_add_nc_u32_e32 v2, 1, v2
    s_waitcnt vmcnt(0)
    v_add_nc_u32_e32 v2, v2, v3
    ds_store_b32 v1, v2
    s_waitcnt lgkmcnt(0)
    s_barrier
    ds_load_b32 v2, v1
    s_waitcnt lgkmcnt(0)
    global_store_b32 v1, v2, s[6:7]
    s_endpgm
"""


def run(body, **options):
    out = np.zeros(32, np.int32)
    load(kernel(body, lds=128, **options)).run((1,), [np.arange(32, dtype=np.int32), out])
    return out


def test_waits_that_are_enough():
    assert run(BODY).tolist() == [2 * k + 1 for k in range(32)]


@pytest.mark.parametrize("line", [k for k, x in enumerate(BODY.split("\n")) if "waitcnt" in x])
def test_each_wait_is_needed(line):
    lines = BODY.split("\n")
    del lines[line]
    with pytest.raises(WaitError):
        run("\n".join(lines))


@pytest.mark.parametrize(
    ("right", "wrong"), [("vmcnt(1)", "vmcnt(2)"), ("vmcnt(0)", "vmcnt(1)"), ("lgkmcnt(0)", "lgkmcnt(1)")]
)
def test_a_wait_for_too_few(right, wrong):
    with pytest.raises(WaitError):
        run(BODY.replace(right, wrong))


def test_a_loop_carries_what_is_under_way():
    body = """
        s_load_b128 s[4:7], s[0:1], 0x0
        v_lshlrev_b32_e32 v1, 2, v0
        v_mov_b32_e32 v2, 0
        s_mov_b32 s8, 3
        s_waitcnt lgkmcnt(0)
    .L1:
        v_add_nc_u32_e32 v3, 1, v2
        global_load_b32 v2, v1, s[4:5]
        s_add_i32 s8, s8, -1
        s_cmp_lg_u32 s8, 0
        s_cbranch_scc1 .L1
        s_endpgm
    """
    with pytest.raises(WaitError, match="v2"):
        run(body)
    run(body.replace(".L1:\n", ".L1:\n s_waitcnt vmcnt(0)\n"))


def test_generation_12_has_counters_of_its_own():
    body = BODY.replace("s_waitcnt vmcnt(1)", "s_wait_loadcnt 0x1").replace("s_waitcnt vmcnt(0)", "s_wait_loadcnt 0x0")
    first, rest = body.split("s_waitcnt lgkmcnt(0)", 1)
    body = first + "s_wait_kmcnt 0x0" + rest.replace("s_waitcnt lgkmcnt(0)", "s_wait_dscnt 0x0")
    body = body.replace("s_barrier", "s_barrier_signal -1\n s_barrier_wait -1")
    assert run(body, arch="gfx1201").tolist() == [2 * k + 1 for k in range(32)]
    with pytest.raises(WaitError):
        run(body.replace("s_wait_kmcnt 0x0", "s_wait_dscnt 0x0"), arch="gfx1201")


def test_what_a_wait_is_for_and_which_wait_comes_next():
    body = """
        s_load_b128 s[4:7], s[0:1], 0x0
        v_lshlrev_b32_e32 v1, 2, v0
        s_mov_b32 s8, 3
        s_waitcnt lgkmcnt(0)
    .L1:
        global_load_b32 v2, v1, s[4:5]
        s_waitcnt vmcnt(1)
        s_add_i32 s8, s8, -1
        s_cmp_lg_u32 s8, 0
        s_cbranch_scc1 .L1
        s_cmp_lg_u32 s8, 1
        s_cbranch_scc1 .L2
        s_waitcnt vmcnt(0)
        s_endpgm
    .L2:
        s_nop 0
        s_endpgm
    """
    program = load(kernel(body))
    number = {ins.text: k for k, ins in enumerate(program.instructions)}
    scalar = {("lds", "smem", 0), *(("lds", "s", half) for half in range(8, 16))}
    load_ = {("load", "v", 4), ("load", "v", 5)}
    assert waits.finished(program, number["s_waitcnt lgkmcnt(0)"]) == scalar
    assert waits.finished(program, number["s_waitcnt vmcnt(1)"]) == set()
    assert waits.finished(program, number["s_waitcnt vmcnt(0)"]) == load_
    ends = [number["s_waitcnt vmcnt(0)"], len(program.instructions) - 1]
    assert waits.waited_by(program, number["s_waitcnt vmcnt(1)"], load_) == ends


HALVES = """
    s_load_b128 s[4:7], s[0:1], 0x0
    v_lshlrev_b32_e32 v1, 2, v0
    v_mov_b32_e32 v2, 0
    v_mov_b32_e32 v4, 5
    s_waitcnt lgkmcnt(0)
    ds_store_b32 v1, v4
    s_waitcnt lgkmcnt(0)
    ds_load_u16_d16 v2, v1
    global_load_d16_hi_b16 v2, v1, s[4:5]
    s_waitcnt lgkmcnt(0)
    ds_store_b16 v1, v2
    v_mov_b16_e32 v3.l, v2.l
    s_waitcnt vmcnt(0)
    s_waitcnt lgkmcnt(0)
    global_store_b32 v1, v2, s[6:7]
    s_endpgm
"""


def test_the_other_half_of_a_register_may_be_under_way():
    """Loads of two counters fill a register's halves; each half is used after the wait for its own."""
    assert run(HALVES).tolist() == [(k << 16) + 5 for k in range(32)]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("v_mov_b16_e32 v3.l, v2.l", "v_mov_b16_e32 v3.l, v2.h"),
        ("v_mov_b16_e32 v3.l, v2.l", "v_mov_b16_e32 v2.h, v4.l"),
        ("v_mov_b16_e32 v3.l, v2.l", "v_mov_b32_e32 v3, v2"),
        ("ds_store_b16 v1, v2", "ds_store_b16_d16_hi v1, v2"),
        ("ds_store_b16 v1, v2", "ds_store_b32 v1, v2"),
        ("global_load_d16_hi_b16", "global_load_d16_b16"),
        ("global_load_d16_hi_b16", "global_load_u16"),
        ("    s_waitcnt vmcnt(0)\n", ""),
    ],
)
def test_the_half_that_is_under_way_may_not_be_used(right, wrong):
    with pytest.raises(WaitError, match="v2"):
        run(HALVES.replace(right, wrong))


def test_with_error_correction_a_load_of_a_half_fills_the_register():
    body = """
        s_load_dwordx4 s[4:7], s[0:1], 0x0
        v_lshlrev_b32_e32 v1, 2, v0
        v_mov_b32_e32 v2, 0
        s_waitcnt lgkmcnt(0)
        global_load_short_d16_hi v2, v1, s[4:5]
        global_store_short v1, v2, s[6:7]
        s_endpgm
    """
    with pytest.raises(WaitError, match="v2"):
        run(body, wave=64, arch="gfx942")
