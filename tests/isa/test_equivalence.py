"""Why a mutant changes no output: every kind of reason, on a kernel made for it, and what turns it into a detection."""

from __future__ import annotations

import numpy as np
import pytest
from isa_lab import kernel

from lanewise.isa import load
from lanewise.isa.examine import Examination, Outcome
from lanewise.isa.mutate import NOTHING, RULES, Mutant
from lanewise.prove.mutation import OnSpec

BY_NAME = {rule.name: rule for rule in RULES}
START = """
    s_load_b128 s[4:7], s[0:1], 0x0
    v_lshlrev_b32_e32 v1, 2, v0
    s_waitcnt lgkmcnt(0)
    global_load_b32 v2, v1, s[4:5]
    s_waitcnt vmcnt(0)
"""
END = """
    global_store_b32 v1, v2, s[6:7]
    s_endpgm
"""


def examine(middle: str, rule: str, before: str, after: str, *, waves: int = 1, start: str = START) -> Outcome:
    """What becomes of a mutant of a kernel that loads v2 and stores it; what the kernel itself leaves is right."""
    text = kernel(start + middle + END, lds=1024)
    line = next(k for k, x in enumerate(text.split("\n"), 1) if x.strip() == before)
    numbers, left = np.arange(32 * waves, dtype=np.float32), np.zeros(32 * waves, np.float32)
    load(text).run((1,), [numbers, left], waves=waves)
    arguments = [numbers, np.zeros_like(left)]
    trial = OnSpec([{"grid": (1,), "waves": waves, "arguments": arguments, "expected": {1: left}}])
    return Examination(text, trial).examine(Mutant(BY_NAME[rule], line, before, after))


COMPARE = """
    v_cmp_gt_f32_e32 vcc_lo, {limit}, v2
    v_cndmask_b32_e32 v2, v2, v2, vcc_lo
"""
SKIP = """
    s_mov_b32 s8, 3
    s_cmp_lt_i32 s8, {limit}
    s_cbranch_scc1 .L1
    v_mov_b32_e32 v3, v2
    .L1:
"""
OFF = """
    s_mov_b32 exec_lo, {lanes}
    v_mov_b32_e32 v3, 1.0
    ds_add_f32 v1, v3
    s_mov_b32 exec_lo, -1
"""
TWICE = """
    global_store_b32 v1, v{first}, s[6:7]
    global_store_b32 v1, v2, s[6:7]
"""
ADD = """
    v_mov_b32_e32 v3, {amount}
    v_add_f32_e32 v4, v2, v3
    v_{use}_f32_e32 v5, v4, v2
"""


