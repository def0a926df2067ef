"""The gradient against that of the same call in float64: certain where the others are probable, at a whole backward."""

from __future__ import annotations

import functools
import math
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
    begin,
    below_range,
    beyond_range,
    draw,
    multilinear,
)
from lanewise.audit.probes.jvp import push_forward
from lanewise.audit.probes.measure import norm
from lanewise.audit.probes.region import bounding_region, classify
from lanewise.audit.verdict import Verdict, judge, skipped

PEAK = 8.0  # deviations that one element of a healthy gradient may be off, among up to 2^31 of them


def truth(call: Call, argument: str, *, probes: int = 3, seed: int = 0) -> Verdict:
    """Compare the gradient with the float64 one as a whole, and where `fn` is sums of products element by element."""
    trial = begin(call, argument, "truth")
    if isinstance(trial, Verdict):
        return trial
    if not trial.wide:
        return skipped("truth", argument, "the call does not work in float64, or is another function there")
    wide, directions = call.double(), draw(trial, probes, seed)
    noise = Noise(trial, directions, push_forward)
    samples, worst, wrong = [], (0.0, 0.0, 0.0), None
    for direction in directions:
        exact = wide.gradient([v.double() for v in direction.cotangents], names=(argument,))[argument]
        if beyond_range(exact, direction.gradient.dtype):
            return Verdict("truth", argument, "inconclusive", reason=BEYOND)
        allowed = tolerance.LAMBDA * noise.sigma(direction)
        sample = (norm(direction.gradient, minus=exact), allowed, direction.norm)
        limits = _limits(direction, exact, noise) if multilinear(call) else None
        bad = _wrong(direction.gradient, exact, allowed, limits)
        if bool(bad.any()) and wrong is None:
            wrong = (bad, direction.gradient, exact)
            if limits is not None:
                difference = (direction.gradient.double() - exact).abs()
                at = (difference / limits).flatten().argmax()
                worst = (float(difference.flatten()[at]), float(limits.flatten()[at]), direction.norm)
        samples.append(sample)
    verdict = judge("truth", argument, samples, law="certain", context=noise.context)
    if verdict.outcome == "passed" and worst[0] > worst[1]:
        why = f"an element is off by {worst[0]:.3g} where rounding explains {worst[1]:.3g}"
        verdict = replace(verdict, outcome="failed", residual=worst[0], tolerance=worst[1], reason=why)
    if verdict.outcome != "failed":
        return verdict
    if wrong is None:
        return replace(verdict, code="LW105")
    bad, gradient, exact = wrong
    if below_range(call, max(norm(exact), norm(gradient)), int(exact.count_nonzero()), gradient.dtype):
        return replace(verdict, outcome="inconclusive", reason=BELOW)
    return replace(verdict, region=bounding_region(bad), code=classify(gradient, exact, bad))


def _limits(direction: Direction, exact: Tensor, noise: Noise) -> Tensor:
    """What each element may be off: its own rounding, and that of sums as large as its row's and column's."""
    size = torch.maximum(exact.abs(), _spread(exact))
    where = noise.context
    store = tolerance.unit(where.dtype) * exact.abs()
    share = noise.sigma(direction) / direction.norm if direction.norm > 0 else 0.0
    return PEAK * torch.hypot(store, share * size) + torch.finfo(where.dtype).smallest_normal


def _spread(x: Tensor) -> Tensor:
    """The largest root mean square of the slabs (one a dimension, and the whole) that an element is in."""
    squares, dims = x.square(), range(x.dim())
    slabs = [squares.mean([e for e in dims if e != d], keepdim=True) for d in dims] if x.dim() > 1 else []
    return functools.reduce(torch.maximum, slabs, squares.mean()).sqrt().expand(x.shape)


def _wrong(gradient: Tensor, exact: Tensor, allowed: float, limits: Tensor | None) -> Tensor:
    """The elements that are wrong; where no limits are known, those that make up a difference that is too large."""
    if not bool(gradient.isfinite().all()):
        return ~gradient.isfinite()
    difference = (gradient.double() - exact).abs()
    if limits is None:
        limits = torch.full_like(exact, allowed / math.sqrt(exact.numel()) * PEAK)
        if norm(gradient, minus=exact) <= allowed:
            return torch.zeros_like(exact, dtype=torch.bool)
    return ~(difference <= limits)
