"""Batch-slice consistency: the gradient of a whole batch is put together from those of its slices.

No reference is needed, and a fault that begins beyond some size shows, because the slices stay below it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from lanewise.audit import tolerance
from lanewise.audit.call import OUTPUT, Call
from lanewise.audit.probes.directions import SLICE_BYTES, Noise, begin, draw
from lanewise.audit.probes.jvp import push_forward
from lanewise.audit.probes.measure import norm
from lanewise.audit.verdict import Verdict, judge, skipped


def slices(call: Call, argument: str, *, probes: int = 3, seed: int = 0) -> Verdict:
    """Compare the gradient with that of slices of the batch: their sum, or for a batched argument their row."""
    if call.batch is None:
        return skipped("slices", argument, "no batch is known along which entries are independent")
    trial = begin(call, argument, "slices")
    if isinstance(trial, Verdict):
        return trial
    along, own = call.batch[OUTPUT], call.batch.get(argument)
    count = trial.outputs[0].shape[along]
    if count < 2:
        return skipped("slices", argument, "the batch has fewer than two entries")
    directions = draw(trial, probes, seed)
    noise = Noise(trial, directions, push_forward)
    samples, wrong = [], set()
    for direction in directions:
        total, allowed = 0.0, math.sqrt(2) * tolerance.LAMBDA * noise.sigma(direction)
        rest = direction.gradient.double()
        for start, stop, part in _parts(call, argument, direction.cotangents, count):
            if own is None:
                rest = rest - part.double()
                continue
            off = norm(direction.gradient.narrow(own, start, stop - start), minus=part)
            total = math.hypot(total, off)
            if not off <= allowed:
                wrong.add((start, stop))
        total = norm(rest) if own is None else total
        samples.append((total, allowed, direction.norm))
    verdict = judge("slices", argument, samples, law="certain", context=noise.context)
    if verdict.outcome != "failed":
        return verdict
    shape, region = directions[0].gradient.shape, None
    if own is not None and wrong:
        ends = (min(a for a, _ in wrong), max(b for _, b in wrong))
        region = tuple(ends if d == own else (0, n) for d, n in enumerate(shape))
    code = "LW101" if all(d.norm == 0 for d in directions) else "LW103"
    code = code if all(math.isfinite(d.norm) for d in directions) else "LW102"
    return replace(verdict, region=region, code=code, reason=f"the whole batch and its slices: {verdict.reason}")


def _parts(call: Call, argument: str, cotangents: tuple[Tensor, ...], count: int) -> Iterator[tuple[int, int, Tensor]]:
    """The gradients of slices, the last one shorter where that is possible."""
    along = call.batch[OUTPUT] if call.batch is not None else 0
    size = sum(v.element_size() * v.numel() for v in cotangents)
    step = max(1, min(count // 2 + count % 2, count * SLICE_BYTES // max(1, size)))
    if count > 2 and count % step == 0:
        step -= step > 1
    for start in range(0, count, step):
        stop = min(count, start + step)
        part = tuple(v.narrow(along, start, stop - start) for v in cotangents)
        entries = call.entries(start, stop)
        gradient = entries.gradient(part, names=(argument,)).get(argument)
        yield start, stop, torch.zeros_like(entries.value(argument)) if gradient is None else gradient
