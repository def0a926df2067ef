"""The adjoint probe: is a backward pass the transpose of its forward pass?"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lanewise.audit.verdict import Verdict, judge
from lanewise.errors import InputError

LAMBDA = 6.0  # standard deviations of rounding that a healthy residual may have


def adjoint_probe(function: Callable[[Tensor], Tensor], x: Tensor, *, probes: int = 3, seed: int = 0) -> Verdict:
    """Check the gradient of a function that is affine in `x`, without a reference and at any size.

    For such a function <vjp(v), u> = <v, f(u) - f(0)> for every u and v: the left side runs the backward pass, the
    right side only the forward. u and v are random and signed; both inner products are taken in fp64.

    Args:
        function: affine in its argument; its output [...] may have any shape.
        x: where the gradient is asked for; [...] float32 or float64.
        probes: random directions; P(miss) falls with their number (`Verdict.miss_probability`).
        seed: of the random directions.

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
    samples = []
    for _ in range(probes):
        v = torch.randn(out.shape, generator=generator, device=x.device, dtype=x.dtype)
        u = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
        (grad,) = torch.autograd.grad(out, leaf, v, retain_graph=True)
        with torch.no_grad():
            image = function(u).double() - origin
        left, right = (grad.double() * u.double()).sum(), (v.double() * image).sum()
        # Rounding moves every element of the gradient and of the image by a few units in the last place, with random
        # signs against the random directions; the image is the difference of two values.
        norms = [torch.linalg.vector_norm(part.double()).item() for part in (grad, image, origin)]
        tolerance = LAMBDA * torch.finfo(x.dtype).eps * sum(norms)
        samples.append((abs((left - right).item()), tolerance, norms[0]))
    return judge("adjoint", "x", samples)
