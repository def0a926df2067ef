"""The frame of the command line: overview, exit codes, messages, JSON, signals."""

import json
import os
import signal
import subprocess
import sys
import types

import pytest

from lanewise.cli import app, main
from lanewise.cli.console import CommonOptions, say, write_json
from lanewise.errors import InputError


@pytest.fixture
def command(monkeypatch):
    """Plant a command named `plant` whose `run` is given; returns a function that runs it with arguments."""

    def plant(run, *arguments):
        module = types.ModuleType("lanewise.cli.plant")
        vars(module).update(Options=CommonOptions, run=run)
        monkeypatch.setitem(sys.modules, "lanewise.cli.plant", module)
        monkeypatch.setitem(app.COMMANDS, "plant", "a command of this test")
        return main(["plant", *arguments])

    return plant


def test_overview_lists_every_command_with_one_line(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, summary in app.COMMANDS.items():
        assert any(line.split() == [name, *summary.split()] for line in out.splitlines()), name
    assert "Examples:" in out


def test_overview_imports_neither_torch_nor_a_command():
    code = (
        "import sys; from lanewise.cli import main; main(['--help']);"
        "assert not {'torch', 'numba', 'numpy', 'lanewise.cli.train'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_no_command_is_a_usage_error_that_shows_the_overview(capsys):
    assert main([]) == 2
    assert "usage: lanewise COMMAND" in capsys.readouterr().err


def test_unknown_command_names_the_closest(capsys):
    assert main(["trian"]) == 2
    assert "did you mean `lanewise train`?" in capsys.readouterr().err


def test_version(capsys):
    from lanewise import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"lanewise {__version__}\n"


@pytest.mark.parametrize("name", list(app.COMMANDS))
def test_help_of_every_command_has_examples_and_the_common_options(name, capsys):
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert "Examples:" in out
    assert f"lanewise {name}" in out.split("Examples:")[1]
    assert "--json FILE" in out
    assert "{None}" not in out


@pytest.mark.parametrize("name", list(app.COMMANDS))
def test_an_unknown_option_is_a_usage_error(name, capsys):
    assert main([name, "path", "--no-such-option"]) == 2
    captured = capsys.readouterr()
    assert "--no-such-option" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("code", [0, 1, 5])
def test_the_exit_code_of_a_command_is_handed_on(command, code):
    assert command(lambda options: code) == code


def test_our_errors_are_one_message_without_traceback(command, capsys):
    def run(options):
        raise InputError("photos", got="nothing there", expected="a capture", fix="check the path")

    assert command(run) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "lanewise plant: error: photos: got nothing there, expected a capture. Fix: check the path.\n"
    )


def test_an_unexpected_error_is_short_and_names_the_log(command, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(app.tempfile, "tempdir", str(tmp_path))

    def run(options):
        raise ZeroDivisionError("nobody thought of this")

    assert command(run) == 3
    err = capsys.readouterr().err
    assert "internal error: ZeroDivisionError: nobody thought of this" in err
    assert "Traceback" not in err
    (log,) = tmp_path.glob("lanewise-error-*.log")
    assert str(log) in err
    assert "Traceback" in log.read_text()


def test_debug_shows_the_traceback(command, capsys):
    def run(options):
        raise ZeroDivisionError

    assert command(run, "--debug") == 3
    assert "Traceback" in capsys.readouterr().err


def test_json_on_standard_output_is_alone_there(command, capsys):
    def run(options):
        say("words for people")
        write_json(options.json, {"psnr": float("nan"), "steps": 3})
        return 0

    assert command(run, "--json", "-") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"psnr": None, "steps": 3}
    assert "words for people" in captured.err


def test_json_file_holds_errors_too(command, tmp_path):
    def run(options):
        raise InputError("photos", got="nothing there", expected="a capture")

    assert command(run, "--json", str(tmp_path / "result.json")) == 2
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["exit_code"] == 2
    assert "photos: got nothing there" in result["error"]


def test_a_json_file_that_cannot_be_written_is_found_before_the_work(command, tmp_path, capsys):
    def run(options):
        raise AssertionError("the work has begun")

    assert command(run, "--json", str(tmp_path / "nowhere" / "result.json")) == 2
    assert "a folder that exists" in capsys.readouterr().err
    assert command(run, "--json", str(tmp_path)) == 2
    assert "a folder (" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_a_polite_kill_exit_with_130(command, capsys, number):
    def run(options):
        os.kill(os.getpid(), number)
        return 0

    before = signal.getsignal(signal.SIGTERM)
    assert command(run) == 130
    assert "interrupted" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_reader_that_goes_away_is_no_error(command, monkeypatch):
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # restored after the command has replaced it

    def run(options):
        raise BrokenPipeError

    assert command(run) == 0


def test_defaults_may_depend_on_an_option(monkeypatch):
    seen = []
    module = types.ModuleType("lanewise.cli.plant")
    vars(module).update(
        Options=CommonOptions,
        defaults=lambda options: CommonOptions(json="from the run" if options.debug else None),
        run=lambda options: seen.append(options) or 0,
    )
    monkeypatch.setitem(sys.modules, "lanewise.cli.plant", module)
    monkeypatch.setitem(app.COMMANDS, "plant", "a command of this test")
    assert main(["plant", "--debug"]) == 0
    assert seen == [CommonOptions(json="from the run", debug=True)]


@pytest.mark.parametrize("module", ["lanewise", "lanewise.cli"])
def test_the_module_runs_as_a_program(module):
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("lanewise ")
