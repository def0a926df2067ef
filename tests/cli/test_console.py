"""What every command shares: numbers for people, JSON for machines, progress without a terminal."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from lanewise.cli import console


@pytest.mark.parametrize(
    ("value", "text"),
    [(24.684, "24.68"), (0.0, "0.00"), (1.234e-5, "1.2e-05"), (0.0327, "0.03"), (float("nan"), "-"), (None, "-")],
)
def test_numbers(value, text):
    assert console.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB"), (2 << 40, "2.0 TiB")]
)
def test_sizes(value, text):
    assert console.size(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(8.4, "8 s"), (59.6, "1 min 00 s"), (153, "2 min 33 s"), (3900, "1 h 05 min"), (float("inf"), "-")],
)
def test_durations(seconds, text):
    assert console.duration(seconds) == text


def test_json_knows_arrays_tensors_paths_and_nan(tmp_path):
    target = tmp_path / "result.json"
    data = {
        "array": np.array([1.5, np.inf]),
        "tensor": torch.tensor([[1, 2]]),
        "scalar": np.float32(0.5),
        "path": Path("run"),
        "nested": {"values": (1, None, "x")},
    }
    console.write_json(str(target), data)
    assert json.loads(target.read_text()) == {
        "array": [1.5, None],
        "tensor": [[1, 2]],
        "scalar": 0.5,
        "path": "run",
        "nested": {"values": [1, None, "x"]},
    }


def test_without_a_file_no_json_is_written(capsys):
    console.write_json(None, {"a": 1})
    assert capsys.readouterr().out == ""


def test_progress_without_a_terminal_is_about_ten_lines(capsys):
    with console.progress("images") as step:
        for done in range(1, 101):
            step(done, 100)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11
    assert lines[-1] == "images 100/100"


def test_text_is_never_read_as_markup(capsys):
    console.say("[red]folder[/red]")
    console.show_panel("[b]title", {"name": "[red]value"})
    console.show_table("t", ["[x]"], [["[y]"], ["[z]"]])
    out = capsys.readouterr().out
    for text in ("[red]folder[/red]", "[b]title", "[red]value", "[x]", "[y]"):
        assert text in out


def test_long_lines_are_not_broken(capsys):
    console.say("x" * 500)
    assert capsys.readouterr().out == "x" * 500 + "\n"
