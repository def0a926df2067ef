"""What `lanewise demo --incident` shows: the tables of a replay, and whether the predictions came true."""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lanewise.cli.console import duration, number, say, show_table, write_json
from lanewise.errors import InputError

if TYPE_CHECKING:
    from lanewise.demo.incidents import Prediction
    from lanewise.demo.incidents import wavefront as waves
    from lanewise.demo.incidents import window as windows

RUN_COLUMNS = ("run", "PSNR, dB", "difference", "Gaussians", "born", "named by watch", "audit")
WINDOW_COLUMNS = ("run", "images a launch", "loss, first to last", "weight moved", "named by watch", "audit")


def wavefront(out: Path | None, json: str | None) -> int:
    """Replay the incident of the wave's width, show and write; 0 when all is as predicted, else 1.

    Args:
        out: keeps the capture and the runs; None to keep nothing.
        json: of `--json`.

    Raises:
        InputError: the folder holds something already.
    """
    from lanewise.demo.incidents.lanes import CAUSES
    from lanewise.demo.incidents.wavefront import predictions, replay

    started = time.perf_counter()
    with _folder(out) as folder:
        runs = replay(folder, tell=say)
    healthy = runs[0]
    show_table("the causes, each alone", ("cause", "what is wrong"), [[cause.name, cause.title] for cause in CAUSES])
    show_table("each run beside the healthy one", RUN_COLUMNS, [_run_row(run, healthy) for run in runs])
    names = list(healthy.errors)
    errors = [[run.name, *map(_error, run.errors.values())] for run in runs[1:]]
    show_table("relative error of the first step's gradients", ("run", *names), errors)
    return _verdict(predictions(runs), [asdict(run) for run in runs], json, time.perf_counter() - started)


def window(json: str | None) -> int:
    """Replay the incident of the 4 GB window, show and write; 0 when all is as predicted, else 1."""
    from lanewise.demo.incidents.window import predictions, replay

    started = time.perf_counter()
    runs = replay(tell=say)
    show_table("the report's layer, bytes divided by 4,096", WINDOW_COLUMNS, [_window_row(run) for run in runs])
    facts = [_window_facts(run) for run in runs]
    return _verdict(predictions(runs), facts, json, time.perf_counter() - started)


@contextlib.contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    if out is None:
        with tempfile.TemporaryDirectory(prefix="lanewise-incident-") as folder:
            yield Path(folder)
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("--out", got=f"{out}, which is there", expected="a new or empty folder")
    yield out


def _run_row(run: waves.Run, healthy: waves.Run) -> list[str]:
    difference = "-" if run is healthy else f"{run.psnr - healthy.psnr:+.2f}"
    watched = "; ".join(f"{w.code} of {', '.join(w.arguments)} in step {w.step}" for w in run.watched)
    count = f"{run.before:,} to {run.after:,}"
    return [run.name, number(run.psnr), difference, count, f"{run.born:,}", watched or "-", _or_clean(run.audited)]


def _error(error: float) -> str:
    return "NaN" if math.isnan(error) else number(error)


def _window_row(run: windows.Run) -> list[str]:
    watched = "; ".join(f"{code} of {place}, {argument}, in step {step}" for code, place, argument, step in run.watched)
    losses = " ".join(f"{loss:.2g}" for loss in run.losses)
    audited = [f"{f.code} of {f.argument} from {f.shapes['x'][0]} images on" for f in run.audited]
    return [run.name, str(run.launches), losses, number(run.moved), watched or "-", _or_clean(audited)]


def _window_facts(run: windows.Run) -> dict[str, Any]:
    from lanewise.audit.report import finding_facts

    return {**vars(run), "audited": [finding_facts(finding) for finding in run.audited]}


def _or_clean(found: Sequence[str]) -> str:
    return "; ".join(found) or "clean"


def _verdict(
    predictions: Sequence[Prediction], runs: Sequence[Mapping[str, Any]], json: str | None, seconds: float
) -> int:
    from lanewise.demo.incidents import came_true

    for prediction in predictions:
        seen = f" ({prediction.seen})" if prediction.seen else ""
        style = "green" if prediction.holds else "bold red"
        say(f"{'yes' if prediction.holds else 'NO '}  {prediction.text}{seen}", style=style)
    ok = came_true(predictions)
    say(f"{'All is as predicted' if ok else 'Not all is as predicted'}; {duration(seconds)}.")
    write_json(json, {"ok": ok, "seconds": seconds, "runs": runs, "predictions": [asdict(p) for p in predictions]})
    return 0 if ok else 1
