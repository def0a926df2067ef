"""The mutator: what its rules change."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanewise.isa.mutate import NOTHING, RULES, mutants, sample

WAVEFRONT = Path(__file__).parents[1] / "incidents" / "wavefront"
BY_NAME = {rule.name: rule for rule in RULES}


@pytest.mark.parametrize(
    ("rule", "arch", "before", "after"),
    [
        ("cross-lane control", "gfx942", "v_add_f32_dpp v0, v1, v2 row_shr:1 row_mask:0xf", "row_shr:2"),
        ("cross-lane control", "gfx942", "v_add_f32_dpp v0, v1, v2 row_bcast:15 row_mask:0xa", "row_bcast:31"),
        ("cross-lane control", "gfx1100", "v_add_f32_dpp v0, v1, v2 quad_perm:[1,0,3,2]", "quad_perm:[0,1,2,3]"),
        ("cross-lane control", "gfx1100", "v_permlanex16_b32 v0, v1, -1, -1", "v_permlanex16_b32 v0, v1, 0, 0"),
        ("cross-lane control", "gfx942", "ds_bpermute_b32 v0, v1, v2", "v2 offset:4"),
        ("cross-lane control", "gfx942", "ds_bpermute_b32 v0, v1, v2 offset:8", "offset:12"),
        ("EXEC", "gfx942", "s_and_saveexec_b64 s[0:1], vcc", "s_mov_b64 s[0:1], exec"),
        ("EXEC", "gfx1100", "s_or_b32 exec_lo, exec_lo, s3", NOTHING),
        ("EXEC", "gfx942", "global_store_dword v0, v1, s[0:1]", "s_mov_b32 exec_hi, 0\nglobal_store"),
        ("EXEC", "gfx1201", "global_store_b32 v0, v1, s[0:1]", "s_mov_b32 exec_lo, 0xffff\nglobal_store"),
        ("atomic", "gfx942", "global_atomic_add_f32 v3, v7, s[0:1]", NOTHING),
        ("atomic", "gfx942", "global_atomic_add_f32 v3, v7, s[0:1]", "global_store_dword v3, v7, s[0:1]"),
        ("atomic", "gfx1100", "buffer_atomic_add_f32 v3, v7, s[0:3], 0 offen", "buffer_store_b32 v3, v7"),
        ("atomic", "gfx1030", "global_atomic_cmpswap v9, v[2:3], v[4:5], off glc", "v_mov_b32_e32 v9, v5"),
        ("atomic", "gfx1030", "global_atomic_cmpswap v9, v8, v[4:5], s[0:1] glc", "v_mov_b32_e32 v9, v5"),
        ("store", "gfx942", "ds_write_b32 v0, v1", NOTHING),
        ("barrier", "gfx942", "s_barrier", NOTHING),
        ("barrier", "gfx1201", "s_barrier_wait -1", NOTHING),
        ("wait", "gfx942", "s_waitcnt vmcnt(0) lgkmcnt(0)", "s_waitcnt vmcnt(0)"),
        ("wait", "gfx942", "s_waitcnt lgkmcnt(0)", NOTHING),
        ("wait", "gfx942", "s_waitcnt vmcnt(3)", "vmcnt(4)"),
        ("wait", "gfx1201", "s_wait_loadcnt 0x0", "s_wait_loadcnt 0x1"),
        ("offset", "gfx942", "global_load_dword v0, v1, s[0:1] offset:8", "offset:12"),
        ("offset", "gfx942", "s_load_dword s0, s[4:5], 0x18", "0x1c"),
        ("wave width", "gfx1100", "v_and_b32_e32 v0, 31, v0", "v_and_b32_e32 v0, 63, v0"),
        ("comparison", "gfx1100", "v_cmp_lt_f32_e32 vcc_lo, v0, v1", "v_cmp_le_f32_e32"),
        ("comparison", "gfx1100", "s_cbranch_scc1 .L", "s_cbranch_scc0 .L"),
        ("comparison", "gfx1100", "s_cbranch_vccnz .L", "s_cbranch_vccz .L"),
        ("sum", "gfx1100", "v_add_f32_e32 v0, v1, v2", "v_sub_f32_e32 v0, v1, v2"),
    ],
)
def test_a_rule_changes_an_instruction(rule: str, arch: str, before: str, after: str) -> None:
    assert any(after in changed for changed in BY_NAME[rule].changes(before, arch))


@pytest.mark.parametrize("text", ["s_delay_alu instid0(VALU_DEP_1)", "s_nop 0", "s_endpgm", "v_mov_b32_e32 v0, v1"])
def test_what_costs_only_time_is_left_alone(text: str) -> None:
    assert not [changed for rule in RULES for changed in rule.changes(text, "gfx1151")]


def test_a_mutant_changes_its_line_only() -> None:
    text = (WAVEFRONT / "fixed.gfx942.s").read_text()
    for mutant in mutants(text):
        changed = mutant.apply(text)
        assert changed != text
        before, after = text.split("\n"), changed.split("\n")
        assert before[: mutant.line - 1] == after[: mutant.line - 1]
        assert before[mutant.line :] == after[len(after) - len(before) + mutant.line :]


def test_a_sample_takes_some_of_every_rule() -> None:
    everything = list(mutants((WAVEFRONT / "fixed.gfx942.s").read_text()))
    drawn = sample(everything, 2)
    assert drawn == sample(everything, 2) == sorted(drawn, key=lambda mutant: mutant.line)
    for rule in {mutant.rule.name for mutant in everything}:
        there, taken = ([m for m in group if m.rule.name == rule] for group in (everything, drawn))
        assert len(taken) == min(2, len(there))
