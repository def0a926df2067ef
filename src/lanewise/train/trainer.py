"""The training loop: from photographs to Gaussians, step by step, resumable to the bit."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from typing import Any

import torch
from torch import Tensor

import lanewise
from lanewise.errors import InputError, LanewiseError
from lanewise.io.captures import View
from lanewise.io.ply import save_ply
from lanewise.splat._backend import resolve_backend
from lanewise.train.checkpoint import Checkpoint, checkpoint_bytes, save_checkpoint
from lanewise.train.config import TrainConfig
from lanewise.train.data import Batch, TrainingData, initial_gaussians, load_batch
from lanewise.train.evaluation import evaluate, psnr
from lanewise.train.interrupt import deferred_interrupt
from lanewise.train.observer import Observer, StepRecord, memory_bytes
from lanewise.train.optimizer import GaussianOptimizer
from lanewise.train.photometric import photometric_loss
from lanewise.train.render import Renderer
from lanewise.train.run_folder import MetricsLog, RunFolder
from lanewise.train.strategy import Changes, DefaultStrategy, Strategy

_NEVER = torch.iinfo(torch.int64).max


class DivergedError(LanewiseError, ArithmeticError):
    """The loss became NaN or infinite."""

    exit_code = 1


class Trainer:
    """A run in progress.

    All its state is in the optimizer, the strategy, the generator, the photographs left in the present round, and the
    number of completed steps: `state` and `restore` carry it over to another process without changing a bit.

    Args:
        data: what to train on.
        config: how.
        run: where to write; its folders exist.
        device: where to train.
        observer: who is told.
    """

    def __init__(
        self, data: TrainingData, config: TrainConfig, run: RunFolder, device: torch.device, observer: Observer
    ) -> None:
        self.data, self.config, self.run_folder, self.device, self.observer = data, config, run, device, observer
        self.renderer = Renderer.of(config)
        self.generator = torch.Generator().manual_seed(config.seed)
        gaussians = initial_gaussians(data, config, self.generator).to(device)
        self.optimizer = GaussianOptimizer(gaussians, config, data.scene_scale)
        self.strategy: Strategy = DefaultStrategy(config, data.scene_scale)
        self.background = torch.tensor(data.background, device=device).expand(config.batch_size, 3)
        self.step = 0
        self.seconds = 0.0  # spent on training steps, without evaluations and checkpoints
        self._round: list[int] = []  # photographs left in the present round, the next one last
        self._changes = Changes()  # since the last record
        self._first_bad = torch.tensor(_NEVER, device=device)  # first step whose loss was not finite
        self._last_record = (0, 0.0)  # step and seconds
        self._evaluation: dict[str, Any] | None = None
        self._resumed_from: int | None = None
        self._backend = resolve_backend(config.backend, gaussians.means)

    # --- state

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors by name, and the facts beside them, of the present step."""
        tensors = {f"optimizer.{name}": value for name, value in self.optimizer.state().items()}
        tensors |= {f"strategy.{name}": value for name, value in self.strategy.state().items()}
        tensors["random.generator"] = self.generator.get_state()
        tensors["random.round"] = torch.tensor(self._round, dtype=torch.int64)
        facts = {"capture": self.data.digest(), "changes": vars(self._changes), "lanewise": lanewise.__version__}
        return tensors, facts

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint.

        Raises:
            InputError: it belongs to another capture.
        """
        if checkpoint.facts["capture"] != self.data.digest():
            raise InputError(
                "capture",
                got=f"{self.data.capture.path}, whose cameras or background differ from those the run began with",
                expected="the same capture",
                why="a run goes on with the same bits or not at all",
                fix="put the capture back, or train into a new folder",
            )

        def part(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): v for k, v in checkpoint.tensors.items() if k.startswith(prefix)}

        self.optimizer.load_state(part("optimizer."))
        self.strategy.load_state({name: value.to(self.device) for name, value in part("strategy.").items()})
        self.generator.set_state(checkpoint.tensors["random.generator"].clone())
        self._round = checkpoint.tensors["random.round"].tolist()
        self._changes = Changes(**checkpoint.facts["changes"])
        self.step = self._resumed_from = checkpoint.step
        self.seconds = next((record["seconds"] for record in reversed(self.run_folder.metrics())), 0.0)
        self._last_record = (self.step, self.seconds)

    # --- the loop

    def run(self) -> dict[str, Any]:
        """Train to the last step, evaluate, and write scene.ply and summary.json.

        Returns:
            what summary.json holds.

        Raises:
            DivergedError: the loss is no longer finite.
            StorageError: something could not be written.
            KeyboardInterrupt: Ctrl-C; a checkpoint of the step has been written.
        """
        self._require_space_to_begin()
        self.observer.on_start(self._info())
        log = MetricsLog(self.run_folder.metrics_path)
        try:
            with deferred_interrupt() as interrupt:
                while self.step < self.config.steps:
                    begin = time.perf_counter()
                    loss, render, batch = self._train_step()
                    if self._due(self.config.log_every):
                        quality = psnr(render.clamp(0, 1), batch.rgb, batch.mask)
                        self._record(log, loss.item(), quality, self.seconds + time.perf_counter() - begin)
                    self.seconds += time.perf_counter() - begin
                    # A checkpoint says that all before it is done, so it comes last.
                    if self.step in self.config.eval_at or self.step == self.config.steps:
                        self._evaluate()
                    stop = interrupt.requested
                    if self._due(self.config.checkpoint_every) or stop:
                        self._checkpoint()
                    if stop:
                        raise KeyboardInterrupt
        finally:
            log.close()
        return self._finish()

    def _train_step(self) -> tuple[Tensor, Tensor, Batch]:
        """One step. Returns its loss, its pictures [B, H, W, 3] (both detached), and the photographs."""
        config, index = self.config, self.step
        batch = load_batch(self.data, self._next_views(), self.device)
        height, width = batch.rgb.shape[1:3]
        background = self.background
        if config.random_background:
            background = torch.rand(config.batch_size, 3, generator=self.generator).to(self.device)
        colors, _, meta = self.renderer(
            self.optimizer.params,
            batch.viewmats,
            batch.Ks,
            width,
            height,
            sh_degree=min(index // config.sh_degree_interval, config.sh_degree),
            backgrounds=background,
        )
        loss = photometric_loss(colors, batch.rgb, batch.mask, ssim_weight=config.ssim_weight, backend=config.backend)
        self._watch(loss.detach())
        self.strategy.before_backward(meta, index)
        if loss.requires_grad:  # it does not when no Gaussian is left
            loss.backward()
        self.optimizer.step(index)
        self._changes += self.strategy.after_step(self.optimizer, meta, index, self.generator)
        self.step = index + 1
        return loss.detach(), colors.detach(), batch

    def _next_views(self) -> list[View]:
        """The next photographs: every round goes once through all, in a new random order."""
        views = []
        while len(views) < self.config.batch_size:
            if not self._round:
                self._round = torch.randperm(len(self.data.train), generator=self.generator).tolist()
            views.append(self.data.train[self._round.pop()])
        return views

    def _watch(self, loss: Tensor) -> None:
        """Remember the first step whose loss was not finite; on a GPU without waiting for the number."""
        this = torch.full_like(self._first_bad, self.step + 1)
        self._first_bad = torch.minimum(self._first_bad, torch.where(torch.isfinite(loss), _NEVER, this))
        if self.device.type == "cpu":  # where looking costs nothing, stop before the parameters are spoilt
            self._require_finite()

    def _require_finite(self) -> None:
        step = int(self._first_bad.item())
        if step != _NEVER:
            newest = self.run_folder.latest_checkpoint()
            raise DivergedError(
                f"loss: got NaN or an infinite value in step {step}, expected a finite number. "
                f"The newest checkpoint is {newest or 'none'}. Fix: train with lower learning rates"
            )

    # --- what is written

    def _due(self, every: int) -> bool:
        return self.step % every == 0 or self.step == self.config.steps

    def _record(self, log: MetricsLog, loss: float, quality: float, seconds: float) -> None:
        self._require_finite()
        step, since = self._last_record
        rate = (self.step - step) / max(seconds - since, 1e-9)
        record = StepRecord(
            step=self.step,
            loss=loss,
            psnr=quality,
            gaussians=len(self.optimizer),
            **vars(self._changes),
            its_per_s=rate,
            memory_bytes=memory_bytes(self.device),
            eta_s=(self.config.steps - self.step) / rate,
        )
        written = ("step", "loss", "psnr", "gaussians", "split", "duplicated", "pruned")
        log.write({**{name: getattr(record, name) for name in written}, "seconds": round(seconds, 3)})
        self._changes, self._last_record = Changes(), (self.step, seconds)
        self.observer.on_step(record)

    def _evaluate(self) -> None:
        folder = self.run_folder.evaluation_path(self.step)
        result = evaluate(self.optimizer.gaussians(), self.data, self.renderer, step=self.step, folder=folder)
        self._evaluation = {"folder": str(folder), **result}
        self.observer.on_eval(self._evaluation)

    def _checkpoint(self) -> None:
        self._require_finite()
        tensors, facts = self.state()
        self.run_folder.require_space(checkpoint_bytes(tensors), "a checkpoint")
        save_checkpoint(self.run_folder.checkpoint_path(self.step), self.step, tensors, facts)
        self.run_folder.keep_newest(self.config.keep_checkpoints)

    def _finish(self) -> dict[str, Any]:
        if self._evaluation is None or self._evaluation["step"] != self.step:  # resumed after the last step
            self._evaluate()
        assert self._evaluation is not None
        save_ply(self.run_folder.scene_path, self.optimizer.gaussians())
        result = {key: value for key, value in self._evaluation.items() if key not in ("step", "per_image", "views")}
        summary = {
            **result,
            "seconds": round(self.seconds, 3),
            "steps": self.step,
            "backend": self._backend,
            "device": str(self.device),
            "threads": torch.get_num_threads(),
            "capture": str(self.data.capture.path),
            "train_views": len(self.data.train),
            "test_views": len(self.data.test),
            "versions": _versions(),
        }
        self.run_folder.write_summary(summary)
        self.observer.on_done(summary)
        return summary

    def _info(self) -> dict[str, Any]:
        sizes = [(view.width, view.height) for view in self.data.train]
        width, height = max(sizes, key=lambda size: size[0] * size[1])
        return {
            "run": str(self.run_folder.path),
            "capture": str(self.data.capture.path),
            "device": str(self.device),
            "backend": self._backend,
            "threads": torch.get_num_threads(),
            "steps": self.config.steps,
            "resumed_from": self._resumed_from,
            "train_views": len(self.data.train),
            "test_views": len(self.data.test),
            "width": width,
            "height": height,
            "gaussians": len(self.optimizer),
            "scene_scale": self.data.scene_scale,
            "warnings": list(self.data.capture.warnings),
        }

    def _require_space_to_begin(self) -> None:
        """Refuse a disk that cannot even take the files of a scene that does not grow."""
        parameters = sum(p.numel() * p.element_size() for p in self.optimizer.params.values())
        checkpoints = 3 * parameters * (self.config.keep_checkpoints + 1)  # with two moments; one more while replacing
        evaluations = 1 + sum(step < self.config.steps for step in self.config.eval_at)
        pictures = evaluations * sum(9 * view.width * view.height for view in self.data.test or self.data.train)
        self.run_folder.require_space(checkpoints + 2 * parameters + pictures, "this run")


def _versions() -> dict[str, str]:
    versions = {"lanewise": lanewise.__version__, "python": platform.python_version()}
    for package in ("torch", "numpy", "numba", "triton"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
