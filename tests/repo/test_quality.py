"""The linters, the type checker and the strict build of the documentation, as part of the tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str) -> None:
    """Run a tool of the [dev] extra on the repository; what it says becomes the message of the failed test."""
    # No tool may look for newer versions, or fetch anything: everything was installed beforehand.
    quiet = {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1", "NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | quiet, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"


def needs(module: str, tool: str) -> None:
    if shutil.which(tool, path=str(Path(sys.executable).parent)) is None:
        pytest.skip(f"{module} is not installed beside this Python: pip install -e '.[dev]'")


def test_ruff_check():
    needs("ruff", "ruff")
    run(sys.executable, "-m", "ruff", "check", ".")


def test_ruff_format():
    needs("ruff", "ruff")
    run(sys.executable, "-m", "ruff", "format", "--check", ".")


@pytest.mark.slow
def test_pyright():
    needs("pyright", "pyright")
    run(sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--warnings")


@pytest.mark.slow
def test_documentation_builds_strictly(tmp_path):
    needs("mkdocs", "mkdocs")
    run(sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site"))
    pages = {p.relative_to(tmp_path / "site").as_posix() for p in (tmp_path / "site").rglob("*.html")}
    assert {"index.html", "tutorial/first-scene.html", "reference/splat.html", "limits.html"} <= pages
    assert "lanewise train" in (tmp_path / "site" / "reference" / "cli.html").read_text()
