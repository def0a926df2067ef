"""`lanewise demo --out DIR`: everything once, on a capture that is made on the spot."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from lanewise.cli.console import CommonOptions, duration, number, progress, say, show_table, write_json


@dataclass(kw_only=True)
class Options(CommonOptions):
    """Make a small capture with a ray tracer, train a scene from it, measure it on held-out views, and export it.

    No photographs and no GPU are needed. The folder is a run folder as `lanewise train` makes it, with the capture
    inside.

    Examples:
      lanewise demo --out demo
      lanewise demo --out demo --steps 300
    """

    out: Path = Path("demo")
    """The folder to make: capture, run, scene and figures."""
    steps: int | None = None
    """Number of training steps; by default as many as the capture needs (700)."""


def run(options: Options) -> int:
    """Capture, train, evaluate, export; the exit code is 1 when the exported file does not give the same picture."""
    started = time.perf_counter()
    from lanewise.cli.export import LEAST_PSNR, export
    from lanewise.cli.observer import observer_for_this_place
    from lanewise.cli.train import tell_how_to_resume
    from lanewise.demo import DEMO_STEPS, DEMO_TRAIN_OVERRIDES, write_capture
    from lanewise.train import RunFolder, TrainConfig, train

    steps = DEMO_STEPS if options.steps is None else options.steps
    config = TrainConfig(**{**DEMO_TRAIN_OVERRIDES, "steps": steps, "checkpoint_every": max(steps, 1)})
    config.validate()
    RunFolder(options.out).refuse_existing()
    say("1/3 a capture: photographs of a small scene by a ray tracer")
    with progress("photographs") as step:
        capture = write_capture(options.out / "capture", progress=step)
    say("2/3 training; the CPU kernels are compiled when they are first needed, which takes a while once")
    with tell_how_to_resume(options.out), observer_for_this_place(config.sh_degree) as observer:
        summary = train(capture, options.out, config, observer=observer)
    say("3/3 export")
    file = options.out / "export.ply"
    exported = export(options.out, file)
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
    say(f"truth, render, error side by side: {options.out / 'eval' / str(summary['steps'])}")
    say(f"the scene for any splat viewer:    {file}")
    say(f"next: lanewise render {options.out} --orbit 60    lanewise train YOUR_CAPTURE --out run")
    write_json(
        options.json,
        {"run": options.out, "total_seconds": total, "gain_db": gain, "export": {"file": file, **exported}, **summary},
    )
    return 0 if exported["psnr"] >= LEAST_PSNR else 1
