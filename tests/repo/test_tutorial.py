"""The tutorial, run from the first line to the last as a reader would: its commands and its Python, in one folder."""

import re
import shlex
from pathlib import Path

import pytest

from lanewise.cli import main

DOCS = Path(__file__).parents[2] / "docs"
TUTORIAL = DOCS / "tutorial" / "first-scene.md"
NEVER_LEARNS = DOCS / "how-to" / "my-layer-never-learns.md"


def blocks(text: str) -> list[tuple[str, str]]:
    """(language, content) of the fenced blocks, in order."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_every_block_of_the_tutorial_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}  # one for all blocks of Python, as in a notebook
    for language, content in blocks(TUTORIAL.read_text()):
        if language == "python":
            exec(compile(content, str(TUTORIAL), "exec"), namespace)
            continue
        assert language == "bash", f"this runner does not know how to run {language}"
        for line in content.strip().splitlines():
            program, *arguments = shlex.split(line, comments=True)
            assert program == "lanewise", line
            assert main(arguments) == 0, f"{line}\n{capsys.readouterr().err}"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["photos", "pictures", "run", "scene.ply"]
    assert len(list((tmp_path / "pictures" / "orbit").iterdir())) == 4


def test_the_page_on_layers_that_never_learn_runs_and_prints_what_it_says(capsys):
    namespace: dict[str, object] = {}
    for language, content in blocks(NEVER_LEARNS.read_text()):
        if language == "python":
            capsys.readouterr()
            exec(compile(content, str(NEVER_LEARNS), "exec"), namespace)
        else:
            assert (language, content) == ("text", capsys.readouterr().out)


def test_blocks_are_found_in_order():
    text = "a\n```bash\nlanewise info x\n```\nb\n```python\nx = 1\ny = 2\n```\n"
    assert blocks(text) == [("bash", "lanewise info x\n"), ("python", "x = 1\ny = 2\n")]
