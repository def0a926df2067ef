"""Who watches a training run: the trainer itself prints nothing."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from lanewise.audit.finding import Finding


@dataclass(frozen=True)
class StepRecord:
    """What is known after some step; `split`, `duplicated` and `pruned` count since the record before."""

    step: int
    """Completed steps."""
    loss: float
    """Loss of this step."""
    psnr: float
    """PSNR of this step's training picture, dB."""
    gaussians: int
    """Number of Gaussians now."""
    split: int
    duplicated: int
    pruned: int
    its_per_s: float
    """Steps a second since the record before."""
    memory_bytes: int
    """Most memory that the process (CPU) or the device (GPU) has held so far."""
    eta_s: float
    """Estimated seconds to the last step."""


class Observer(Protocol):
    """Gets the news of a run, in the thread that trains."""

    def on_check(self, done: int, total: int) -> None:
        """After each photograph that was decoded to check it, before anything else."""
        ...

    def on_compile(self, done: int, total: int) -> None:
        """On a GPU, while the kernels that the run needs are compiled, between `on_start` and the first step."""
        ...

    def on_start(self, info: dict[str, Any]) -> None:
        """Before the first step: `run, capture, device, backend, steps, resumed_from, train_views, test_views, width,
        height, gaussians, scene_scale, warnings`."""
        ...

    def on_step(self, record: StepRecord) -> None:
        """Every `log_every` steps."""
        ...

    def on_eval(self, result: dict[str, Any]) -> None:
        """After an evaluation; see `lanewise.train.evaluation.evaluate`."""
        ...

    def on_finding(self, finding: Finding) -> None:
        """When the watch finds that gradients are wrong."""
        ...

    def on_done(self, summary: dict[str, Any]) -> None:
        """At the end, with what `summary.json` holds."""
        ...


class Silent:
    """An observer that ignores the news; a base for those that want only some of it."""

    def on_check(self, done: int, total: int) -> None:
        """Ignore it."""

    def on_compile(self, done: int, total: int) -> None:
        """Ignore it."""

    def on_start(self, info: dict[str, Any]) -> None:
        """Ignore it."""

    def on_step(self, record: StepRecord) -> None:
        """Ignore it."""

    def on_eval(self, result: dict[str, Any]) -> None:
        """Ignore it."""

    def on_finding(self, finding: Finding) -> None:
        """Ignore it."""

    def on_done(self, summary: dict[str, Any]) -> None:
        """Ignore it."""


silent = Silent()


def memory_bytes(device: torch.device) -> int:
    """Most memory held so far: by torch on a GPU, by the process on the CPU (0 where the system does not say)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
