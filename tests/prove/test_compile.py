from __future__ import annotations

import dataclasses
import struct
from pathlib import Path

import pytest

from lanewise.prove import compile as compiling
from lanewise.prove.compile import (
    SAME_IR,
    SAME_IR_WITH,
    SAME_IR_WITHOUT_DOTS,
    Compiled,
    CompileError,
    amd_numbers,
    as_launched,
    code_bytes,
    compile_for,
    instructions,
    triton_version,
)
from lanewise.prove.launches import BEST, Configuration
from lanewise.prove.reassemble import assemble, reassembled
from lanewise.target import TARGETS, Target, compiles, find, float_atomics

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("cache_of_its_own")

ASSEMBLY = """
	.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
kernel:                                 ; @kernel
; %bb.0:
	s_load_dword s0, s[2:3], 0x0            // comment
.LBB0_1:
	global_atomic_cmpswap v1, v[2:3], v[4:5], off sc0
	s_endpgm
	.section	.rodata
amdhsa.kernels:
  - .agpr_count:     4
    .sgpr_count:     30
    .sgpr_spill_count: 1
    .vgpr_count:     20
    .vgpr_spill_count: 2
"""


def test_numbers_of_an_assembly():
    assert instructions(ASSEMBLY) == [
        "s_load_dword s0, s[2:3], 0x0",
        "global_atomic_cmpswap v1, v[2:3], v[4:5], off sc0",
        "s_endpgm",
    ]
    want = {"vgprs": 16, "agprs": 4, "sgprs": 30, "spills": 3, "instructions": 3, "cas_loops": 1}
    assert amd_numbers(ASSEMBLY) == want


def test_code_of_an_elf_file_is_what_can_be_executed():
    sections = [(1, 6, 0x40), (1, 2, 0x100), (8, 6, 0x80), (1, 6, 0x10)]  # kind, flags, size
    header = bytearray(64)
    struct.pack_into("<Q", header, 40, 64)
    struct.pack_into("<HH", header, 58, 64, len(sections))
    table = b"".join(struct.pack("<IIQQQQ24x", 0, kind, flags, 0, 0, size) for kind, flags, size in sections)
    assert code_bytes(bytes(header) + table) == 0x50


def compiled(config: Configuration, target: Target) -> Compiled:
    if compiles(target.name, triton_version()) is False:
        pytest.skip(f"Triton {triton_version()} does not compile for {target.name}")
    return compile_for(config, target)


@pytest.mark.parametrize("target", [t for t in TARGETS if t.path == "triton"], ids=lambda t: t.name)
def test_a_kernel_for_every_target(target: Target, by_kernel: dict[str, Configuration]):
    code = compiled(by_kernel["adam.step"], target)
    assert code.function == "step"
    assert code.warps == 4
    assert 0 < code.vgprs <= 255
    assert 100 < code.instructions < 2000
    assert code.spills == code.cas_loops == 0


@pytest.mark.parametrize("name", ["gfx90a", "gfx942", "gfx1100", "gfx1201", "sm_90"])
def test_swap_loops_are_counted_where_the_table_expects_them(name: str, by_kernel: dict[str, Configuration]):
    scattered = [c for c in by_kernel.values() if c.name == "rasterize.composite_backward"]
    for config in scattered:
        constants = dict(config.constants)
        constants["ORDERED"] = False
        atomic = dataclasses.replace(config, constants=tuple(constants.items()))
        loops = compiled(atomic, find(name)).cas_loops
        assert (loops == 0) is float_atomics(name, triton_version())


def test_what_the_jit_knows_changes_the_memory_instructions(by_kernel: dict[str, Configuration]):
    config = by_kernel["adam.step"]
    assert config.attributes
    known, plain = (compiled(c, find("gfx942")).assembly for c in (config, config.plain()))
    assert "buffer_load" in known
    assert "global_load" in plain
    assert "buffer_load" not in plain


def test_the_text_is_the_binary_and_a_changed_one_is_not(by_kernel: dict[str, Configuration]):
    code = compiled(by_kernel["sh.harmonics"], find("gfx1100"))
    assert reassembled(code)
    for old, new in (("v_mul_f32", "v_add_f32"), ("s_endpgm", "s_nop 0")):
        assert old in code.assembly
        changed = code.assembly.replace(old, new, 1)
        assert assemble(code, changed) != code.binary
        assert not reassembled(code, changed)


