"""`lanewise demo --incident` with replays that are made up: tables, exit code, JSON."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

import lanewise.demo.incidents.wavefront
import lanewise.demo.incidents.window
from lanewise.cli import main


def made_up(incident):
    """The runs of tests/demo/incidents, in which all is as predicted."""
    path = Path(__file__).parents[1] / "demo" / "incidents" / f"test_{incident}.py"
    spec = importlib.util.spec_from_file_location(f"made_up_{incident}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.as_predicted().values())


@pytest.fixture(params=["wavefront", "window"])
def incident(request, monkeypatch):
    """An incident, and its runs: change them in place."""
    runs = made_up(request.param)
    module = getattr(lanewise.demo.incidents, request.param)
    monkeypatch.setattr(module, "replay", lambda *args, **kwargs: runs)
    return request.param, runs


def test_as_predicted_exits_with_0_and_names_every_run(incident, capsys):
    name, runs = incident
    assert main(["demo", "--incident", name, "--json", "-"]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["ok"]
    assert [run["name"] for run in result["runs"]] == [run.name for run in runs]
    assert all(prediction["holds"] for prediction in result["predictions"])
    assert "All is as predicted" in captured.err
    for run in runs:
        assert run.name in captured.err


def test_anything_else_exits_with_1_and_is_said(incident, capsys):
    name, runs = incident
    runs[1] = replace(runs[1], watched=[])
    assert main(["demo", "--incident", name]) == 1
    out = capsys.readouterr().out
    assert "Not all is as predicted" in out
    assert out.count("NO ") == 1


def test_options_that_mean_nothing_there_are_bad_input(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("years of work")
    assert main(["demo", "--incident", "wavefront", "--out", str(tmp_path)]) == 2
    assert main(["demo", "--incident", "wavefront", "--steps", "9"]) == 2
    assert main(["demo", "--incident", "window", "--out", str(tmp_path / "new")]) == 2
    assert main(["demo", "--incident", "flood"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
