"""What the adjoint and the jvp probe make of their directions: a verdict, and the finding that it looks like."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lanewise.audit import tolerance
from lanewise.audit.call import Call
from lanewise.audit.probes.directions import (
    BELOW,
    BEYOND,
    Direction,
    Noise,
    Push,
    Trial,
    begin,
    below_range,
    beyond_range,
    draw,
    exact_gradient,
    right_side,
)
from lanewise.audit.probes.measure import dot
from lanewise.audit.probes.region import classify
from lanewise.audit.verdict import Verdict, judge

ELEMENTS = 256  # of a gradient that is asked of the forward, one at a time


def compare(
    call: Call, argument: str, probe: str, push: Push, *, probes: int, seed: int, accuracy: float = 0.0
) -> Verdict:
    """The verdict on one argument's gradient.

    Args:
        call: the operator and its inputs.
        argument: whose gradient.
        probe: the name to report under.
        push: J u, by the forward alone.
        probes: how many directions.
        seed: of the directions.
        accuracy: relative error of J u besides rounding.
    """
    trial = begin(call, argument, probe)
    if isinstance(trial, Verdict):
        return trial
    directions = draw(trial, probes, seed)
    noise = Noise(trial, directions, push)
    sides, strict, loose = [], [], []
    for direction in directions:
        left = dot(direction.gradient, direction.u)
        right, own = right_side(trial, direction, push)
        own = math.hypot(own, accuracy * direction.norm)
        if not math.isfinite(right):
            return Verdict(probe, argument, "inconclusive", reason="the derivative of the forward is not finite")
        sides.append((left, right))
        for samples, sigma in ((strict, noise.least(direction)), (loose, noise.sigma(direction))):
            samples.append((abs(left - right), tolerance.LAMBDA * math.hypot(sigma, own), direction.norm))
    verdict = judge(probe, argument, loose, context=noise.context)
    if verdict.outcome == "failed":
        code = suggest(trial, directions, sides, push)
        if code == "LW102" and any(beyond_range(exact_gradient(trial, d), d.gradient.dtype) for d in directions):
            return replace(verdict, outcome="inconclusive", reason=BEYOND)
        if code != "LW102" and _is_below(trial, directions, sides):
            return replace(verdict, outcome="inconclusive", reason=BELOW)
        return replace(verdict, code=code)
    if verdict.outcome == "inconclusive":  # unless nothing needs the measured noise as an excuse
        unexcused = judge(probe, argument, strict, context=noise.context)
        return unexcused if unexcused.ok else verdict
    return verdict


def suggest(trial: Trial, directions: Sequence[Direction], sides: Sequence[tuple[float, float]], push: Push) -> str:
    """The finding that a wrong gradient looks like, from the gradients and both sides of each direction.

    Where the right gradient is cheap, it is asked what this one looks like beside it; as a hint, not as a proof.
    """
    if not all(math.isfinite(d.norm) for d in directions):
        return "LW102"
    if all(d.norm == 0 for d in directions):
        return "LW101"
    ratios = [left / right for left, right in sides if right]
    if len(ratios) > 1 and max(ratios) - min(ratios) < 0.1 * abs(ratios[0] - 1):
        return "LW105"
    most = max(range(len(sides)), key=lambda i: abs(sides[i][0] - sides[i][1]))
    worst = directions[most]
    exact = _right_gradient(trial, worst, sides[most], push)
    if exact is None:
        return "LW103" if bool((worst.gradient == 0).any()) else "LW104"
    difference = (worst.gradient.double() - exact).abs()
    return classify(worst.gradient, exact, difference > 0.1 * difference.max())


def _right_gradient(trial: Trial, direction: Direction, sides: tuple[float, float], push: Push) -> Tensor | None:
    """The gradient in float64, by the backward pass; where that fails alike, element by element by the forward.

    None where neither is to be had, or would take long.
    """
    exact, (left, right) = exact_gradient(trial, direction), sides
    if exact is not None and abs(dot(exact, direction.u) - right) < 0.5 * abs(left - right):
        return exact
    count = direction.gradient.numel()
    if count > ELEMENTS:
        return None
    units = torch.eye(count, dtype=torch.float64, device=direction.u.device).reshape(count, *direction.gradient.shape)
    values = [right_side(trial, direction._replace(u=unit), push)[0] for unit in units]
    return units.new_tensor(values).reshape(direction.gradient.shape)


def _is_below(trial: Trial, directions: Sequence[Direction], sides: Sequence[tuple[float, float]]) -> bool:
    """`below_range`, of the right gradient and of the one there is; <v, J u> has the norm of the right one."""
    gradient, exact = directions[0].gradient, exact_gradient(trial, directions[0])
    right = math.sqrt(sum(right**2 for _, right in sides) / len(sides))
    count = int((gradient if exact is None else exact).count_nonzero()) or gradient.numel()
    return below_range(trial.call, max(right, *(d.norm for d in directions)), count, gradient.dtype)
