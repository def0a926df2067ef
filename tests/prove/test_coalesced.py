from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from lanewise.prove import compile as compiling
from lanewise.prove.coalesced import FILE
from lanewise.prove.compile import SAME_IR_WITH, Compiled, CompileError, as_launched, triton_version
from lanewise.prove.launches import Configuration
from lanewise.target import find

pytest.importorskip("triton")
# Those whose GPU IR is made from the source, by what they share: lanes of a wave, and what the JIT knows of arguments.
FAMILIES = (("gfx90a", "gfx942", "gfx950"), ("gfx1100", "gfx1201"), ("sm_75", "sm_90", "sm_100"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one of Triton's."""
    if not triton_version().startswith(SAME_IR_WITH):
        pytest.skip(f"nobody has tried Triton {triton_version()}: every pass runs for each target")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return tmp_path


def compiled(config: Configuration, name: str) -> Compiled:
    return compiling._compile(as_launched(config, find(name)), find(name))


def agree(config: Configuration, family: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """A family's targets have the machine code that Triton makes by itself."""
    shared = [compiled(config, name) for name in family]
    with monkeypatch.context() as patch:
        patch.setattr(compiling, "coalesced_once", contextlib.nullcontext)
        own = [compiled(config, name) for name in family]
    for one, other in zip(shared, own, strict=True):
        assert one.machine_code == other.machine_code
        assert (one.instructions, one.warps, one.lds) == (other.instructions, other.warps, other.lds)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family[0])
def test_machine_code_is_tritons_own(
    family: tuple[str, ...], by_kernel: dict[str, Configuration], monkeypatch: pytest.MonkeyPatch
):
    agree(by_kernel["rasterize.pack"], family, monkeypatch)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family[0])
def test_machine_code_of_every_kernel_is_tritons_own(
    family: tuple[str, ...], by_kernel: dict[str, Configuration], monkeypatch: pytest.MonkeyPatch
):
    for config in by_kernel.values():
        agree(config, family, monkeypatch)


def test_targets_with_the_same_lanes_share_what_was_coalesced(by_kernel: dict[str, Configuration], cache: Path):
    made = []
    for name in ("gfx942", "gfx950", "gfx1100", "sm_90", "sm_75"):
        code = compiled(by_kernel["adam.step"], name)
        assert f'"{compiling.gpu_target(find(name)).backend}:{name.removeprefix("sm_")}"' in code.ir
        made.append(len(list(cache.glob(f"*/{FILE}"))))
    assert made == [1, 1, 2, 3, 3]


def test_another_order_of_passes_is_refused(by_kernel: dict[str, Configuration], monkeypatch: pytest.MonkeyPatch):
    from triton._C.libtriton import ir, passes
    from triton.backends.amd import compiler

    def make(module: Any, metadata: Any, options: Any) -> Any:
        manager = ir.pass_manager(module.context)
        passes.common.add_canonicalizer(manager)
        name = f"hip:{options.arch}"
        passes.ttir.add_convert_to_ttgpuir(manager, name, options.num_warps, options.warp_size, options.num_ctas)
        passes.ttgpuir.add_coalesce(manager)
        manager.run(module, "another order")
        return module

    monkeypatch.setattr(compiler.HIPBackend, "make_ttgir", staticmethod(make))
    with pytest.raises(CompileError, match="begin otherwise"):
        compiled(by_kernel["adam.step"], "gfx942")
