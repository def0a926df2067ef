"""Beginning, resuming and evaluating runs: what the package offers to callers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch

from lanewise.errors import InputError
from lanewise.io.captures import Capture
from lanewise.splat._backend import Backend, resolve_backend
from lanewise.train.config import TrainConfig
from lanewise.train.data import load_data
from lanewise.train.evaluation import evaluate
from lanewise.train.observer import Observer, silent
from lanewise.train.render import Rasterizer, Renderer, resolve_device
from lanewise.train.run_folder import RunFolder
from lanewise.train.trainer import Trainer


def train(
    capture: Capture | Path | str,
    out: Path | str,
    config: TrainConfig | None = None,
    *,
    observer: Observer = silent,
    renderer: Rasterizer | None = None,
) -> dict[str, Any]:
    """Train a scene from a capture.

    Args:
        capture: a capture, or its folder. Give the folder when `config` names a format, images or downscale.
        out: the run folder, new or without a run in it.
        config: the settings; the standard ones without.
        observer: who is told how it goes.
        renderer: renders in place of the library's own, by the same contract
            (`lanewise.train.render.Rasterizer`): another rasterizer in the same training, for comparisons. Steps are
            then launched one by one.

    Returns:
        what `summary.json` holds: `psnr, ssim, baseline_psnr, split, lpips, seconds, warmup_seconds, timing, steps,
        gaussians, backend, device, versions, ...`. `split` is "test", or "train" when no photographs are held out and
        the figures are of those trained on. `warmup_seconds`, in which kernels were compiled, are not part of
        `seconds`; `timing` says where those went (`lanewise.train.engine.Engine.timing`).

    Raises:
        InputError: the settings, the capture or `out` cannot be used.
        StorageError: the run cannot be written.
        DivergedError: the loss is no longer finite; the newest checkpoint is kept.
        KeyboardInterrupt: Ctrl-C; a checkpoint was written, and `resume` goes on from there.
    """
    config = config or TrainConfig()
    config.validate()
    device = resolve_device(config.device)
    probe = torch.empty(0, device=device, dtype=torch.float32)
    resolve_backend(config.backend, probe)  # refused now, if it is to be
    for name, value in (("capture", capture), ("out", out)):
        if value == "":
            raise InputError(name, got="an empty path", expected="a folder")
    run = RunFolder(out)
    run.refuse_existing()
    if not isinstance(capture, Capture):
        capture = Path(capture).resolve()
    run.refuse_inside(capture.path if isinstance(capture, Capture) else capture)
    run.refuse_unwritable()
    data = load_data(capture, config, progress=observer.on_check)
    run.prepare()
    trainer = Trainer(data, config, run, device, observer, renderer)
    # From here on the run can be resumed: until the first checkpoint, by beginning again.
    run.write_config(dataclasses.replace(config, format=data.capture.format), data.capture.path.resolve())
    return trainer.run()


def resume(
    run: Path | str, *, observer: Observer = silent, steps: int | None = None, capture: Path | str | None = None
) -> dict[str, Any]:
    """Go on with a run that was killed, interrupted, or is to become longer.

    On the same machine with the same number of threads the result has the same bits as that of a run that never
    stopped. A run that was killed before its first checkpoint begins again. A damaged checkpoint is passed over with a
    warning, in favour of the one before.

    Args:
        run: the run folder.
        observer: who is told how it goes.
        steps: another number of steps, at least those done.
        capture: where the capture is now, if it moved.

    Returns:
        the summary, as `train`.

    Raises:
        InputError: there is no run, its settings or capture cannot be used, or `steps` are done already.
        StorageError, DivergedError, KeyboardInterrupt: as `train`.
    """
    folder = RunFolder(run)
    config = folder.config() if steps is None else dataclasses.replace(folder.config(), steps=steps)
    config.validate()
    device = resolve_device(config.device)
    checkpoint = folder.load_latest()
    done = checkpoint.step if checkpoint else 0
    if config.steps < done:
        raise InputError("steps", got=config.steps, expected=f"at least {done}, the steps that the run has done")
    where = folder.capture_path() if capture is None else Path(capture).resolve()
    data = load_data(where, config, progress=observer.on_check)
    folder.prepare()
    folder.rewind(done)
    folder.write_config(config, where)
    trainer = Trainer(data, config, folder, device, observer)
    if checkpoint:
        trainer.restore(checkpoint)
    return trainer.run()


def evaluate_run(
    run: Path | str,
    *,
    step: int | None = None,
    backend: Backend | None = None,
    device: str | None = None,
    capture: Path | str | None = None,
    observer: Observer = silent,
) -> dict[str, Any]:
    """Evaluate a checkpoint of a run, and write `eval/<step>/`.

    Args:
        run: the run folder.
        step: the checkpoint of this step, instead of the newest.
        backend: how to render, instead of the run's own way.
        device: where to render, instead of where the run was trained.
        capture: where the capture is now, if it moved.
        observer: its `on_eval` is told.

    Returns:
        the result of `lanewise.train.evaluation.evaluate`, with the `folder`.

    Raises:
        InputError: there is no run, no such checkpoint, or the capture cannot be used.
        StorageError: the checkpoints are damaged, or the folder cannot be written.
    """
    folder = RunFolder(run)
    config = folder.config()
    config = dataclasses.replace(config, backend=backend or config.backend, device=device or config.device)
    config.validate()
    chosen = resolve_device(config.device)
    step, gaussians = folder.step_and_scene(step)
    data = load_data(folder.capture_path() if capture is None else capture, config, progress=observer.on_check)
    target = folder.evaluation_path(step)
    result = evaluate(gaussians.to(chosen), data, Renderer.of(config), step=step, folder=target)
    result = {"folder": str(target), **result}
    observer.on_eval(result)
    return result
