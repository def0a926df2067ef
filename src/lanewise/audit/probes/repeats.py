"""Repeats: the same gradient again, in new runs, by a second backward pass, and beside those of all other arguments."""

from __future__ import annotations

import math
from dataclasses import replace

from lanewise.audit import tolerance
from lanewise.audit.call import Call, pull_back
from lanewise.audit.probes.directions import Noise, begin, draw, multilinear
from lanewise.audit.probes.jvp import push_forward
from lanewise.audit.probes.measure import norm
from lanewise.audit.verdict import Verdict, judge

COMPOSED = 4.0  # times the bound of one sum, where a run's rounding goes through more than sums


def repeats(call: Call, argument: str, *, probes: int = 3, seed: int = 0) -> Verdict:
    """Compare gradients that should be the same: only the order of sums may differ from run to run.

    Every other probe asks for the gradient of one argument alone, which is another path of many kernels than that of
    training, where all arguments have one. So one run asks for all. Fails as "LW106" where runs differ by more than the
    order of sums explains, as "LW104" where only the run for all differs, as "LW302" where a second backward pass
    differs or the inputs were changed. Runs that are not bit-equal but within rounding pass with a remark.
    """
    trial = begin(call, argument, "repeats")
    if isinstance(trial, Verdict):
        return trial
    before = _fingerprint(call)
    directions = draw(trial, 1, seed)
    (direction,) = directions
    noise = Noise(trial, directions, push_forward)
    bound = noise.bound(direction) * (1.0 if multilinear(call) else COMPOSED)
    allowed = math.sqrt(2) * tolerance.LAMBDA * bound
    leaves, outputs = call.graph(names=(argument,))
    once = pull_back(outputs, leaves, direction.cotangents)[argument].clone()  # it may share memory with what was saved
    second = norm(pull_back(outputs, leaves, direction.cotangents)[argument], minus=once)
    runs = [call.gradient(direction.cotangents, names=(argument,))[argument] for _ in range(probes)]
    first = max((norm(run, minus=once) for run in runs), key=_size)
    every = norm(call.gradient(direction.cotangents)[argument], minus=once) if len(call.names) > 1 else 0.0
    samples = [(off, allowed, direction.norm) for off in (second, first, every)]
    verdict = replace(judge("repeats", argument, samples, law="certain", context=noise.context), probes=probes)
    if _fingerprint(call) != before:
        return replace(verdict, outcome="failed", code="LW302", reason="the backward pass changed the inputs")
    if verdict.outcome == "failed":
        if not math.isfinite(direction.norm):
            return replace(verdict, code="LW102")
        if first <= allowed and second <= allowed:
            reason = f"beside the gradients of all other arguments it differs: {verdict.reason}"
            return replace(verdict, code="LW104", reason=reason)
        if first <= allowed:
            return replace(verdict, code="LW302", reason=f"a second backward pass differs: {verdict.reason}")
        return replace(verdict, code="LW106", reason=f"runs of the same differ: {verdict.reason}")
    if verdict.ok and max(first, second) > 0:
        return replace(verdict, reason="not bit-equal from run to run, within rounding")
    return verdict


def _size(difference: float) -> float:
    return math.inf if math.isnan(difference) else difference


def _fingerprint(call: Call) -> list[tuple[float, float]]:
    """Norm and sum of every tensor: equal before and after unless something wrote to it."""
    return [(norm(x), float(x.detach().double().sum())) for x in call.tensors().values()]
