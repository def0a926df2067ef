"""`lanewise doctor`: what this machine has, what is missing, and the command that mends it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lanewise.cli.console import CommonOptions, console, say, size, write_json
from lanewise.errors import LanewiseError

MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "broken": ("BROKEN", "bold red")}
LEAST_FREE_DISK = 2 << 30  # bytes: a run of a small capture with its checkpoints and pictures


@dataclass(kw_only=True)
class Options(CommonOptions):
    """Check this machine: versions, device, compiler, threads, disk, optional packages. Every problem names its fix.

    Exits with 1 when something that every command needs is broken.

    Examples:
      lanewise doctor
      lanewise doctor --json doctor.json
    """


@dataclass
class Check:
    """One line of the table: what was looked at, what was found, and how to mend it."""

    name: str
    status: str  # a key of MARKS
    found: str
    fix: str = ""


def run(options: Options) -> int:
    """Show the table; the exit code is 1 when a check is broken."""
    checks = list(all_checks(debug=options.debug))
    _show(checks)
    broken = [check.name for check in checks if check.status == "broken"]
    write_json(
        options.json,
        {"checks": [asdict(check) for check in checks], "target": _target_fields(), "healthy": not broken},
    )
    if broken:
        say(f"{len(broken)} broken: {', '.join(broken)}", style="bold red")
        return 1
    say("Everything that the commands need is there.", style="green")
    return 0


def all_checks(*, debug: bool = False) -> Iterator[Check]:
    """Every check; one that raises becomes a broken line, not the end of the table, unless `debug` wants to see it."""
    for group in (_system, _required_packages, _device, _compiler, _numba_threads, _storage, _optional_packages):
        try:
            yield from group()
        except Exception as error:  # the doctor reports what is ill, whatever it is
            if debug:
                raise
            name = group.__name__.strip("_").replace("_", " ")
            fix = getattr(error, "fix", None) or "`lanewise doctor --debug` shows where it happened"
            yield Check(name, "broken", f"{type(error).__name__}: {error}", fix)


def _system() -> Iterator[Check]:
    good = sys.version_info >= (3, 10)
    yield Check(
        "python", "ok" if good else "broken", platform.python_version(), "" if good else "use Python 3.10 or newer"
    )
    yield Check("platform", "ok", f"{platform.system()} {platform.release()} {platform.machine()}")
    yield Check("processor cores", "ok", f"{_usable_cores()} usable of {os.cpu_count()}")


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Distribution -> lowest version: the dependencies of the package (a test holds them against its metadata).
REQUIRED = {
    "torch": "2.8",
    "numpy": "1.26",
    "numba": "0.61",
    "scipy": "1.11",
    "pillow": "10",
    "plyfile": "1.0",
    "safetensors": "0.4.5",
    "pyyaml": "6",
    "tyro": "0.9",
    "rich": "13",
}
# Extra -> (distribution to look for, what it is for).
EXTRAS = {
    "colmap": ("pycolmap", "finding cameras (`lanewise sfm`) and undistorting images"),
    "docs": ("mkdocs-material", "building the documentation"),
    "dev": ("pytest", "running the tests"),
}


def _required_packages() -> Iterator[Check]:
    for name, least in REQUIRED.items():
        version = _version(name)
        if version is None:
            yield Check(name, "broken", "not installed", f"pip install '{name}>={least}'")
        elif _numbers(version) < _numbers(least):
            yield Check(name, "broken", f"{version}, needs {least} or newer", f"pip install '{name}>={least}'")
        else:
            yield Check(name, "ok", version)


def _optional_packages() -> Iterator[Check]:
    for extra, (distribution, purpose) in EXTRAS.items():
        version = _version(distribution)
        found = f"{distribution} {version}" if version else f"not installed ({purpose})"
        yield Check(f"extra [{extra}]", "ok" if version else "note", found, "" if version else _install(extra))


def _install(extra: str) -> str:
    return f"pip install 'lanewise[{extra}]'"


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """The release part of a version: 2.13.0rc1+cpu -> (2, 13, 0)."""
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, release.group().split("."))) if release else ()


def _device() -> Iterator[Check]:
    import torch

    from lanewise.splat._backend import resolve_backend
    from lanewise.target import detect

    cuda, hip = torch.version.cuda, torch.version.hip
    yield Check("torch build", "ok", f"ROCm {hip}" if hip else f"CUDA {cuda}" if cuda else "CPU")
    target = detect()
    yield Check("target", "ok", f"{target.name} ({target.vendor}): {target.description}")
    yield Check("wave width", "ok", f"{target.wave} lanes" if target.wave > 1 else "1 lane")
    yield Check("byte window", "ok", f"{size(target.window_bytes)} a launch")
    yield Check("dot precisions", "ok", ", ".join(target.dot_precisions) or "none")
    on_gpu = target.vendor != "cpu"
    device = "cuda" if on_gpu else "cpu"
    single, double = (
        resolve_backend("auto", torch.empty(0, dtype=t, device=device)) for t in (torch.float32, torch.float64)
    )
    slow = on_gpu and single == "reference"
    yield Check(
        "backend of `auto`",
        "note" if slow else "ok",
        f"{single} in float32, {double} in float64",
        "a GPU has no kernels of its own in this version and is slow; --device cpu may be faster" if slow else "",
    )
    yield _triton(on_gpu)


# Triton's names: PyPI's, and those of torch's own builds.
TRITON = ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm", "triton-windows")
LEAST_TRITON = "3.4"


def _triton(on_gpu: bool) -> Check:
    """Triton comes with torch on Linux; without it a GPU has no kernels."""
    version = next(filter(None, map(_version, TRITON)), None)
    fix = "install the triton that your torch build names: `pip install torch` shows which"
    if version is None and on_gpu:
        return Check("triton", "note", "not installed", fix)
    if version is None:
        return Check("triton", "ok", "not installed (only a GPU needs it)")
    if _numbers(version) < _numbers(LEAST_TRITON):
        found = f"{version}, the kernels need {LEAST_TRITON} or newer"
        return Check("triton", "broken" if on_gpu else "note", found, f"install torch 2.8 or newer, or {fix}")
    return Check("triton", "ok", version)


def _target_fields() -> dict[str, Any]:
    try:
        from lanewise.target import detect

        return asdict(detect())
    except (ImportError, LanewiseError):  # already a line of the table
        return {}


def _compiler() -> Iterator[Check]:
    """Triton builds a small launcher with the system's C compiler and Python's headers; nothing else needs them."""
    import torch

    missing = "broken" if torch.cuda.is_available() else "note"
    why = "Triton needs one to launch anything on a GPU"
    chosen = os.environ.get("CC")  # as Triton looks for it: CC, else gcc, else clang
    compiler = next(filter(None, (shutil.which(name) for name in ([chosen] if chosen else ["gcc", "clang"]))), None)
    if compiler:
        out = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
        yield Check("C compiler", "ok", out.splitlines()[0] if out else compiler)
    elif chosen:
        fix = "unset CC, or set it to a compiler that is there"
        yield Check("C compiler", missing, f"CC={chosen} is not there ({why})", fix)
    else:
        fix = "install gcc: `apt-get install gcc`, `dnf install gcc`, or set CC to another compiler"
        yield Check("C compiler", missing, f"neither gcc nor clang ({why})", fix)
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    if headers.is_file():
        yield Check("Python headers", "ok", str(headers.parent))
    else:
        python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        fix = f"`apt-get install {python}-dev`, `dnf install {python}-devel`"
        yield Check("Python headers", missing, f"no {headers} (Triton needs it to launch anything on a GPU)", fix)


def _numba_threads() -> Iterator[Check]:
    """Compile and run one parallel loop: the layer that carries the threads is known only afterwards."""
    import numba
    import numpy as np
    from numba.np.ufunc.parallel import threading_layer

    @numba.njit(parallel=True)
    def total(values: np.ndarray) -> float:
        result = 0.0
        for i in numba.prange(len(values)):
            result += values[i]
        return result

    right = total(np.ones(1000)) == 1000.0
    yield Check(
        "numba threads",
        "ok" if right else "broken",
        f"{numba.get_num_threads()} on the {threading_layer()} layer",
        "" if right else "reinstall numba: pip install --force-reinstall numba",
    )


def _storage() -> Iterator[Check]:
    from lanewise import _numba

    cache = _numba.cache_folder()
    writable = os.access(cache, os.W_OK)
    yield Check(
        "kernel cache",
        "ok" if writable else "broken",
        str(cache),
        "" if writable else "set NUMBA_CACHE_DIR to a folder that you may write to",
    )
    free = shutil.disk_usage(Path.cwd()).free
    enough = free >= LEAST_FREE_DISK
    yield Check(
        "free disk here",
        "ok" if enough else "note",
        size(free),
        "" if enough else f"free some space: a run wants about {size(LEAST_FREE_DISK)}",
    )


def _show(checks: list[Check]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Lanewise on this machine", title_justify="left")
    for column in ("", "check", "found", "fix"):
        table.add_column(column, overflow="fold")
    if not any(check.fix for check in checks):
        table.columns.pop()
    for check in checks:
        mark, style = MARKS[check.status]
        cells = (Text(mark, style=style), check.name, check.found, check.fix)
        table.add_row(*cells[: len(table.columns)])
    console().print(table)
