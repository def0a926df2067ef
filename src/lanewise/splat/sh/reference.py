"""Real spherical harmonics of degree 0 to 4: the truth, in differentiable torch, any floating dtype.

Source: Sloan, "Efficient Spherical Harmonic Evaluation" (JCGT 2013), with the sign convention of 3DGS and gsplat.
"""

from __future__ import annotations

import torch
from torch import Tensor


def spherical_harmonics(degree: int, dirs: Tensor, coeffs: Tensor) -> Tensor:
    """Colours seen along directions.

    Args:
        degree: 0..4; the first (degree + 1)^2 coefficients are used.
        dirs: viewing directions from the camera to the Gaussian, any length, [..., 3]; a zero direction counts as no
            direction: only degree 0 contributes.
        coeffs: [..., K, D] with K >= (degree + 1)^2.

    Returns:
        [..., D].
    """
    basis = sh_basis(degree, dirs)  # [..., (degree + 1)^2]
    return (basis[..., None] * coeffs[..., : basis.shape[-1], :]).sum(-2)


def sh_basis(degree: int, dirs: Tensor) -> Tensor:
    """The (degree + 1)^2 basis functions at `dirs` [..., 3], ordered by degree l and order m = -l..l."""
    norm2 = dirs.square().sum(-1, keepdim=True)
    nonzero = norm2 > 0
    x, y, z = (dirs * torch.where(nonzero, torch.where(nonzero, norm2, 1).rsqrt(), 0)).unbind(-1)
    return torch.stack(_basis(degree, x, y, z, nonzero[..., 0].to(dirs.dtype)), -1)


def _basis(degree: int, x: Tensor, y: Tensor, z: Tensor, nonzero: Tensor) -> list[Tensor]:
    """The basis as polynomials of a unit vector, each [...]; `nonzero` takes the constant terms of the polynomials
    away."""
    basis = [torch.full_like(x, 0.2820947917738781)]
    if degree == 0:
        return basis
    basis += [-0.48860251190292 * y, 0.48860251190292 * z, -0.48860251190292 * x]
    if degree == 1:
        return basis
    z2 = z * z
    c1, s1 = x * x - y * y, 2 * x * y  # real and imaginary part of (x + iy)^2
    y20 = 0.9461746957575601 * z2 - 0.3153915652525201 * nonzero
    basis += [0.5462742152960395 * s1, -1.092548430592079 * z * y, y20, -1.092548430592079 * z * x]
    basis += [0.5462742152960395 * c1]
    if degree == 2:
        return basis
    c2, s2 = x * c1 - y * s1, x * s1 + y * c1  # (x + iy)^3
    y31 = -2.285228997322329 * z2 + 0.4570457994644658
    y30 = z * (1.865881662950577 * z2 - 1.119528997770346)
    basis += [-0.5900435899266435 * s2, 1.445305721320277 * z * s1, y31 * y, y30, y31 * x]
    basis += [1.445305721320277 * z * c1, -0.5900435899266435 * c2]
    if degree == 3:
        return basis
    c3, s3 = x * c2 - y * s2, x * s2 + y * c2  # (x + iy)^4
    y41 = z * (-4.683325804901025 * z2 + 2.007139630671868)
    y42 = 3.31161143515146 * z2 - 0.47308734787878
    y40 = 1.984313483298443 * z * y30 - 1.006230589874905 * y20
    basis += [0.6258357354491763 * s3, -1.770130769779931 * z * s2, y42 * s1, y41 * y, y40, y41 * x, y42 * c1]
    basis += [-1.770130769779931 * z * c2, 0.6258357354491763 * c3]
    return basis
