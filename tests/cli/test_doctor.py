"""doctor: every line names what it found, every problem names its fix, the exit code says whether work can begin."""

import json
import sys
from types import SimpleNamespace

import pytest

from lanewise.cli import doctor, main


def test_this_machine_is_healthy_and_the_table_says_what_it_is(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for word in ("python", "torch", "numba threads", "kernel cache", "wave width", "byte window", "C compiler"):
        assert word in out


def test_json_names_every_check_and_the_target(capsys):
    assert main(["doctor", "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["healthy"] is True
    assert {"name", "vendor", "wave", "window_bytes", "dot_precisions", "description"} <= result["target"].keys()
    for check in result["checks"]:
        assert check["status"] == "ok" or check["fix"], f"{check['name']} has a problem and no fix"


def test_a_missing_package_is_broken_and_the_fix_installs_it(monkeypatch, capsys):
    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "plyfile" else real(name))
    assert main(["doctor", "--json", "-"]) == 1
    result = json.loads(capsys.readouterr().out)
    (check,) = [c for c in result["checks"] if c["name"] == "plyfile"]
    assert check["status"] == "broken"
    assert check["fix"] == "pip install 'plyfile>=1.0'"
    assert result["healthy"] is False


def test_an_old_package_is_broken(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: "2.7.1+cpu" if name == "torch" else "999")
    (broken,) = [check for check in doctor._required_packages() if check.status == "broken"]
    assert broken.name == "torch"
    assert broken.found == "2.7.1+cpu, needs 2.8 or newer"


def test_a_missing_extra_is_a_note(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    for check in doctor._optional_packages():
        assert check.status == "note"
        assert check.fix.startswith("pip install 'lanewise[")


@pytest.mark.parametrize(("gpu", "status"), [(False, "note"), (True, "broken")])
def test_no_compiler_and_no_headers_name_the_packages_and_stop_a_gpu(gpu, status, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    monkeypatch.setattr(doctor.sysconfig, "get_path", lambda name: "/nowhere")
    compiler, headers = doctor._compiler()
    assert (compiler.status, headers.status) == (status, status)
    assert "apt-get install gcc" in compiler.fix
    assert f"python3.{sys.version_info[1]}-dev" in headers.fix
    assert "/nowhere/Python.h" in headers.found.replace("\\", "/")


def test_the_compiler_is_looked_for_as_triton_does(monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    there = {"cc"}
    monkeypatch.setattr(doctor.shutil, "which", lambda name: sys.executable if name in there else None)
    assert next(doctor._compiler()).status != "ok"  # Triton does not try `cc`
    there.add("clang")
    assert next(doctor._compiler()).status == "ok"
    monkeypatch.setenv("CC", "icc")  # which Triton takes at its word
    compiler = next(doctor._compiler())
    assert compiler.status != "ok"
    assert "CC=icc" in compiler.found
    assert "unset CC" in compiler.fix


@pytest.mark.parametrize(
    ("installed", "on_gpu", "status"),
    [
        ({"triton": "3.9.0"}, True, "ok"),
        ({"pytorch-triton-rocm": "3.4.0"}, True, "ok"),
        ({"triton": "3.3.1"}, True, "broken"),
        ({"triton": "3.3.1"}, False, "note"),
        ({}, True, "note"),
        ({}, False, "ok"),
    ],
)
def test_triton_is_found_under_all_its_names_and_may_be_too_old(installed, on_gpu, status, monkeypatch):
    monkeypatch.setattr(doctor, "_version", installed.get)
    check = doctor._triton(on_gpu)
    assert check.status == status
    assert check.status == "ok" or "torch" in check.fix


def test_little_disk_is_a_note(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20))
    (disk,) = [check for check in doctor._storage() if check.name == "free disk here"]
    assert disk.status == "note"
    assert disk.found == "1.0 MiB"


def test_a_check_that_raises_is_a_broken_line_and_the_table_goes_on(monkeypatch):
    def fails():
        raise RuntimeError("driver gone")
        yield

    monkeypatch.setattr(doctor, "_compiler", fails)
    monkeypatch.setattr(doctor, "_device", lambda: iter(()))
    checks = {check.name: check for check in doctor.all_checks()}
    assert checks["fails"].status == "broken"
    assert "driver gone" in checks["fails"].found
    assert checks["fails"].fix
    assert "extra [dev]" in checks
    with pytest.raises(RuntimeError, match="driver gone"):
        list(doctor.all_checks(debug=True))


@pytest.mark.parametrize(
    ("version", "numbers"), [("2.13.0+cpu", (2, 13, 0)), ("1.0", (1, 0)), ("0.4.5rc1", (0, 4, 5)), ("6", (6,))]
)
def test_versions_are_compared_by_number(version, numbers):
    assert doctor._numbers(version) == numbers
