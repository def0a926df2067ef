"""The gate: when a kernel's output or gradient counts as right."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lanewise.errors import LanewiseError

FLOOR = 2e-6  # relative L2 error that any fp32 kernel may have
HEADROOM = 2.0  # times the fp32 reference's own error


class GateError(LanewiseError, AssertionError):
    """A kernel's value is further from the fp64 reference than the gate allows."""

    exit_code = 1


@dataclass(frozen=True)
class GateResult:
    """How one tensor stands: relative L2 `error` against fp64, and the `limit` it may not pass."""

    name: str
    error: float
    limit: float

    @property
    def ok(self) -> bool:
        """NaN and infinity never pass, not even where the reference gives them too."""
        return self.error <= self.limit < float("inf")


def relative_error(got: Tensor, truth: Tensor) -> float:
    """||got - truth|| / ||truth|| in fp64; 0 when both are all zero, NaN or infinite when `got` holds such values.

    Raises:
        GateError: the shapes differ.
    """
    if got.shape != truth.shape:
        raise GateError(f"shape {list(got.shape)} where {list(truth.shape)} was expected")
    got, truth = got.detach().double().cpu(), truth.detach().double().cpu()
    distance, size = torch.linalg.vector_norm(got - truth).item(), torch.linalg.vector_norm(truth).item()
    return distance / size if size > 0 else (0.0 if distance == 0 else float("inf") if distance > 0 else float("nan"))


def gate(name: str, got: Tensor, truth: Tensor, single: Tensor | None = None, *, floor: float = FLOOR) -> GateResult:
    """Compare a kernel's value with the fp64 reference's.

    Args:
        name: what is compared.
        got: the kernel's value.
        truth: the fp64 reference's value on the same input, with the kernel's discrete decisions replayed.
        single: the fp32 reference's value on the same input and decisions; its own error, doubled, may raise the limit.
        floor: the limit where the fp32 reference is better than that; half-precision kernels use their own unit
            roundoff.
    """
    limit = floor if single is None else max(floor, HEADROOM * relative_error(single, truth))
    return GateResult(name, relative_error(got, truth), limit)


def require(*results: GateResult) -> None:
    """Raise a GateError that names every result outside its limit."""
    failed = [f"{r.name}: relative error {r.error:.3g}, limit {r.limit:.3g}" for r in results if not r.ok]
    if failed:
        raise GateError("; ".join(failed))
