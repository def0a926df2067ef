"""The adjoint probe: is a backward pass the transpose of its forward pass?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lanewise.errors import InputError

PIECE = 1 << 24  # elements that an inner product converts to fp64 at a time
LAMBDA = 6.0  # standard deviations of rounding that a healthy residual may have


@dataclass(frozen=True)
class ProbeResult:
    """What one or more probes found.

    Attributes:
        residual: the largest |<vjp(v), u> - <v, jvp(u)>|.
        tolerance: what rounding alone may make of it.
        probes: how many random directions were tried.
        gradient_norm: ||vjp(v)||, the scale of a relative error.
    """

    residual: float
    tolerance: float
    probes: int
    gradient_norm: float

    @property
    def ok(self) -> bool:
        """Whether every residual was within rounding; NaN never is."""
        return self.residual <= self.tolerance

    def miss_probability(self, relative_error: float) -> float:
        """Largest probability that all probes miss a gradient error of this relative L2 size.

        The residual of a fault E is normal with deviation ||E||, so one probe misses with at most sqrt(2 / pi)
        tolerance / ||E||.
        """
        size = relative_error * self.gradient_norm
        single = min(1.0, math.sqrt(2 / math.pi) * self.tolerance / size) if size > 0 else 1.0
        return single**self.probes


def adjoint_probe(
    function: Callable[[Tensor], Tensor], x: Tensor, *, probes: int = 3, seed: int = 0, unit: float | None = None
) -> ProbeResult:
    """Check the gradient of a function that is affine in `x`, without a reference and at any size.

    For such a function <vjp(v), u> = <v, f(u) - f(0)> for every u and v: the left side runs the backward pass, the
    right side only the forward. u and v are random and signed; both inner products are taken in fp64.

    Args:
        function: affine in its argument; its output [...] may have any shape.
        x: where the gradient is asked for; [...] of any floating dtype.
        probes: random directions; P(miss) falls with their number (`ProbeResult.miss_probability`).
        seed: of the random directions.
        unit: what rounding does to an element of the gradient, relatively; the spacing of x's dtype at 1 by default.

    Raises:
        InputError: `x` is empty, or the output does not depend on it.
    """
    if x.numel() == 0:
        raise InputError("x", got=f"shape {list(x.shape)}", expected="at least one element")
    generator = torch.Generator(device=x.device).manual_seed(seed)
    leaf = x.detach().clone().requires_grad_()
    out = function(leaf)
    if not out.requires_grad:
        raise InputError("function", got="an output without a gradient", expected="an output that depends on x")
    with torch.no_grad():
        origin = function(torch.zeros_like(leaf)).double()
    residual = tolerance = norm = 0.0
    for _ in range(probes):
        v = torch.randn(out.shape, generator=generator, device=x.device, dtype=x.dtype)
        u = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
        (grad,) = torch.autograd.grad(out, leaf, v, retain_graph=True)
        with torch.no_grad():
            image = function(u).double() - origin
        left, right = _inner(grad, u), _inner(v, image)
        difference = abs((left - right).item())
        if not math.isfinite(difference):  # a NaN or infinity in either direction
            return ProbeResult(math.nan, tolerance, probes, norm)
        residual = max(residual, difference)
        # Rounding moves every element of the gradient and of the image by a few units in the last place, with random
        # signs against the random directions; the image is the difference of two values.
        rounding = torch.finfo(x.dtype).eps if unit is None else unit
        size = _inner(grad, grad).sqrt().item()
        scale = size + (torch.linalg.vector_norm(image) + torch.linalg.vector_norm(origin)).item()
        tolerance = max(tolerance, LAMBDA * rounding * scale)
        norm = max(norm, size)
    return ProbeResult(residual, tolerance, probes, norm)


def _inner(a: Tensor, b: Tensor) -> Tensor:
    """<a, b> in fp64, piece by piece: fp64 copies of whole tensors of gigabytes are too much."""
    pieces = zip(a.flatten().split(PIECE), b.flatten().split(PIECE), strict=True)
    return torch.stack([(p.double() * q.double()).sum() for p, q in pieces]).sum()
