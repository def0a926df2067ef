"""The package's metadata, the README's commands and CI say the same, and keep the promises that the house makes."""

import re
import sys
from pathlib import Path

import pytest

import lanewise
from lanewise.cli import app, doctor

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli", reason="Python 3.10 has no TOML reader of its own")

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
README = (ROOT / "README.md").read_text()
TEST_COMMAND = "pip install -e '.[dev]' && pytest"
MAIN_COMMAND = "pip install . && lanewise demo --out demo"


def name_of(requirement: str) -> str:
    return re.split(r"[\s\[<>=!~;]", requirement, maxsplit=1)[0].lower()


def all_requirements() -> list[str]:
    extras = PROJECT["optional-dependencies"].values()
    return [*PROJECT["dependencies"], *(r for extra in extras for r in extra)]


def test_torch_is_required_once_and_triton_never():
    ours = [r for r in all_requirements() if re.search(r"torch|triton|nvidia|cuda|rocm", name_of(r))]
    assert ours == ["torch>=2.8"]


def test_no_build_requirement_brings_torch():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert [name_of(r) for r in build] == ["hatchling"]


def test_doctor_checks_exactly_what_the_package_requires():
    assert PROJECT["dependencies"] == [f"{name}>={least}" for name, least in doctor.REQUIRED.items()]
    assert PROJECT["optional-dependencies"].keys() == doctor.EXTRAS.keys()


def test_the_version_stands_in_one_place():
    assert "version" in PROJECT["dynamic"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", lanewise.__version__)


def test_the_readme_has_the_two_commands():
    blocks = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    assert f"{MAIN_COMMAND}\n" in blocks
    assert f"{TEST_COMMAND}\n" in blocks


def test_ci_runs_the_readme_s_test_command_and_installs_torch_first():
    lines = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[-1] == TEST_COMMAND
    assert lines.index("pip install --quiet 'torch==2.13.0'") < lines.index("pip install --quiet 'triton==3.9.0'")
    assert "set -euo pipefail" in lines


def documents() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def lanewise_commands(path: Path) -> list[str]:
    """What follows `lanewise ` in code blocks and inline code."""
    text = path.read_text()
    blocks = re.findall(r"```(?:bash|sh)\n(.*?)```", text, re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [match for part in (*blocks, *inline) for match in re.findall(r"(?m)(?:^|&& )lanewise ([^\n#&]+)", part)]


@pytest.mark.parametrize("path", documents(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_command_in_the_documents_exists(path):
    for command in lanewise_commands(path):
        name = command.split()[0]
        assert name in {*app.COMMANDS, "COMMAND", "--help"}, command


def test_the_readme_shows_every_command():
    for name in app.COMMANDS:
        assert f"lanewise {name}" in README


# What a kernel would need in order to know how many lanes the hardware runs together.
WAVE_WIDTH = re.compile(
    r"\b(warp_?size|wave_?(front)?_?size|lane_?id|threadIdx|num_lanes|__shfl\w*|__ballot\w*|tiled_partition)\b"
    r"|%\s*(32|64)\b|//\s*(32|64)\b",
    re.IGNORECASE,
)


def test_no_kernel_names_a_wave_width():
    patterns = ("cpu.py", "kernels*.py", "reference.py", "op.py", "composite.py")
    kernels = [path for pattern in patterns for path in (ROOT / "src").rglob(pattern)]
    assert len({path.name for path in kernels}) > len(patterns), "the operators' files have moved"
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in kernels
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if WAVE_WIDTH.search(line)
    ]
    assert not found, "\n".join(found)


def test_the_search_for_wave_widths_finds_the_published_fault():
    for line in ("lane = threadIdx.x % 64", "auto warp = cg::tiled_partition<64>(block)", "if i < WARP_SIZE:"):
        assert WAVE_WIDTH.search(line), line


def test_every_source_is_short_and_has_a_docstring():
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text()
        assert len(text.splitlines()) <= 400, f"{path}: is it one idea?"
        assert text.lstrip().startswith('"""'), f"{path} has no docstring"


def test_the_python_of_the_readme_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    shape = capsys.readouterr().out
    assert "[1, 120, 160, 3]" in shape
