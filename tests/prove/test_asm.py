"""Somebody else's kernel: a specification, and what is wrong with one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lanewise.cli import main

ASSEMBLY = """
	.amdgcn_target "amdgcn-amd-amdhsa--gfx1100"
	.text
double:
	s_load_b64 s[2:3], s[0:1], 0x0
	v_lshlrev_b32_e32 v1, 2, v0
	s_waitcnt lgkmcnt(0)
	global_load_b32 v2, v1, s[2:3]
	s_waitcnt vmcnt(0)
	v_add_f32_e32 v2, v2, v2
	global_store_b32 v1, v2, s[2:3]
	s_endpgm
	.section	.rodata,"a",@progbits
	.amdhsa_kernel double
		.amdhsa_group_segment_fixed_size 0
		.amdhsa_private_segment_fixed_size 0
		.amdhsa_kernarg_size 8
		.amdhsa_user_sgpr_count 2
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_wavefront_size32 1
		.amdhsa_system_sgpr_workgroup_id_x 1
		.amdhsa_next_free_vgpr 3
		.amdhsa_next_free_sgpr 4
	.end_amdhsa_kernel
	.amdgpu_metadata
---
amdhsa.kernels:
  - .args:
      - .address_space:  global
        .offset:         0
        .size:           8
        .value_kind:     global_buffer
    .group_segment_fixed_size: 0
    .kernarg_segment_align: 8
    .kernarg_segment_size: 8
    .max_flat_workgroup_size: 64
    .name:           double
    .private_segment_fixed_size: 0
    .sgpr_count:     4
    .sgpr_spill_count: 0
    .symbol:         double.kd
    .vgpr_count:     3
    .vgpr_spill_count: 0
    .wavefront_size: 32
amdhsa.target:   amdgcn-amd-amdhsa--gfx1100
amdhsa.version:
  - 1
  - 2
...
	.end_amdgpu_metadata
"""

SPEC = """
import numpy as np

kernel = "double"

def cases():
    for n in (32, 64):
        x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
        yield {"name": f"{n} numbers", "grid": (1, 1, 1), "threads": n, "arguments": [x], "expected": {0: 2.0 * x}}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "double.s").write_text(ASSEMBLY)
    (tmp_path / "spec.py").write_text(SPEC)
    return tmp_path / "double.s", tmp_path / "spec.py"


def proved(files: tuple[Path, Path]) -> tuple[int, list[dict]]:
    out = files[0].with_name("rows.json")
    code = main(["prove", "--asm", str(files[0]), "--spec", str(files[1]), "--json", str(out)])
    return code, json.loads(out.read_text()).get("rows", [])


def test_a_right_kernel_holds_in_four_orders(files: tuple[Path, Path]):
    code, rows = proved(files)
    assert code == 0
    assert [(row["config"], row["warps"], row["max_rel_err"]) for row in rows] == [
        ("32 numbers", 1, 0),
        ("64 numbers", 2, 0),
    ]
    assert all(row["orders"] == ["lockstep", "forward", "reverse", "random"] for row in rows)
    assert {(row["arch"], row["wave"], row["coverage"]) for row in rows} == {("gfx1100", 32, 1.0)}


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        ("v_add_f32_e32 v2, v2, v2", "v_mul_f32_e32 v2, v2, v2", "argument 0 is off by"),
        ("v_lshlrev_b32_e32 v1, 2, v0", "v_lshlrev_b32_e32 v1, 3, v0", "MemoryFault"),
        ("\ts_waitcnt vmcnt(0)\n", "", "WaitError"),
    ],
)
def test_a_wrong_one_fails(files: tuple[Path, Path], old: str, new: str, note: str):
    files[0].write_text(ASSEMBLY.replace(old, new))
    code, rows = proved(files)
    assert code == 1
    assert not any(row["ok"] for row in rows)
    assert note in rows[0]["note"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("kernel = 1 / 0", "ZeroDivisionError"),
        ("kernel = 'double'", r"no function cases\(\)"),
        ("def cases():\n    yield {'grid': (1,), 'arguments': []}", r"expected \['arguments', 'expected', 'grid'\]"),
        ("def cases():\n    yield {'grid': (1,), 'arguments': [3], 'expected': {0: 3}}", "positions of arrays"),
        ("def cases():\n    yield {'grid': (1,), 'arguments': [3], 'expected': {}, 'blocks': 3}", "blocks"),
    ],
)
def test_a_bad_specification_is_one_message(
    files: tuple[Path, Path], spec: str, message: str, capsys: pytest.CaptureFixture[str]
):
    files[1].write_text(spec)
    assert main(["prove", "--asm", str(files[0]), "--spec", str(files[1])]) == 2
    import re

    assert re.search(message, capsys.readouterr().err)


def test_an_opcode_that_is_not_modelled_is_named_with_its_line(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
):
    files[0].write_text(ASSEMBLY.replace("v_add_f32_e32", "v_frobnicate_f32"))
    assert main(["prove", "--asm", str(files[0]), "--spec", str(files[1])]) == 2
    error = capsys.readouterr().err
    assert "v_frobnicate_f32" in error
    assert "line" in error


def test_one_file_without_the_other(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]):
    assert main(["prove", "--asm", str(files[0])]) == 2
    assert "--asm and --spec" in capsys.readouterr().err
