"""The watch over a training run: `lanewise.audit.watch`, and a probe of the renderer, at a few of the steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from torch import Tensor

from lanewise.audit.finding import Finding
from lanewise.audit.watching import Watch
from lanewise.train.config import TrainConfig
from lanewise.train.optimizer import GaussianOptimizer
from lanewise.train.probe import RendererProbe, Shot
from lanewise.train.render import Rasterizer

EVERY, FIRST = 100, 500  # steps between two looks, in so many first steps: what is wrong is mostly wrong from the start
LATER = 500  # steps between two looks after those: one costs as much as 14 steps that are replayed
PROBED = (0, 1)  # hundreds of steps at which the renderer is probed
PROBED_EVERY = 15  # hundreds of steps, after those


class TrainingWatch:
    """Watches the gradients and the updates of the Gaussians. Nothing that trains is changed by it.

    Where steps are replayed from a graph, nothing is added to it: only the steps that are looked at take part, which
    are launched one by one.

    Args:
        config, optimizer, renderer: of the run.
        log: file for the lines of the watch.
        tell: called with every finding.
    """

    def __init__(
        self,
        config: TrainConfig,
        optimizer: GaussianOptimizer,
        renderer: Rasterizer,
        log: Path,
        tell: Callable[[Finding], None],
    ) -> None:
        self._optimizer, self._seed, self._log, self._tell = optimizer, config.seed, log, tell
        self._watch: Watch | None = None  # from the first step on
        self._probe = RendererProbe(renderer, config.antialiased, config.seed)

    @property
    def findings(self) -> list[Finding]:
        """What was found so far."""
        return [] if self._watch is None else self._watch.findings

    @property
    def coverage(self) -> Mapping[str, int]:
        """Probes of the renderer by their outcome."""
        return self._probe.coverage

    @staticmethod
    def looks(index: int) -> bool:
        """Whether the step of number `index` is looked at closely, and must not be replayed from a graph."""
        return index % (EVERY if index < FIRST else LATER) == 0

    def before(self, index: int, gradients: Mapping[str, Tensor], valid: Tensor, shot: Callable[[], Shot]) -> None:
        """The gradients of a step are there, and the Gaussians are about to change.

        Args:
            index: number of the step.
            gradients: by the names of the Gaussians' tensors.
            valid: bool [] on the device; False where the step's lists did not fit, so that it will be repeated.
            shot: what the step renders, asked for where it is wanted.
        """
        watch, params = self._running(), self._optimizer.params
        watch.step = index
        own = {name: g for name, g in gradients.items() if name in params}
        watch.before_step(own, self._optimizer.adam, valid)
        look = index // EVERY
        if watch.looking and len(self._optimizer) and (look in PROBED or look % PROBED_EVERY == 0):
            watch.alarm(self._probe.judge(index, params, shot()))

    def after(self) -> None:
        """The Gaussians have changed."""
        self._running().after_step()

    def close(self) -> None:
        """Tell what is still to be told."""
        if self._watch is not None:
            self._watch.close()

    def _running(self) -> Watch:
        if self._watch is None:
            self._watch = Watch(
                lambda: self._optimizer.params,
                [],
                every=EVERY,
                on_finding=self._tell,
                log=self._log,
                probe=False,
                seed=self._seed,
            )
        return self._watch