def test_machine_code_is_instructions_and_descriptor_without_source_lines(by_kernel: dict[str, Configuration]):
    code = compiled(by_kernel["sh.harmonics"], find("gfx1100"))
    directives = code.assembly.replace("\t.loc\t1 ", "\t.loc\t1 9")
    registers = code.assembly.replace(
        f".amdhsa_next_free_vgpr {code.vgprs}", f".amdhsa_next_free_vgpr {code.vgprs + 64}"
    )
    multiplied = code.assembly.replace("v_mul_f32", "v_add_f32", 1)
    for text, same in ((directives, True), (registers, False), (multiplied, False)):
        assert text != code.assembly
        binary = assemble(code, text)
        assert binary != code.binary
        assert (dataclasses.replace(code, binary=binary).machine_code == code.machine_code) is same


def test_what_triton_refuses_names_kernel_and_target(by_kernel: dict[str, Configuration]):
    config = by_kernel["adam.step"]
    broken = dataclasses.replace(config, constants=(*config.constants[:-1], ("BLOCK", 1000)))  # no power of two
    with pytest.raises(CompileError, match=r"adam\.step for gfx942: "):
        compile_for(broken, find("gfx942"))


def test_fp32_is_multiplied_as_the_target_does():
    """A convolution in fp32 is launched with what a target offers; nothing else changes."""
    config = Configuration("m:k", (), (("PRECISION", BEST), ("BM", 64)), (), ())
    for name, best in (("sm_90", "tf32x3"), ("sm_75", "ieee"), ("gfx1030", "ieee")):
        assert as_launched(config, find(name)).constants == (("PRECISION", best), ("BM", 64))
    if triton_version() >= "3.6":  # before it AMD's backend has no bf16x6
        assert as_launched(config, find("gfx942")) == config
    plain = dataclasses.replace(config, constants=(("PRECISION", "ieee"),))
    assert as_launched(plain, find("sm_90")) == plain
    assert as_launched(config, find("mps")) == config


def test_loads_are_under_way_where_they_go_to_shared_memory_by_themselves():
    config = Configuration("m:k", (), (("BM", 64), ("STAGES", 3)), (), ())
    for name, stages in (("sm_80", 3), ("sm_120", 3), ("sm_75", 1), ("gfx942", 1), ("gfx1201", 1)):
        assert as_launched(config, find(name)).constants == (("BM", 64), ("STAGES", stages))


@pytest.mark.parametrize(("name", "other"), (SAME_IR | SAME_IR_WITHOUT_DOTS).items())
def test_another_targets_gpu_ir_gives_the_same_machine_code(name: str, other: str, by_kernel: dict[str, Configuration]):
    agree(by_kernel["adam.step"], name, other)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("name", "other"), (SAME_IR | SAME_IR_WITHOUT_DOTS).items())
def test_another_targets_gpu_ir_gives_the_same_machine_code_of_every_kernel(
    name: str, other: str, by_kernel: dict[str, Configuration]
):
    for config in by_kernel.values():
        if name in SAME_IR or not config.name.startswith("conv."):
            agree(config, name, other)


def test_gpu_ir_that_is_another_one_is_seen(by_kernel: dict[str, Configuration], monkeypatch: pytest.MonkeyPatch):
    """gfx942 multiplies matrices otherwise than gfx90a."""
    monkeypatch.setitem(SAME_IR, "gfx942", "gfx90a")
    with pytest.raises((AssertionError, CompileError)):
        agree(by_kernel["conv.wide"], "gfx942", "gfx90a")


def agree(config: Configuration, name: str, other: str) -> None:
    """What is compiled from another target's GPU IR is what is compiled from the source."""
    if not triton_version().startswith(SAME_IR_WITH):
        pytest.skip(f"nobody has tried Triton {triton_version()}: each is compiled from its source")
    target = find(name)
    config = as_launched(config, target)
    shared, own = (
        compiling._compile(config, target, compiling._with_same_ir(config, target)),
        compiling._compile(config, target),
    )
    assert (shared.ir_of, own.ir_of) == (other, "")
    assert shared.machine_code == own.machine_code
    assert (shared.function, shared.instructions) == (own.function, own.instructions)
    assert (shared.warps, shared.lds) == (own.warps, own.lds)


def test_where_matrix_products_differ_each_target_has_its_own_gpu_ir(by_kernel: dict[str, Configuration]):
    for name in SAME_IR_WITHOUT_DOTS:
        config = as_launched(by_kernel["conv.wide"], find(name))
        assert compile_for(config, find(name)).ir_of == ""


def test_a_target_is_named_once_in_the_gpu_ir(by_kernel: dict[str, Configuration], tmp_path: Path):
    """Otherwise what is compiled would be another target's."""
    first = compile_for(by_kernel["adam.step"], find("gfx1100"))
    text = compiling._renamed(first, find("gfx1101"), tmp_path).read_text()
    assert ("hip:gfx1101" in text, "gfx1100" in text) == (True, False)
    with pytest.raises(ValueError, match="0 times"):
        compiling._renamed(dataclasses.replace(first, ir=text), find("gfx1101"), tmp_path)
