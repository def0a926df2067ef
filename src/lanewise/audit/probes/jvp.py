"""The jvp probe: for whatever is differentiable, J u by forward-mode derivatives, or by central differences.

Forward mode and backward mode are separate formulas in torch, and here in separate precisions as well: the derivative
is taken in float64. What has no forward mode is differenced there, at two steps (Richardson), which is good to about
ten digits where the function is smooth.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import torch
from torch import Tensor

from lanewise.audit.call import Call, ForwardError
from lanewise.audit.probes.compare import compare
from lanewise.audit.probes.measure import norm
from lanewise.audit.verdict import Verdict

ACCURACY = 1e-10  # relative, of differences
STEPS = (1e-4, 1e-5, 1e-6)  # of a central difference, relative to the argument: two steps' error is of the fourth power
SMOOTH = 1e-6  # relative difference of two steps where no kink is between them


def jvp(call: Call, argument: str, *, probes: int = 3, seed: int = 0) -> Verdict:
    """Check <gradient(v), u> = <v, J u> for an argument in which the call is differentiable.

    Forward mode may be what is wrong: where it contradicts the gradient, differences decide.
    """
    verdict = compare(call, argument, "jvp", push_forward, probes=probes, seed=seed, accuracy=ACCURACY)
    if verdict.outcome != "failed":
        return verdict
    again = compare(call, argument, "jvp", central_difference, probes=probes, seed=seed, accuracy=ACCURACY)
    if not again.ok:
        return verdict
    return replace(again, reason="forward mode gives another derivative; differences agree with the gradient")


def push_forward(call: Call, argument: str, u: Tensor) -> tuple[Tensor, ...]:
    """J u of the call at its own argument, one an output."""
    x = call.value(argument).detach()
    try:
        with torch.enable_grad(), warnings.catch_warnings():  # custom functions have no forward mode without gradients
            warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, of what it loads for forward mode
            image = torch.func.jvp(lambda value: call.output({argument: value}), (x,), (u,))[1]
    except (ForwardError, NotImplementedError, RuntimeError):
        return central_difference(call, argument, u)
    return tuple(y.detach() for y in image)


def central_difference(call: Call, argument: str, u: Tensor) -> tuple[Tensor, ...]:
    """J u from four forwards: (4 D(h) - D(2 h)) / 3 of the central difference D, with an error of order h^4.

    Steps that cross a kink (of a hinge, a maximum) do not agree: shorter ones are tried; those that agree best serve.
    """
    x = call.value(argument).detach()
    size = norm(u)

    def difference(step: float) -> tuple[Tensor, ...]:
        ends = call.output({argument: x + step * u}), call.output({argument: x - step * u})
        return tuple((y.detach() - z.detach()) / (2 * step) for y, z in zip(*ends, strict=True))

    best, least = None, math.inf
    for relative in STEPS:
        h = relative * (norm(x) or size) / size
        one, two = difference(h), difference(2 * h)
        apart = max(norm(a, minus=b) / (norm(a) or 1.0) for a, b in zip(one, two, strict=True))
        if best is None or apart < least:
            best, least = tuple((4 * a - b) / 3 for a, b in zip(one, two, strict=True)), apart
        if least <= SMOOTH:
            break
    assert best is not None
    return best
