"""What every command shares: options, the console, the JSON file, progress that suits the place it is shown in."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO

import tyro
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from lanewise.errors import InputError

WIDTH_WITHOUT_TERMINAL = 110  # columns of tables and panels in a log file


@dataclass(kw_only=True)
class CommonOptions:
    """Options of every command."""

    json: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Write the result as JSON to this file; `-` is standard output, which then holds nothing else."""
    debug: bool = False
    """Show the traceback of an unexpected error."""


def console() -> Console:
    """A console on the standard output of this moment (which `--json -` points at standard error)."""
    out = Console(file=sys.stdout, highlight=False, markup=False)
    if not out.is_terminal:
        out.width = WIDTH_WITHOUT_TERMINAL
    return out


def say(text: str = "", *, style: str | None = None) -> None:
    """Print one line, never broken by the width of the window."""
    console().print(text, style=style, soft_wrap=True)


def warn(text: str) -> None:
    """Print one warning on standard error."""
    Console(stderr=True, highlight=False, markup=False).print(f"warning: {text}", style="yellow", soft_wrap=True)


def show_panel(title: str, rows: Mapping[str, object]) -> None:
    """Print names and values in a frame."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for name, value in rows.items():
        grid.add_row(name, str(value))
    console().print(Panel(grid, title=Text(title), title_align="left", expand=False))


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; columns that hold nothing but numbers are aligned to the right."""
    table = Table(title=Text(title), title_justify="left")
    for index, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[index], (int, float)) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(number(cell) if isinstance(cell, float) else str(cell) for cell in row))
    console().print(table)


@contextlib.contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Callable[[int, int], None]]:
    """A bar in a terminal, about ten plain lines elsewhere; the block calls what it gets with (done, total)."""
    out = console()
    if out.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=out, transient=True) as bar:
            task = bar.add_task(description, total=total)
            yield lambda done, all_: bar.update(task, completed=done, total=all_)
        return
    shown = -1

    def line(done: int, all_: int) -> None:
        nonlocal shown
        tenth = 10 * done // max(all_, 1)
        if tenth > shown:
            shown = tenth
            say(f"{description} {done}/{all_}")

    yield line


def require_json_target(target: str | None) -> None:
    """Find out before the work whether the result could be written afterwards.

    Raises:
        InputError: `--json` names a folder, or a file in a folder that is missing or not writable.
    """
    if target is None or target == "-":
        return
    path = Path(target)
    if path.is_dir():
        raise InputError("--json", got=f"a folder ({path})", expected="a file, or - for standard output")
    if not path.parent.is_dir():
        raise InputError("--json", got=path, expected="a file in a folder that exists", fix=f"mkdir -p {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise InputError("--json", got=path, expected="a file in a folder that you may write to")


def write_json(target: str | None, data: Mapping[str, Any]) -> None:
    """Write the result of a command where `--json` says; the one place that does. `None` writes nothing.

    Numbers that JSON does not know (NaN, infinities) become null, paths become text.

    Raises:
        StorageError: the file cannot be written.
    """
    if target is None:
        return
    text = json.dumps(_plain(data), indent=2, allow_nan=False) + "\n"
    if target == "-":
        machine_output().write(text)
        machine_output().flush()
        return
    from lanewise.io.files import atomic_write

    with atomic_write(target) as stream:
        stream.write(text.encode())


_machine_output: TextIO | None = None


def machine_output() -> TextIO:
    """The stream of `--json -`: the standard output from before `humans_to_stderr`."""
    return _machine_output or sys.stdout


@contextlib.contextmanager
def humans_to_stderr() -> Iterator[None]:
    """Send everything but the JSON to standard error, so that `--json -` can be piped."""
    global _machine_output
    _machine_output = sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _machine_output = None


def number(value: float | None, digits: int = 2) -> str:
    """A number for people: 24.68, 1.2e-05; `-` when there is none."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.{digits}f}" if value == 0 or 0.01 <= abs(value) < 1e6 else f"{value:.{digits}g}"


def size(byte_count: float) -> str:
    """A number of bytes for people: 1.3 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(byte_count) < 1024:
            return f"{byte_count:.0f} {unit}" if unit == "B" else f"{byte_count:.1f} {unit}"
        byte_count /= 1024
    return f"{byte_count:.1f} TiB"


def duration(seconds: float) -> str:
    """A time span for people: 8 s, 2 min 33 s, 1 h 05 min."""
    if not math.isfinite(seconds):
        return "-"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # NumPy's and torch's numbers and arrays
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
