"""Which waves run together in the orders of waves, and which may not."""

import numpy as np
import pytest
from isa_lab import kernel

from lanewise.isa import load

ALONE = """
    s_load_b128 s[4:7], s[0:1], 0x0
    s_lshl_b32 s8, s2, 6
    v_add_lshl_u32 v1, s8, v0, 2
    s_waitcnt lgkmcnt(0)
    global_store_b32 v1, v0, s[4:5]
    s_endpgm
"""
# Every wave stores how many were there before it.
TICKETS = """
    s_load_b128 s[4:7], s[0:1], 0x0
    v_mov_b32_e32 v1, 0
    v_mov_b32_e32 v2, 1
    s_lshl_b32 s8, s2, 6
    v_add_lshl_u32 v3, s8, v0, 2
    v_and_b32_e32 v4, 31, v0
    v_cmp_eq_u32_e32 vcc_lo, 0, v4
    s_and_saveexec_b32 s9, vcc_lo
    s_waitcnt lgkmcnt(0)
    global_atomic_add_u32 v5, v1, v2, s[4:5] glc
    s_waitcnt vmcnt(0)
    global_store_b32 v3, v5, s[6:7]
    s_endpgm
"""
WITH_LDS = ALONE.replace("s_endpgm", "ds_store_b32 v1, v0\n s_endpgm")
WITH_BARRIER = ALONE.replace("s_endpgm", "s_barrier\n s_endpgm")
EXCHANGE = ALONE.replace("s_endpgm", "ds_bpermute_b32 v2, v1, v0\n s_waitcnt lgkmcnt(0)\n s_endpgm")


@pytest.mark.parametrize(
    ("body", "meeting", "matters"),
    [
        (ALONE, "none", (False, False, False)),
        (EXCHANGE, "none", (False, False, False)),  # lanes of a wave alone
        (WITH_LDS, "workgroup", (False, False, True)),
        (WITH_BARRIER, "workgroup", (False, False, True)),
        (TICKETS, "grid", (False, True, True)),
    ],
)
def test_how_far_waves_hear_of_one_another(body: str, meeting: str, matters: tuple[bool, bool, bool]):
    program = load(kernel(body, lds=1024))
    assert program.meeting == meeting
    launches = (((1,), 1), ((3, 2), 1), ((1,), 2))  # grid, waves of a workgroup
    assert tuple(program.order_matters(grid, waves) for grid, waves in launches) == matters


def test_waves_that_never_meet_run_together_in_every_order():
    program, out = load(kernel(ALONE)), np.zeros(4 * 64, np.int32)
    steps = {order: program.run((4,), [out, None], waves=2, order=order).steps for order in ("lockstep", "reverse")}
    assert steps["reverse"] == steps["lockstep"] == len(program.instructions)
    assert out.tolist() == [*range(64)] * 4


def test_workgroups_that_never_meet_run_together_wave_by_wave():
    program, out = load(kernel(WITH_BARRIER)), np.zeros(4 * 64, np.int32)
    run = program.run((4,), [out, None], waves=2, order="forward")
    assert run.steps == 2 * len(program.instructions)
    assert out.tolist() == [*range(64)] * 4


@pytest.mark.parametrize(("order", "first"), [("forward", 0), ("reverse", 5)])
def test_waves_that_meet_in_an_atomic_run_one_by_one(order: str, first: int):
    count, out = np.zeros(1, np.int32), np.full(3 * 64, -1, np.int32)
    load(kernel(TICKETS)).run((3,), [count, out], waves=2, order=order)
    assert out[::32].tolist() == [abs(first - k) for k in range(6)]
