"""What the host decides about steps before they run, and what it learns about them afterwards."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Plan:
    """What is decided about a step before it runs.

    Attributes:
        index: its number, from 0.
        views: numbers of its training views.
        sh_degree: of the harmonics.
        backgrounds: [B, 3] float32 on the CPU.
    """

    index: int
    views: tuple[int, ...]
    sh_degree: int
    backgrounds: Tensor


@dataclass(frozen=True)
class Outcome:
    """What became of a flight.

    Attributes:
        completed: steps of the run that are completed now.
        loss, psnr: of the last step; psnr in dB.
        diverged: the number of the step whose loss was not finite, None when there was none.
        repeat: plans that have not counted, since the lists of Gaussians of one of them did not fit: they are to be
            launched again. Plans of later flights are among them.
    """

    completed: int
    loss: float
    psnr: float
    diverged: int | None = None
    repeat: tuple[Plan, ...] = ()
