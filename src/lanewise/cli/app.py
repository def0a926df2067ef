"""`lanewise COMMAND`: the overview, the choice of the command, errors and signals to exit codes."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import tyro

from lanewise import __version__
from lanewise.cli.console import CommonOptions, humans_to_stderr, require_json_target, warn, write_json
from lanewise.errors import LanewiseError

# The summaries stand here, so that the overview imports no command and is there at once.
COMMANDS = {
    "demo": "make a small capture, train it, evaluate and export it: everything once, in about two minutes",
    "sfm": "find the cameras of a folder of photographs with COLMAP, and undistort the images",
    "train": "train a scene from a capture (COLMAP, Nerfstudio or Blender), or resume a run",
    "eval": "measure a run on its held-out views",
    "render": "render a run's held-out views, or an orbit around its scene, as PNG",
    "export": "write a run's scene as a PLY file, read it back and check the picture",
    "info": "say what is in a capture, a run or a splat file",
    "audit": "look for silently wrong gradients: of your operator, of torch, or of Lanewise",
    "explain": "say what a finding's code means",
    "prove": "compile every kernel for every GPU and execute AMD's machine code, without a GPU",
    "doctor": "check this machine and say what to install",
}
EXIT_OK, EXIT_FINDINGS, EXIT_USAGE, EXIT_INTERNAL, EXIT_NOTHING_RAN, EXIT_INTERRUPTED = 0, 1, 2, 3, 5, 130

_TYRO = (tyro.conf.OmitArgPrefixes, tyro.conf.DisallowNone, tyro.conf.FlagCreatePairsOff)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments after `lanewise`; those of the process when None.

    Returns:
        The exit code: 0 clean, 1 findings or failed checks, 2 usage or bad input, 3 internal error, 5 nothing ran,
        130 interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help", "help"):
        (sys.stdout if arguments else sys.stderr).write(_overview())
        return EXIT_OK if arguments else EXIT_USAGE
    if name in ("-V", "--version"):
        sys.stdout.write(f"lanewise {__version__}\n")
        return EXIT_OK
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean `lanewise {close[0]}`?" if close else "`lanewise --help` lists the commands"
        sys.stderr.write(f"lanewise: there is no command {name!r}; {hint}\n")
        return EXIT_USAGE
    with _sigterm_as_interrupt():
        return _run(name, arguments[1:])


def _options(module: ModuleType, name: str, arguments: Sequence[str]) -> CommonOptions:
    """The options of a command from its arguments; `SystemExit` after help and after a wrong argument."""

    def parse(**default: Any) -> Any:
        return tyro.cli(
            module.Options,
            prog=f"lanewise {name}",
            description=inspect.cleandoc(module.Options.__doc__),
            args=arguments,
            config=_TYRO,
            **default,
        )

    options = parse()
    # Defaults may depend on an option: those of `train --resume RUN` are the settings of the run.
    return parse(default=module.defaults(options)) if hasattr(module, "defaults") else options


def _run(name: str, arguments: Sequence[str]) -> int:
    options: CommonOptions | None = None
    try:
        module = importlib.import_module(f"lanewise.cli.{name}")
        options = _options(module, name, arguments)
        require_json_target(options.json)
        with _warnings_as_lines(), humans_to_stderr() if options.json == "-" else contextlib.nullcontext():
            return module.run(options)
    except SystemExit as stop:  # after --help (0) and after a wrong argument (2)
        return stop.code if isinstance(stop.code, int) else EXIT_USAGE
    except KeyboardInterrupt:
        return _fail(name, options, EXIT_INTERRUPTED, "interrupted")
    except BrokenPipeError:  # the reader of our output went away (`lanewise info ... | head`)
        sys.stdout = sys.stderr  # so that Python's own flush at the end finds nothing to complain about
        return EXIT_OK
    except LanewiseError as error:
        if options is not None and options.debug:
            traceback.print_exc()
        return _fail(name, options, error.exit_code, f"error: {error}")
    except Exception as error:
        if options is not None and options.debug:
            traceback.print_exc()
            where = "the traceback is above"
        else:
            where = _save_traceback()
        return _fail(name, options, EXIT_INTERNAL, f"internal error: {type(error).__name__}: {error} ({where})")


def _fail(name: str, options: CommonOptions | None, code: int, message: str) -> int:
    sys.stderr.write(f"lanewise {name}: {message}\n")
    if options is not None:
        with contextlib.suppress(LanewiseError):  # the file of --json itself may be what cannot be written
            write_json(options.json, {"command": name, "exit_code": code, "error": message})
    return code


def _save_traceback() -> str:
    try:
        with tempfile.NamedTemporaryFile("w", prefix="lanewise-error-", suffix=".log", delete=False) as log:
            log.write(traceback.format_exc())
    except OSError:
        return "add --debug for the traceback"
    return f"traceback in {log.name}; --debug shows it here"


@contextlib.contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Show a warning as one line for people, without the place in the source that raised it."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: warn(str(message))
        yield


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """While a command runs, a polite kill is what Ctrl-C is: the run stops, tells how to resume, and exits with 130."""

    def interrupt(signum: int, frame: object) -> None:
        # By way of Ctrl-C's handler, which the trainer replaces to finish its step and write a checkpoint first. Shells
        # start background jobs with Ctrl-C ignored: then there is no handler to go by.
        if not callable(signal.getsignal(signal.SIGINT)):
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread: signals are not ours
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items())
    return f"""usage: lanewise COMMAND [OPTIONS]

From photographs to a trained splat scene, with gradients that are right on every machine.

{lines}

Examples:
  lanewise demo --out demo
  lanewise train photos --out run --steps 7000
  lanewise train --help

Exit codes: 0 clean, 1 findings or failed checks, 2 usage or bad input, 3 internal error, 5 nothing ran,
130 interrupted.
"""
