"""The adjoint probe: for what is affine in an argument, J u = f(u) - f(0), by two forwards and at any size."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lanewise.audit.call import Call
from lanewise.audit.probes.compare import compare
from lanewise.audit.verdict import Verdict
from lanewise.errors import InputError


def adjoint(call: Call, argument: str, *, probes: int = 3, seed: int = 0) -> Verdict:
    """Check <gradient(v), u> = <v, f(u) - f(0)> for an argument in which the call is affine."""
    return compare(call, argument, "adjoint", difference, probes=probes, seed=seed)


def adjoint_probe(function: Callable[[Tensor], Tensor], x: Tensor, *, probes: int = 3, seed: int = 0) -> Verdict:
    """`adjoint` of a function of one tensor.

    Args:
        function: affine in its argument; its output [...] may have any shape.
        x: where the gradient is asked for; [...] floating point.
        probes: random directions; P(miss) falls with their number (`Verdict.miss_probability`).
        seed: of the random directions.

    Raises:
        InputError: `x` is empty, or the output does not depend on it.
    """
    verdict = adjoint(Call(function, (x,), linear=("0",)), "0", probes=probes, seed=seed)
    if verdict.outcome == "skipped":
        raise InputError("x", got=f"shape {list(x.shape)}", expected="a tensor to probe", why=verdict.reason)
    return verdict


def difference(call: Call, argument: str, u: Tensor) -> tuple[Tensor, ...]:
    """J u = f(u) - f(0)."""
    ends = call.output({argument: u}), call.output({argument: torch.zeros_like(u)})
    return tuple(y.double() - z.double() for y, z in zip(*ends, strict=True))
