"""The incident as machine code: a lane count of 64 on machines of 32 lanes, executed for every AMD family."""

from __future__ import annotations

import runpy
import subprocess
from importlib import util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lanewise.isa import load

HERE = Path(__file__).parent
spec = SimpleNamespace(**runpy.run_path(str(HERE / "spec.py")))
LANES = {"gfx90a": 64, "gfx942": 64, "gfx950": 64, "gfx1030": 32, "gfx1100": 32, "gfx1151": 32, "gfx1201": 32}
ORDERS = ("lockstep", "forward", "reverse", "random")
BLOCKS, LABELS = 3, 9


def executed(build: str, arch: str, order: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sums that the assembly leaves, with the labels and values they are of."""
    label, value = spec.labelled(BLOCKS, LABELS, seed=7)
    sums = np.zeros(LABELS, np.float32)
    program = load((HERE / f"{build}.{arch}.s").read_text(), spec.kernel)
    assert (program.arch, program.wave) == (arch, LANES[arch])
    program.run((BLOCKS, 1, 1), [label, value, sums, LABELS], waves=spec.THREADS // program.wave, order=order)
    return sums, label, value


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("arch", LANES)
def test_the_faulty_build_loses_exactly_the_odd_waves_of_32_lanes(arch: str, order: str) -> None:
    sums, label, value = executed("faulty", arch, order)
    counted = np.ones(len(value), bool) if LANES[arch] == 64 else np.arange(len(value)) // 32 % 2 == 0
    predicted = spec.sums(label, np.where(counted, value, 0), LABELS)
    np.testing.assert_array_equal(sums, predicted)
    right = np.array_equal(sums, spec.sums(label, value, LABELS))
    assert right == (LANES[arch] == 64)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("arch", LANES)
def test_the_fixed_build_is_right_everywhere(arch: str, order: str) -> None:
    sums, label, value = executed("fixed", arch, order)
    np.testing.assert_array_equal(sums, spec.sums(label, value, LABELS))


@pytest.mark.parametrize("arch", [arch for arch, lanes in LANES.items() if lanes == 64])
def test_on_64_lanes_the_fault_is_not_even_in_the_code(arch: str) -> None:
    assert (HERE / f"faulty.{arch}.s").read_bytes() == (HERE / f"fixed.{arch}.s").read_bytes()


@pytest.mark.skipif(not util.find_spec("ziglang"), reason="ziglang (clang for AMD GPUs, from PyPI) is not installed")
def test_the_assemblies_are_what_the_script_builds(tmp_path: Path) -> None:
    subprocess.run(["sh", HERE / "build.sh", tmp_path], check=True)
    built, kept = sorted(tmp_path.glob("*.s")), sorted(HERE.glob("*.s"))
    assert [path.name for path in built] == [path.name for path in kept]
    for path in built:
        assert path.read_bytes() == (HERE / path.name).read_bytes(), path.name
