"""The training loop: from photographs to Gaussians, step by step, resumable to the bit."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import torch
from torch import Tensor

import lanewise
from lanewise.errors import InputError, LanewiseError
from lanewise.io.json_lines import JsonLines
from lanewise.io.ply import save_ply
from lanewise.splat._backend import resolve_backend
from lanewise.train.checkpoint import Checkpoint, checkpoint_bytes, save_checkpoint
from lanewise.train.config import TrainConfig
from lanewise.train.data import TrainingData, initial_gaussians
from lanewise.train.engine import Engine
from lanewise.train.evaluation import evaluate
from lanewise.train.interrupt import deferred_interrupt
from lanewise.train.observer import Observer, StepRecord, memory_bytes
from lanewise.train.optimizer import GaussianOptimizer
from lanewise.train.plan import Outcome, Plan
from lanewise.train.render import Rasterizer, Renderer
from lanewise.train.run_folder import RunFolder
from lanewise.train.strategy import Changes, DefaultStrategy, Strategy
from lanewise.train.versions import versions
from lanewise.train.watching import TrainingWatch


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
        renderer: what renders in training and evaluation; the library's own, by the settings, without.
    """

    def __init__(
        self,
        data: TrainingData,
        config: TrainConfig,
        run: RunFolder,
        device: torch.device,
        observer: Observer,
        renderer: Rasterizer | None = None,
    ) -> None:
        self.data, self.config, self.run_folder, self.device, self.observer = data, config, run, device, observer
        self.renderer = renderer or Renderer.of(config)
        self.generator = torch.Generator().manual_seed(config.seed)
        gaussians = initial_gaussians(data, config, self.generator).to(device)
        self.optimizer = GaussianOptimizer(gaussians, config, data.scene_scale)
        self.strategy: Strategy = DefaultStrategy(config, data.scene_scale)
        self.watch: TrainingWatch | None = None
        if config.watch:
            self.watch = TrainingWatch(config, self.optimizer, self.renderer, run.watch_path, observer.on_finding)
        self.engine = Engine(data, config, self.optimizer, self.strategy, self.renderer, device, self.watch)
        self.background = torch.tensor(data.background).expand(config.batch_size, 3)
        self.step = 0
        self.seconds = 0.0  # spent on training steps, without evaluations and checkpoints
        self.warmup_seconds = 0.0  # compiling kernels before the first step
        self._refine_seconds = 0.0  # the part of `seconds` in which Gaussians came and went
        self._round: list[int] = []  # photographs left in the present round, the next one last
        self._plans: deque[Plan] = deque()  # to be launched again, before new ones are made
        self._launched = 0  # steps that the engine has been given
        self._changes = Changes()  # since the last record
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
        self.step = self._launched = self._resumed_from = checkpoint.step
        self.engine.start_at(self.step)
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
        log = JsonLines(self.run_folder.metrics_path)
        try:
            with deferred_interrupt() as interrupt, self.engine.running():
                self.warmup_seconds = self.engine.warm_up(self.step, self.observer.on_compile)
                while self.step < self.config.steps:
                    begin = time.perf_counter()
                    outcome = self._advance(hurry=interrupt.requested)
                    if self._due(self.config.log_every) and not outcome.repeat:
                        self._record(log, outcome, self.seconds + time.perf_counter() - begin)
                    self.seconds += time.perf_counter() - begin
                    # A checkpoint says that all before it is done, so it comes last.
                    if self._settled and (self.step in self.config.eval_at or self.step == self.config.steps):
                        self._evaluate()
                    stop = interrupt.requested and self._settled
                    if self._settled and (self._due(self.config.checkpoint_every) or stop):
                        self._checkpoint()
                    if stop:
                        raise KeyboardInterrupt
        finally:
            if self.watch is not None:
                self.watch.close()
        return self._finish()

    def _advance(self, *, hurry: bool = False) -> Outcome:
        """Complete a flight of steps, and what is due after it, while the device is at work on the next one.

        Args:
            hurry: launch nothing new, so that the run can stop soon.
        """
        while self.engine.in_the_air < self.engine.depth and self._may_launch(hurry):
            end = self._end_of_flight()
            numbers = range(self._launched, end)
            self.engine.launch([self._plans.popleft() if self._plans else self._plan(index) for index in numbers])
            self._launched = end
        outcome = self.engine.settle()
        if outcome.diverged is not None:
            newest = self.run_folder.latest_checkpoint()
            raise DivergedError(
                f"loss: got NaN or an infinite value in step {outcome.diverged + 1}, expected a finite number. "
                f"The newest checkpoint is {newest or 'none'}. Fix: train with lower learning rates"
            )
        self.step = outcome.completed
        if outcome.repeat:
            self._plans.extendleft(reversed(outcome.repeat))
            self._launched = self.step
        elif self.strategy.due(self.step - 1):
            begin = time.perf_counter()
            self._changes += self.strategy.refine(self.optimizer, self.step - 1, self.generator)
            self._refine_seconds += time.perf_counter() - begin
        return outcome

    @property
    def _settled(self) -> bool:
        """Whether no step is under way or planned: then the state is that after `step` steps."""
        return not self.engine.in_the_air and not self._plans

    def _may_launch(self, hurry: bool) -> bool:
        if self._launched == self.config.steps:
            return False
        return not self.engine.in_the_air or not (hurry or self._pauses_at(self._launched))

    def _pauses_at(self, step: int) -> bool:
        """Whether something happens after so many steps that needs them completed, and no other begun."""
        config = self.config
        written = step % config.checkpoint_every == 0 or step in config.eval_at or step == config.steps
        return written or self.strategy.due(step - 1)

    def _end_of_flight(self) -> int:
        """Up to which step the next ones are launched together: all of one kind, with nothing due between them."""
        begin, config = self._launched, self.config
        end = begin + 1
        while (
            end < begin + self.engine.longest
            and end % config.log_every
            and not self._pauses_at(end)
            and self._sh_degree(end) == self._sh_degree(begin)
            and self.strategy.watches(end) == self.strategy.watches(begin)
        ):
            end += 1
        return end

    def _sh_degree(self, index: int) -> int:
        return min(index // self.config.sh_degree_interval, self.config.sh_degree)

    def _plan(self, index: int) -> Plan:
        """Decide about a step."""
        views, background = self._next_views(), self.background
        if self.config.random_background:
            background = torch.rand(self.config.batch_size, 3, generator=self.generator)
        return Plan(index, views, self._sh_degree(index), background)

    def _next_views(self) -> tuple[int, ...]:
        """The numbers of the next photographs: every round goes once through all, in a new random order."""
        views: list[int] = []
        while len(views) < self.config.batch_size:
            if not self._round:
                self._round = torch.randperm(len(self.data.train), generator=self.generator).tolist()
            views.append(self._round.pop())
        return tuple(views)

    # --- what is written

    def _due(self, every: int) -> bool:
        return self.step % every == 0 or self.step == self.config.steps

    def _record(self, log: JsonLines, outcome: Outcome, seconds: float) -> None:
        step, since = self._last_record
        rate = (self.step - step) / max(seconds - since, 1e-9)
        record = StepRecord(
            step=self.step,
            loss=outcome.loss,
            psnr=outcome.psnr,
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
            "warmup_seconds": round(self.warmup_seconds, 3),
            "timing": {
                **self.engine.timing(),
                "refine_ms": round(1e3 * self._refine_seconds / max(self.step, 1), 4),
            },
            "steps": self.step,
            "backend": self._backend,
            "device": str(self.device),
            "threads": torch.get_num_threads(),
            "capture": str(self.data.capture.path),
            "train_views": len(self.data.train),
            "test_views": len(self.data.test),
            "findings": [str(finding) for finding in self.watch.findings] if self.watch is not None else None,
            "versions": versions(),
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
