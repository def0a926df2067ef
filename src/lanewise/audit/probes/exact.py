"""The exact probe: small integers, whose sums no rounding touches, so that nothing is tolerated.

For what is sums of products of its tensors. Every tensor holds small integers, few enough for every sum to stay below
2^p, the precision of the accumulator and of the result, so that each is exact in any order. The identity
<gradient(v), u> = f(u) - f(0) against v, in float64, then holds to the last bit, and one wrong element breaks it. u
holds position codes, integers up to a thousand that differ from place to place, so that errors do not cancel; asking
the same with all but a slab of u erased says in which slab the gradient is wrong, and with all but a slab of v which
terms of the sum it has lost.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from lanewise.audit import tolerance
from lanewise.audit.call import Call, lay_out, pull_back
from lanewise.audit.probes.adjoint import difference
from lanewise.audit.probes.compare import suggest
from lanewise.audit.probes.directions import Direction, Trial, begin, multilinear, right_side, seeded
from lanewise.audit.probes.measure import dot, norm
from lanewise.audit.probes.region import bounding_region, search_region
from lanewise.audit.verdict import Region, Verdict, judge, skipped

CODE = 1000  # position codes are integers up to this size
ATTEMPTS = 12  # each with a quarter of the nonzero cotangents of the last


def exact(call: Call, argument: str, *, probes: int = 3, seed: int = 0) -> Verdict:
    """Check <gradient(v), u> = <v, f(u) - f(0)> in integers, with no tolerance."""
    if not multilinear(call):
        return skipped("exact", argument, "not all arithmetic is sums of products")
    generator = seeded(call.value(argument).device, seed)
    call = call.replaced({name: _integers(x, 2, generator) for name, x in call.tensors().items()})
    trial = begin(call, argument, "exact")
    if isinstance(trial, Verdict):
        return trial
    if not trial.wide:
        return skipped("exact", argument, "the call does not work in float64, or is another function there")
    with torch.no_grad():
        if any(bool((y != y.round()).any()) for y in call.double().output()):
            return skipped("exact", argument, "integers do not stay integers")
    share = _share(trial, generator)
    if share is None:
        return Verdict("exact", argument, "inconclusive", reason="no sums are small enough to be exact")
    samples, sides, directions = [], [], []
    for _ in range(probes):
        direction = _direction(trial, share, generator)
        sides.append((dot(direction.gradient, direction.u), right_side(trial, direction, difference)[0]))
        samples.append((abs(sides[-1][0] - sides[-1][1]), 0.0, direction.norm))
        directions.append(direction)
    where = tolerance.context(call, directions[0].gradient)
    verdict = judge("exact", argument, samples, law="certain", context=where)
    if verdict.outcome != "failed":
        return verdict
    worst = directions[max(range(probes), key=lambda i: _size(samples[i][0]))]
    region, reason, code = _where(trial, worst), verdict.reason, suggest(trial, directions, sides, difference)
    if math.isfinite(verdict.residual):
        reason = f"integers that are exact in any order differ by {verdict.residual:.0f}"
        lost = _lost_terms(trial, worst)
        if lost is not None:
            code = "LW103"
            reason += f"; what outputs {lost[0]} to {lost[1] - 1} along dimension 0 contribute is wrong"
    return replace(verdict, region=region, reason=reason, code=code)


def _direction(trial: Trial, share: float, generator: torch.Generator) -> Direction:
    cotangents = _cotangents(trial, share, generator)
    gradient = pull_back(trial.outputs, trial.leaves, cotangents)[trial.argument]
    codes = torch.randint(1, CODE + 1, gradient.shape, generator=generator, device=generator.device)
    signs = torch.randint(0, 2, gradient.shape, generator=generator, device=generator.device) * 2 - 1
    return Direction(cotangents, gradient, norm(gradient), 0.0, (codes * signs).to(gradient.device, torch.float64))


def _cotangents(trial: Trial, share: float, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Integers -1, 0 and 1, of which this share is not zero, in the call's layout."""
    values = []
    for y in trial.outputs:
        nonzero = torch.rand(y.shape, generator=generator, device=generator.device).to(y.device) < share
        values.append(lay_out(_integers(y, 1, generator) * nonzero, trial.call.cotangent))
    return tuple(values)


def _share(trial: Trial, generator: torch.Generator) -> float | None:
    """The largest share of nonzero cotangents for which even sums of absolute values are exact in every dtype."""
    call, argument = trial.call, trial.argument
    positive = call.double().replaced({name: x.detach().double().abs() for name, x in call.tensors().items()})
    where = tolerance.context(call, trial.leaves[argument])
    limit = 1 / max(tolerance.unit(where.accumulation), tolerance.unit(where.dtype))
    share = 1.0
    for _ in range(ATTEMPTS):
        cotangents = [v.double().abs() for v in _cotangents(trial, share, generator)]
        sums = positive.gradient(cotangents, names=(argument,))[argument]
        if sums.numel() and float(sums.max()) * 1.5 <= limit:  # other draws of the same share are a little larger
            return share
        share /= 4
    return None


def _where(trial: Trial, direction: Direction) -> Region | None:
    """The box of wrong elements, by erasing the rest of u."""
    gradient = direction.gradient
    if not bool(gradient.isfinite().all()):
        return bounding_region(~gradient.isfinite())

    def wrong(box: Region) -> bool:
        u = torch.zeros_like(direction.u)
        at = tuple(slice(*ends) for ends in box)
        u[at] = direction.u[at]
        return dot(gradient, u) != right_side(trial, direction._replace(u=u), difference)[0]

    return search_region(gradient.shape, wrong)


def _lost_terms(trial: Trial, direction: Direction) -> tuple[int, int] | None:
    """The entries of the outputs whose terms are wrong in the gradient, by erasing the rest of v; None when all are."""
    sizes = {v.shape[0] if v.dim() else 1 for v in direction.cotangents}
    if len(sizes) != 1 or trial.call.cotangent in ("expanded", "ones"):
        return None
    (size,) = sizes

    def wrong(box: Region) -> bool:
        ((start, stop),) = box
        erased = tuple(v.clone() for v in direction.cotangents)
        for v in erased:
            if v.dim():
                v[:start], v[stop:] = 0, 0
        gradient = pull_back(trial.outputs, trial.leaves, erased)[trial.argument]
        right, _ = right_side(trial, direction._replace(cotangents=erased), difference)
        return dot(gradient, direction.u) != right

    (lost,) = search_region((size,), wrong)
    return None if lost == (0, size) else lost


def _integers(like: Tensor, largest: int, generator: torch.Generator) -> Tensor:
    return torch.randint(-largest, largest + 1, like.shape, generator=generator, device=generator.device).to(like)


def _size(residual: float) -> float:
    return residual if math.isfinite(residual) else math.inf
