"""What a probe says about one gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

BLIND = 0.05  # a probe that misses a gradient that is all wrong more often than this could not tell

Outcome = Literal["passed", "failed", "inconclusive", "skipped"]
Law = Literal["normal", "certain"]
Region = tuple[tuple[int, int], ...]  # one index range [start, stop) a dimension


@dataclass(frozen=True)
class Context:
    """What the tolerance of a residual was derived from.

    Attributes:
        device: where the gradient was computed.
        dtype: of the gradient.
        operands: to what its factors may be rounded before they are multiplied, under the flags in force.
        accumulation: in what its sums may be kept.
        flags: those in force that make a sum less exact.
        one_sided: whether the summed terms have one sign, so that a partial sum grows with every term.
        reduction: how many terms one element of the gradient is a sum of, at most.
    """

    device: str
    dtype: torch.dtype
    operands: torch.dtype | Literal["tf32"]
    accumulation: torch.dtype
    flags: tuple[str, ...] = ()
    one_sided: bool = False
    reduction: int = 1


@dataclass(frozen=True)
class Verdict:
    """What the directions of one probe found out about the gradient of one argument.

    Attributes:
        probe: which probe ("adjoint", "jvp", "exact", ...).
        argument: whose gradient.
        outcome: "passed" and "failed" compare the residual with the tolerance; "inconclusive" ran and could not tell;
            "skipped" did not run.
        residual: what should be zero, in the worst direction; NaN when a value was not finite.
        tolerance: what rounding alone may make of that residual.
        probes: how many random directions were tried.
        gradient_norm: ||gradient|| in that direction, the scale of a relative error.
        law: "normal": a fault E gives a residual of deviation ||E|| in each direction; "certain": of size ||E||.
        reason: why it failed, could not tell or did not run; a remark where it passed.
        region: where the gradient is wrong, one index range a dimension; None where that is not known.
        code: the finding it looks like (`lanewise explain CODE`).
        context: what the tolerance was derived from.
    """

    probe: str
    argument: str
    outcome: Outcome
    residual: float = math.nan
    tolerance: float = math.nan
    probes: int = 0
    gradient_norm: float = math.nan
    law: Law = "normal"
    reason: str = ""
    region: Region | None = None
    code: str | None = None
    context: Context | None = field(default=None, repr=False)

    @property
    def ok(self) -> bool:
        """Whether the probe ran and every residual was within rounding."""
        return self.outcome == "passed"

    def miss_probability(self, relative_error: float) -> float:
        """How likely all directions miss a gradient error of this relative L2 size.

        A fault E gives a residual <E, u> that is normal with deviation ||E|| (u is normal and drawn independently of
        E): one direction misses with probability P(|N(0, 1)| <= tolerance / ||E||), at most sqrt(2 / pi) times that
        ratio. A probe that compares whole gradients sees whatever is larger than its tolerance. 1 where nothing ran.
        """
        size = relative_error * self.gradient_norm
        if self.outcome in ("skipped", "inconclusive") or not size > 0:
            return 1.0
        if self.law == "certain":
            return float(size <= self.tolerance)
        return math.erf(self.tolerance / size / math.sqrt(2)) ** self.probes


def judge(
    probe: str,
    argument: str,
    samples: Sequence[tuple[float, float, float]],
    *,
    law: Law = "normal",
    context: Context | None = None,
) -> Verdict:
    """The verdict on (residual, tolerance, gradient norm) of one or more directions: that of the worst.

    A residual that is not finite fails. Where even a gradient that is all wrong would be missed (more often than
    `BLIND`) the verdict is "inconclusive", unless the residual passes the tolerance all the same.
    """
    residual, tolerance, norm = max(samples, key=_badness)
    verdict = Verdict(probe, argument, "passed", residual, tolerance, len(samples), norm, law, context=context)
    if not (math.isfinite(residual) and residual <= tolerance):  # an infinite gradient has an infinite tolerance
        why = f"residual {residual:.3g} where rounding explains {tolerance:.3g}"
        why = why if math.isfinite(residual) else "the gradient or its check holds NaN or infinity"
        return replace(verdict, outcome="failed", reason=why)
    if verdict.miss_probability(1.0) > BLIND:
        why = f"rounding explains {tolerance:.3g}, and the whole gradient has norm {norm:.3g}"
        return replace(verdict, outcome="inconclusive", reason=why)
    return verdict


def skipped(probe: str, argument: str, reason: str) -> Verdict:
    """The verdict of a probe that did not run, and why."""
    return Verdict(probe, argument, "skipped", reason=reason)


def _badness(sample: tuple[float, float, float]) -> float:
    residual, tolerance, _ = sample
    if not math.isfinite(residual):
        return math.inf
    return residual / tolerance if tolerance > 0 else (math.inf if residual > 0 else 0.0)