@pytest.mark.parametrize(
    ("reason", "rule", "middle", "before", "after", "said"),
    [
        ("no lane is on", "atomic", OFF.format(lanes=0), "ds_add_f32 v1, v3", NOTHING, "in any of 1 executions"),
        ("changes nothing", "EXEC", "s_or_b32 exec_lo, exec_lo, s3", "s_or_b32 exec_lo, exec_lo, s3", NOTHING,
         "each of 1 executions"),
        ("same effect", "comparison", COMPARE.format(limit="-1.0"), "v_cmp_gt_f32_e32 vcc_lo, -1.0, v2",
         "v_cmp_ge_f32_e32 vcc_lo, -1.0, v2", "the two sides are never equal"),
        ("not used", "comparison", COMPARE.format(limit="1.0"), "v_cmp_gt_f32_e32 vcc_lo, 1.0, v2",
         "v_cmp_ge_f32_e32 vcc_lo, 1.0, v2", "vcc_lo differ after 1 of 1 executions, until the wave ends"),
        ("absorbed", "sum", ADD.format(amount="1.0", use="add"), "v_add_f32_e32 v4, v2, v3", "v_sub_f32_e32 v4, v2, v3",
         "v4 differ after 1 of 1 executions, then v5"),
        ("not used", "sum", ADD.format(amount="-0.5", use="max"), "v_add_f32_e32 v4, v2, v3",
         "v_add_f32_e32 v4, v2, v3 clamp", "v4 differ"),
        ("not used", "sum", ADD.format(amount="1.0", use="add"), "v_add_f32_e32 v5, v4, v2", NOTHING,
         "v5 differ after 1 of 1 executions, until the wave ends"),
        ("another way", "comparison", SKIP.format(limit=3), "s_cmp_lt_i32 s8, 3", "s_cmp_le_i32 s8, 3",
         "1 of 1 waves part at line"),
        ("overwritten", "offset", TWICE.format(first=1), "global_store_b32 v1, v1, s[6:7]", NOTHING,
         "memory differs after 1 of 1 executions"),
        ("one wave", "barrier", "s_barrier", "s_barrier", NOTHING, "nobody to wait for"),
        ("nothing to wait for", "wait", "s_waitcnt lgkmcnt(0)\n s_nop 1\n s_waitcnt vmcnt(1)", "s_waitcnt vmcnt(1)",
         "s_waitcnt vmcnt(2)", "no register is under way"),
        ("waited for later", "wait", "global_load_b32 v3, v1, s[4:5]\n s_waitcnt vmcnt(0) lgkmcnt(1)\n s_nop 1\n"
         " s_waitcnt vmcnt(0) lgkmcnt(2)", "s_waitcnt vmcnt(0) lgkmcnt(1)", NOTHING,
         "v3 under way there, not used before, and on every path waited for by line 12"),
    ],
)  # fmt: skip
def test_a_reason_is_found(reason: str, rule: str, middle: str, before: str, after: str, said: str) -> None:
    outcome = examine(middle, rule, before, after)
    assert (outcome.status, outcome.reason) == ("same", reason), outcome
    assert said in outcome.detail


@pytest.mark.parametrize(
    ("rule", "middle", "before", "after"),
    [
        ("atomic", "ds_store_b32 v1, v2\n" + OFF.format(lanes=1) + "ds_load_b32 v2, v1\n s_waitcnt lgkmcnt(0)\n",
         "ds_add_f32 v1, v3", NOTHING),
        ("sum", ADD.format(amount="1.0", use="add"), "v_add_f32_e32 v4, v2, v3", "v_add_f32_e32 v2, v2, v3"),
        ("wait", "", "s_waitcnt vmcnt(0)", NOTHING),
        ("offset", TWICE.format(first=2), "global_store_b32 v1, v2, s[6:7]",
         "global_store_b32 v1, v1, s[6:7] offset:4"),
    ],
)  # fmt: skip
def test_what_matters_is_detected(rule: str, middle: str, before: str, after: str) -> None:
    assert examine(middle, rule, before, after).status in ("value", "error")


def test_waves_that_touch_words_of_their_own_need_no_barrier() -> None:
    outcome = examine("ds_store_b32 v1, v2\n s_waitcnt lgkmcnt(0)\n s_barrier\n ds_load_b32 v2, v1\n"
                      " s_waitcnt lgkmcnt(0)", "barrier", "s_barrier", NOTHING, waves=2)  # fmt: skip
    assert (outcome.status, outcome.reason) == ("same", "no conflict")


def test_an_instruction_behind_a_branch_that_always_jumps_is_unreached() -> None:
    outcome = examine("s_branch .L1\n v_add_f32_e32 v2, v2, v2\n .L1:", "sum", "v_add_f32_e32 v2, v2, v2",
                      "v_sub_f32_e32 v2, v2, v2")  # fmt: skip
    assert (outcome.status, outcome.detail) == ("unreached", "no case executes it: no other instruction leads there")
    outcome = examine(SKIP.format(limit=4), "sum", "v_mov_b32_e32 v3, v2", NOTHING)
    assert "s_cbranch_scc1 .L1 always jumps (s_cmp_lt_i32 s8, 4)" in outcome.detail
