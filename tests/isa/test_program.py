"""Programs: arguments, control flow, orders, coverage, limits."""

import numpy as np
import pytest
from isa_lab import kernel

from lanewise.errors import InputError, LanewiseError
from lanewise.isa import StepLimitError, UnsupportedInstruction, load
from lanewise.isa.schedule import ORDERS

# Every thread counts down from its number; thread 5 of each workgroup skips the store.
LOOP = """
    s_load_b128 s[4:7], s[0:1], 0x0
    v_mov_b32_e32 v1, 0
    v_mov_b32_e32 v2, v0
    s_mov_b32 s8, 0
    s_waitcnt lgkmcnt(0)
.L1:
    v_cmp_eq_u32_e32 vcc_lo, 0, v2
    s_or_b32 s8, vcc_lo, s8
    s_and_not1_b32 exec_lo, exec_lo, s8
    s_cbranch_execz .L2
    v_add_nc_u32_e32 v1, v1, v2
    v_add_nc_u32_e32 v2, -1, v2
    s_branch .L1
.L2:
    s_mov_b32 exec_lo, -1
    v_cmp_ne_u32_e32 vcc_lo, 5, v0
    s_and_saveexec_b32 s9, vcc_lo
    s_lshl_b32 s10, s2, 6
    v_add_lshl_u32 v3, s10, v0, 2
    global_store_b32 v3, v1, s[4:5]
    s_endpgm
"""


@pytest.mark.parametrize("order", ORDERS)
def test_loops_and_branches_of_lanes(order):
    out = np.full(3 * 64, -1, np.int32)
    run = load(kernel(LOOP)).run((3,), [out, None], waves=2, order=order, seed=4)
    want = [-1 if k == 5 else k * (k + 1) // 2 for k in range(64)]
    assert out.reshape(3, 64).tolist() == [want] * 3
    assert run.coverage.all()
    assert run.wave_instructions >= run.steps > 0


def test_a_program_says_what_it_is():
    program = load(kernel(LOOP))
    assert (program.name, program.arch, program.wave, program.lds, program.spills) == ("k", "gfx1100", 32, 0, 0)
    assert program.registers == {"vgpr": 8, "agpr": 0, "sgpr": 16}
    first = program.instructions[0]
    assert (first.opcode, first.text, first.line) == ("s_load_b128", "s_load_b128 s[4:7], s[0:1], 0x0", 4)


def test_an_endless_loop_ends():
    with pytest.raises(StepLimitError):
        load(kernel(".L1:\n s_branch .L1\n s_endpgm")).run((1,), [None, None], limit=1000)


def test_registers_start_as_nan():
    body = """
        s_load_b128 s[4:7], s[0:1], 0x0
        v_lshlrev_b32_e32 v1, 2, v0
        s_waitcnt lgkmcnt(0)
        global_store_b32 v1, v7, s[4:5]
        s_endpgm
    """
    out = np.zeros(32, np.float32)
    load(kernel(body)).run((1,), [out, None])
    assert np.isnan(out).all()


@pytest.mark.parametrize(
    "line", ["v_unheard_of v1", "s_getpc_b64 s[0:1]", "s_branch .Lnowhere", "v_mov_b32_e32 v1, w2"]
)
def test_unknown_lines_raise_with_their_number(line):
    with pytest.raises(UnsupportedInstruction, match="line 5") as caught:
        load(kernel(f"s_nop 0\n{line}\ns_endpgm"))
    assert isinstance(caught.value, LanewiseError)


def test_arguments_are_checked():
    program = load(kernel(LOOP))
    with pytest.raises(InputError, match="at most 2"):
        program.run((1,), [None] * 3)
    with pytest.raises(InputError, match="contiguous"):
        program.run((1,), [np.zeros((4, 4), np.float32).T, None])


def test_an_empty_grid_does_nothing():
    out = np.full(4, -1, np.int32)
    assert load(kernel(LOOP)).run((0,), [out, None]).steps == 0
    assert (out == -1).all()
