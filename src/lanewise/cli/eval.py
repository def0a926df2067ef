"""`lanewise eval RUN`: PSNR and SSIM of the held-out views."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from lanewise.cli.console import CommonOptions, say, show_table, warn, write_json


@dataclass(kw_only=True)
class Options(CommonOptions):
    """Measure a run on its held-out views; the tables and pictures go to `eval/<step>` in the run folder.

    The baseline is the training photograph whose camera is nearest: what a scene must beat to be worth anything.

    Examples:
      lanewise eval run
      lanewise eval run --step 7000 --json -
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run folder."""
    step: int | None = None
    """Measure the checkpoint of this step; the newest one when not given."""
    capture: Path | None = None
    """Where the capture is now, when it has been moved since the training."""


def run(options: Options) -> int:
    """Measure, show a line an image and the means."""
    from lanewise.train import evaluate_run

    result = evaluate_run(options.run, step=options.step, capture=options.capture)
    columns = ("name", "psnr", "ssim", "baseline_psnr")
    rows = [[_cell(row[column]) for column in columns] for row in result["per_image"]]
    rows.append(["mean", *(_cell(result[column]) for column in columns[1:])])
    show_table(f"step {result['step']}", ("image", "PSNR, dB", "SSIM", "nearest photograph, dB"), rows)
    if result["split"] != "test":
        warn("no views are held out: these are figures of photographs that were trained on")
    say(f"pictures (truth, render, error): {result['folder']}")
    write_json(options.json, {"run": options.run, **result})
    return 0


def _cell(value: float | str | None) -> float | str:
    return "-" if value is None else value
