"""What rounding every intermediate value makes of a gradient: what a function's conditioning may explain."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from lanewise.audit import tolerance
from lanewise.audit.call import Call, ForwardError
from lanewise.audit.probes.directions import seeded
from lanewise.audit.probes.measure import norm

TRIALS = 3


class _Rounded(TorchDispatchMode):
    """Every floating-point result of an operator is off by a random error of a unit in the last place of a dtype.

    That is a relative error, but of what is near zero the spacing of the smallest numbers. A sign never changes.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device, seed: int) -> None:
        super().__init__()
        self._unit, self._spacing = torch.finfo(dtype).eps, tolerance.spacing(dtype)
        self._generator = torch.Generator(device).manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if any(value.alias_info is not None for value in func._schema.returns):  # views, and writes in place
            return out
        return tree_map(self._rounded, out)

    def _rounded(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        at = self._generator.device
        noise = torch.randn(value.shape, generator=self._generator, device=at, dtype=torch.float64).to(value)
        relative = self._unit + self._spacing / value.abs()
        return torch.where(value == 0, value, value * (1 + relative * noise).clamp_min(0))


def conditioning(call: Call, argument: str, dtype: torch.dtype, seed: int = 0) -> float | None:
    """How far the gradient moves when all that it is computed from is rounded to `dtype`, as a norm.

    Everything runs in float64, forward and backward, with a random error of one unit of `dtype` after every operator of
    torch (Monte Carlo arithmetic, Parker 1997). 1 - tanh(x)^2 at large x is an example: the error of tanh(x), near 1,
    is all there is of the small difference. What is near zero loses digits as the numbers of `dtype` do there. None
    where float64 does not work.
    """
    try:
        wide = call.double()
        outputs = wide.output()
        cotangents = wide.cotangents(outputs, seeded(outputs[0].device, seed))  # not the inputs themselves
        exact = wide.gradient(cotangents, names=(argument,))[argument]
        off = 0.0
        for trial in range(TRIALS):
            with _Rounded(dtype, outputs[0].device, seed + trial):
                moved = wide.gradient(cotangents, names=(argument,))[argument]
            off = max(off, norm(moved, minus=exact))
        return off
    except (ForwardError, KeyError, RuntimeError):
        return None
