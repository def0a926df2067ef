"""`lanewise audit` and `lanewise explain`: targets, exit codes, files."""

import json

import pytest
import torch

from lanewise.audit.finding import CODES
from lanewise.cli import main
from lanewise.cli.audit import specs_of


@pytest.fixture
def operators(tmp_path, monkeypatch):
    """A folder with a file of operators, which is where the command runs."""
    (tmp_path / "my_operators.py").write_text("from audited_functions import *\n")
    monkeypatch.chdir(tmp_path)
    return "my_operators.py"


@pytest.mark.slow
def test_a_fault_is_found_written_and_hidden_by_a_baseline(operators, tmp_path, capsys):
    budget = ("--device", "cpu", "--budget", "40 cases")
    files = ("--json", "r.json", "--junit", "r.xml", "--sarif", "r.sarif", "--html", "r.html", "--repros", "repros")
    assert main(["audit", f"{operators}:loses_rows", *budget, *files]) == 1
    out = capsys.readouterr().out
    assert "LW103 loses_rows" in out
    assert "What was covered" in out
    for name in ("r.xml", "r.sarif", "r.html", "repros/01-LW103/repro.py"):
        assert (tmp_path / name).stat().st_size > 0
    assert json.loads((tmp_path / "r.json").read_text())["findings"][0]["code"] == "LW103"
    assert main(["audit", f"{operators}:loses_rows", *budget, "--baseline", "r.json"]) == 0


def test_exit_codes_of_a_healthy_operator_and_of_one_that_never_runs(operators, capsys):
    assert main(["audit", f"{operators}:healthy", "--device", "cpu", "--budget", "3 cases"]) == 0
    assert main(["audit", f"{operators}:refuses_everything", "--device", "cpu", "--budget", "2 cases"]) == 5
    assert "Nothing could be told" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nothing.py:f", "a file at nothing.py"),
        ("no.such.module:f", "a module no.such.module that imports"),
        ("my_operators.py:g", "expected one of"),
        ("my_operators.py:torch", "expected a function or module"),
        ("my_operators.py:without_inputs", "without_inputs_inputs in the same file"),
        ("my_operators.py", "FILE.py:NAME, package.module:NAME, torch or lanewise"),
    ],
)
def test_targets_that_are_none(operators, target, message, capsys):
    assert main(["audit", target]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--budget", "soon"), "budget: got 'soon'"),
        (("--select", "E1"), "--select: got 'E1'"),
        (("--html", "no/x.html"), "--html"),
    ],
)
def test_options_are_checked_before_the_work(option, message, capsys):
    assert main(["audit", "torch", *option]) == 2
    assert message in capsys.readouterr().err


def test_inputs_may_be_a_tuple_a_dictionary_a_tensor_or_a_function(operators):
    assert [t.name for t in specs_of(f"{operators}:loses_rows")[0].inputs] == ["x", "w"]
    assert [t.name for t in specs_of("audited_functions:healthy")[0].inputs] == ["x", "w"]
    assert [t.name for t in specs_of("audited_functions:refuses_everything")[0].inputs] == ["x"]


def test_our_own_catalogue_runs_forward():
    from lanewise.audit.sweep import Plan, Sweep

    for spec in specs_of("lanewise"):
        call = Sweep([spec], Plan()).base(spec).call(spec)
        with torch.no_grad():
            assert all(y.isfinite().all() for y in call.output()), spec.name


def test_explain_one_code_and_all(capsys):
    assert main(["explain", "lw202"]) == 0
    assert "LW202: wrong past the byte window" in capsys.readouterr().out
    assert main(["explain"]) == 0
    out = capsys.readouterr().out
    assert all(code in out for code in CODES)
    assert main(["explain", "LW999"]) == 2
