"""`lanewise export RUN --out FILE.ply`: written, read back, rendered and compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from lanewise.cli.console import CommonOptions, number, say, size, write_json
from lanewise.errors import InputError

LEAST_PSNR = (
    90.0  # dB between the picture of the file and the trainer's; the file holds every bit, so they should be equal
)


@dataclass(kw_only=True)
class Options(CommonOptions):
    """Write a run's scene as a PLY file, read it back, and compare its picture with the trainer's.

    Exits with 1 when the two pictures differ.

    Examples:
      lanewise export run --out scene.ply
      lanewise export run --out scene.ply --json -
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run folder."""
    out: Path
    """The file to write; its name ends in .ply."""
    capture: Path | None = None
    """Where the capture is now, when it has been moved since the training."""


def run(options: Options) -> int:
    """Write and check the file."""
    if options.out.suffix.lower() != ".ply" or options.out.is_dir():
        raise InputError("--out", got=options.out, expected="a file name that ends in .ply")
    result = export(options.run, options.out, options.capture)
    same = result["psnr"] >= LEAST_PSNR
    shown = "the same picture" if result["identical"] else f"{number(result['psnr'])} dB against the trainer's picture"
    say(f"{options.out}: {result['gaussians']:,} Gaussians, {size(result['bytes'])}; read back and rendered: {shown}")
    if not same:
        say(f"the file does not give the trainer's picture (at least {LEAST_PSNR:.0f} dB expected)", style="bold red")
    write_json(options.json, {"run": options.run, "file": options.out, "good": same, **result})
    return 0 if same else 1


def export(run: Path, out: Path, capture: Path | None = None) -> dict[str, Any]:
    """Write the scene of a run, read the file and compare a rendered view.

    Returns:
        `gaussians`, `bytes`, `view` (the name of the image whose camera was used), `identical`, and `psnr` in dB
        (100 at most).

    Raises:
        InputError: there is no run, or its scene has diverged.
        StorageError: the file cannot be written.
    """
    from lanewise.cli.run_scene import RunScene
    from lanewise.io.ply import load_ply, save_ply
    from lanewise.train.evaluation import psnr

    scene = RunScene.open(run, capture)
    save_ply(out, scene.gaussians)
    view = (scene.data.test or scene.data.train)[0]
    ours, theirs = scene.picture(view), scene.picture(view, load_ply(out))
    return {
        "gaussians": len(scene.gaussians),
        "bytes": out.stat().st_size,
        "view": view.name,
        "identical": bool((ours == theirs).all()),
        "psnr": psnr(ours, theirs),
    }
