"""`lanewise train CAPTURE --out RUN`, and `lanewise train --resume RUN`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from lanewise.cli.console import CommonOptions, duration, number, say, show_panel, write_json
from lanewise.cli.observer import observer_for_this_place
from lanewise.errors import InputError
from lanewise.train import RunFolder, TrainConfig, resume, train


@dataclass(kw_only=True)
class Options(CommonOptions):
    """Train a scene from a capture (COLMAP, Nerfstudio or Blender; the format is detected), or resume a run.

    Examples:
      lanewise train photos --out run
      lanewise train photos --out run --steps 1000 --downscale 2
      lanewise train --resume run
      lanewise train --resume run --steps 30000
    """

    capture: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="CAPTURE")] = None
    """Folder of the capture; it is never written into. Beside --resume: where it is now, if it has been moved."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """The run folder to make."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Go on with this run folder; its own settings hold, only --steps may differ."""
    config: TrainConfig = field(default_factory=TrainConfig)
    """Settings of the training."""


def defaults(options: Options) -> Options:
    """The options that hold where the command line says nothing: those of the run, when one is resumed."""
    return Options() if options.resume is None else Options(config=RunFolder(options.resume).config())


def run(options: Options) -> int:
    """Train; the summary goes to the terminal and to `--json`."""
    folder = options.resume or options.out
    if folder is None or (options.resume is None and options.capture is None):
        raise InputError(
            "CAPTURE, --out",
            got="too few of them",
            expected="lanewise train CAPTURE --out RUN, or lanewise train --resume RUN",
        )
    if options.resume is not None and options.out is not None:
        raise InputError(
            "--out", got=f"{options.out} beside --resume", expected="one of the two", fix="leave --out out"
        )
    with tell_how_to_resume(folder):
        summary = _train(options, folder)
    show_summary(folder, summary)
    write_json(options.json, {"run": folder, **summary})
    return 0


@contextlib.contextmanager
def tell_how_to_resume(folder: Path) -> Iterator[None]:
    """After Ctrl-C or a polite kill inside the block, name the command that goes on."""
    try:
        yield
    except KeyboardInterrupt:
        if RunFolder(folder).exists():
            say(f"stopped; `lanewise train --resume {folder}` goes on from the last checkpoint")
        raise


def show_summary(folder: Path, summary: dict[str, Any]) -> None:
    """The result of a run, and what can be done with it next."""
    rows = {
        "PSNR": f"{number(summary['psnr'])} dB (nearest training photograph: {number(summary['baseline_psnr'])} dB)",
        "SSIM": number(summary["ssim"], 4),
        "LPIPS": summary["lpips_status"],
        "Gaussians": f"{summary['gaussians']:,}",
        "time": duration(summary["seconds"]),
        "device, backend": f"{summary['device']}, {summary['backend']}",
    }
    show_panel(f"run {folder}", rows)
    say(f"pictures: {folder / 'eval'}   scene: {folder / 'scene.ply'}   figures: {folder / 'summary.json'}")


def _train(options: Options, folder: Path) -> dict[str, Any]:
    with observer_for_this_place(options.config.sh_degree) as observer:
        if options.resume is None:
            assert options.capture is not None
            return train(options.capture, folder, options.config, observer=observer)
        saved, wanted = RunFolder(folder).config().to_dict(), options.config.to_dict()
        changed = [f"--{name.replace('_', '-')}" for name in saved if saved[name] != wanted[name] and name != "steps"]
        if changed:
            raise InputError(
                ", ".join(changed),
                got="a value that differs from the run's",
                expected="only --steps beside --resume",
                why="a resumed run goes on as it began",
                fix="leave it out, or start a new run",
            )
        return resume(folder, observer=observer, steps=options.config.steps, capture=options.capture)
