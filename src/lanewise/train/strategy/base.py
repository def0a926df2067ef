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

    A step of number `index` (from 0) that the strategy watches gathers statistics on the device, without waiting for
    it, so that the step can be captured into a graph: `prepare` before, `observe` inside. Where `due`, the trainer
    calls `refine` once the optimizer has taken the step. `meta` is what `rasterization` returned.
    """

    def watches(self, index: int) -> bool:
        """Whether `observe` is to be called in this step."""
        ...

    def prepare(self, n: int, device: torch.device) -> None:
        """Have statistics of `n` Gaussians that `observe` adds to."""
        ...

    def observe(self, v_means2d: Tensor | None, meta: Mapping[str, Any], skip: Tensor | None = None) -> None:
        """Add a step to the statistics.

        Args:
            v_means2d: gradient of the projected centres (with absgrad, of absolute values), [C, N, 2]; None where
                nothing reaches the loss.
            meta: of `rasterization`.
            skip: int32 [1]; where it is not 0 nothing changes.
        """
        ...

    def due(self, index: int) -> bool:
        """Whether `refine` has something to do after this step."""
        ...

    def refine(self, optimizer: GaussianOptimizer, index: int, generator: torch.Generator) -> Changes:
        """Change the Gaussians; `generator` (CPU) gives what is random."""
        ...

    def addresses(self) -> tuple[int, ...]:
        """Where the statistics are: a captured step can be replayed while they stay there."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What is needed to go on in another process, by name."""
        ...

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        ...
