import os
import subprocess
import sys
from pathlib import Path

import pytest

from lanewise import InputError
from lanewise.target import TARGETS, compiles, find, float_atomics
from lanewise.target.table import FLOAT_ATOMICS_SINCE


def test_every_row_is_found_by_its_name_and_only_once():
    names = [target.name for target in TARGETS]
    assert len(set(names)) == len(names)
    assert [find(name) for name in names] == list(TARGETS)


@pytest.mark.parametrize(
    ("name", "row"), [("gfx942:sramecc+:xnack-", "gfx942"), ("sm_90a", "sm_90"), ("sm_120f", "sm_120")]
)
def test_feature_suffixes_are_ignored(name, row):
    assert find(name).name == row


@pytest.mark.parametrize(
    ("name", "wave"), [("gfx90a", 64), ("gfx942", 64), ("gfx1030", 32), ("gfx1151", 32), ("sm_90", 32), ("cpu", 1)]
)
def test_wave_widths(name, wave):
    assert find(name).wave == wave


def test_the_window_is_what_an_unsigned_32_bit_offset_reaches():
    assert {target.window_bytes for target in TARGETS} == {4294967295}


def test_an_unknown_target_is_refused_not_guessed():
    with pytest.raises(InputError, match=r"target: got 'gfx9999', expected one of cpu, .* cannot be guessed"):
        find("gfx9999")


@pytest.mark.parametrize("version", ["3.4.0", "3.6.0", "3.9.0", "3.10.0+git1234", "4.0"])
@pytest.mark.parametrize(
    ("name", "native"),
    [
        ("sm_75", True),
        ("sm_90a", True),
        ("sm_87", True),
        ("cpu", True),
        ("gfx942:sramecc+:xnack-", True),
        ("gfx1201", True),
        ("gfx90a", False),
        ("gfx1030", False),
        ("gfx9999", False),
    ],
)
def test_where_atomic_additions_of_floats_are_instructions(name, native, version):
    assert float_atomics(name, version) is native


@pytest.mark.parametrize("name", ["gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151:xnack-"])
@pytest.mark.parametrize(("version", "native"), [("3.4.0", False), ("3.6.0", False), ("3.9.0", True), ("4.0", True)])
def test_rdna_3_has_them_since_triton_3_9(name, version, native):
    assert float_atomics(name, version) is native


def test_an_older_triton_is_not_taken_for_a_newer_one():
    assert not float_atomics("gfx942", "3.3.1")


@pytest.mark.slow
@pytest.mark.parametrize("target", [t for t in TARGETS if t.path == "triton"], ids=lambda target: target.name)
def test_the_table_says_what_triton_compiles(target, tmp_path):
    """In a process of its own, because the interpreter may be on here. Needs no GPU."""
    pytest.importorskip("triton")
    assert set(FLOAT_ATOMICS_SINCE) <= {t.name for t in TARGETS}
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    script = Path(__file__).parents[1] / "helpers" / "compiled_atomics.py"
    done = subprocess.run(
        [sys.executable, str(script), target.name, str(target.wave)], env=environment, capture_output=True, text=True
    )
    if "unsupported target" in done.stderr or "not found" in done.stderr:
        pytest.skip(f"this Triton compiles nothing for {target.name}")
    assert done.returncode == 0, done.stderr
    version, kind = done.stdout.split()
    assert (kind == "native") is float_atomics(target.name, version)


@pytest.mark.parametrize(
    "name", ["gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1103", "gfx1151", "gfx1200", "sm_75", "sm_120"]
)
@pytest.mark.parametrize("version", ["3.4.0", "3.6.0", "3.9.0"])
def test_what_a_release_of_triton_compiles(name, version):
    assert compiles(name, version) is ((name, version) != ("gfx1030", "3.9.0"))


def test_a_release_that_nobody_tried_is_not_guessed():
    assert compiles("gfx942", "3.10.0") is None


def test_what_runs_on_the_cpu_is_compiled_by_no_triton():
    assert [t.name for t in TARGETS if not compiles(t.name, "3.9.0")] == ["cpu", "gfx1030", "xpu", "mps"]
    assert {t.path for t in TARGETS if t.vendor in ("intel", "apple", "cpu")} == {"cpu"}
    assert all("not supported, CPU path" in t.description for t in TARGETS if t.vendor in ("intel", "apple"))


def test_families_of_amd():
    families = {t.family: t.wave for t in TARGETS if t.vendor == "amd"}
    assert families == {"gfx90a": 64, "gfx942": 64, "gfx950": 64, "10.3": 32, "11": 32, "11.5": 32, "12": 32}
