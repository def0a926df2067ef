"""What the trainer asks of a densification strategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from lanewise.train.optimizer import GaussianOptimizer


@dataclass
class Changes:
    """How many Gaussians a step, or several, have split, duplicated and pruned."""

    split: int = 0
    duplicated: int = 0
    pruned: int = 0

    def __iadd__(self, other: Changes) -> Changes:
        self.split += other.split
        self.duplicated += other.duplicated
        self.pruned += other.pruned
        return self


class Strategy(Protocol):
    """Decides where Gaussians come and go.

    In a step of number `index` (from 0) the trainer calls `before_backward` between rendering and the backward pass,
    and `after_step` once the optimizer has taken its step. `meta` is what `rasterization` returned.
    """

    def before_backward(self, meta: dict[str, Any], index: int) -> None:
        """Ask for the gradients that `after_step` will read."""
        ...

    def after_step(
        self, optimizer: GaussianOptimizer, meta: dict[str, Any], index: int, generator: torch.Generator
    ) -> Changes:
        """Watch the step, and change the Gaussians when it is time; `generator` (CPU) gives what is random."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What is needed to go on in another process, by name."""
        ...

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        ...
