"""`lanewise demo --out DIR`: everything once, on a capture that is made on the spot; or one of the two incidents."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lanewise.cli.console import CommonOptions, duration, number, progress, say, show_table, write_json
from lanewise.errors import InputError


@dataclass(kw_only=True)
class Options(CommonOptions):
    """Make a small capture with a ray tracer, train a scene from it, measure it on held-out views, and export it.

    No photographs and no GPU are needed. The folder is a run folder as `lanewise train` makes it, with the capture
    inside.

    With --incident: replay one of the two reports that this project answers, with its fault planted, beside a healthy
    run; the exit code is 1 when something is not as predicted.

    Examples:
      lanewise demo --out demo
      lanewise demo --out demo --steps 300
      lanewise demo --incident wavefront
      lanewise demo --incident window --json window.json
    """

    out: Path | None = None
    """The folder to make: capture, run, scene and figures; `demo` without this. With --incident wavefront its capture
    and runs are kept there, and nothing is kept without."""
    steps: int | None = None
    """Number of training steps; by default as many as the capture needs (700)."""
    incident: Literal["wavefront", "window"] | None = None
    """Replay this incident: wavefront (a backward pass for 64 lanes on 32) or window (a convolution past 4 GB)."""


def run(options: Options) -> int:
    """Capture, train, evaluate, export; the exit code is 1 when the exported file does not give the same picture."""
    if options.incident is not None:
        return _incident(options, options.incident)
    started = time.perf_counter()
    from lanewise.cli.export import LEAST_PSNR, export
    from lanewise.cli.observer import observer_for_this_place
    from lanewise.cli.train import tell_how_to_resume
    from lanewise.demo import DEMO_STEPS, DEMO_TRAIN_OVERRIDES, write_capture
    from lanewise.train import RunFolder, TrainConfig, train

    steps = DEMO_STEPS if options.steps is None else options.steps
    config = TrainConfig(**{**DEMO_TRAIN_OVERRIDES, "steps": steps, "checkpoint_every": max(steps, 1)})
    config.validate()
    out = options.out or Path("demo")
    RunFolder(out).refuse_existing()
    say("1/3 a capture: photographs of a small scene by a ray tracer")
    with progress("photographs") as step:
        capture = write_capture(out / "capture", progress=step)
    say("2/3 training; the CPU kernels are compiled when they are first needed, which takes a while once")
    with tell_how_to_resume(out), observer_for_this_place(config.sh_degree) as observer:
        summary = train(capture, out, config, observer=observer)
    say("3/3 export")
    file = out / "export.ply"
    exported = export(out, file)
    total = time.perf_counter() - started
    gain = summary["psnr"] - summary["baseline_psnr"]
    rows = [
        ["this scene", number(summary["psnr"]), number(summary["ssim"], 4)],
        ["baseline: the nearest training photograph", number(summary["baseline_psnr"]), "-"],
        ["difference", f"{gain:+.2f}", "-"],
    ]
    show_table("held-out views", ("", "PSNR, dB", "SSIM"), rows)
    say(
        f"{summary['gaussians']:,} Gaussians, {summary['steps']} steps, {duration(total)} in all "
        f"(device {summary['device']}, backend {summary['backend']})"
    )
    say(f"truth, render, error side by side: {out / 'eval' / str(summary['steps'])}")
    say(f"the scene for any splat viewer:    {file}")
    say(f"next: lanewise render {out} --orbit 60    lanewise train YOUR_CAPTURE --out run")
    write_json(
        options.json,
        {"run": out, "total_seconds": total, "gain_db": gain, "export": {"file": file, **exported}, **summary},
    )
    return 0 if exported["psnr"] >= LEAST_PSNR else 1


def _incident(options: Options, incident: Literal["wavefront", "window"]) -> int:
    from lanewise.cli import incident as replayed

    if options.steps is not None:
        raise InputError("--steps", got=f"{options.steps} with --incident", expected="it alone: its schedule is fixed")
    if incident == "wavefront":
        return replayed.wavefront(options.out, options.json)
    if options.out is not None:
        raise InputError("--out", got=f"{options.out} with --incident window", expected="--json, there are no files")
    return replayed.window(options.json)
