"""Spherical harmonics: checks and dispatch. In fp32 on the CPU the reference is fast enough to be the
implementation."""

from __future__ import annotations

import torch
from torch import Tensor

from lanewise.errors import InputError
from lanewise.splat._backend import Backend, check_tensor, resolve_backend
from lanewise.splat.sh import reference


def spherical_harmonics(
    degrees_to_use: int, dirs: Tensor, coeffs: Tensor, masks: Tensor | None = None, *, backend: Backend = "auto"
) -> Tensor:
    """Colours of spherical-harmonics coefficients seen along directions (Sloan 2013).

    Differentiable with respect to both; the gradient with respect to the directions is what carries a colour's
    dependence on the view to the Gaussians' means and to the camera.

    Args:
        degrees_to_use: 0..4.
        dirs: directions from the camera to the Gaussian, any length, [..., 3].
        coeffs: [..., K, D] with K >= (degrees_to_use + 1)^2; leading dimensions broadcast against those of `dirs`.
        masks: [...] bool; colours where it is False are 0 and get no gradient.
        backend: "auto", "reference" or "cpu".

    Returns:
        [..., D].

    Raises:
        InputError: a degree outside 0..4, too few coefficients, a shape, dtype or device that does not fit.
    """
    if degrees_to_use not in range(5):
        raise InputError("degrees_to_use", got=repr(degrees_to_use), expected="a whole number in 0..4")
    leading = dirs.shape[:-1]
    check_tensor("dirs", dirs, (*leading, 3))
    K = (degrees_to_use + 1) ** 2
    if coeffs.dim() < 2 or coeffs.shape[-2] < K:
        raise InputError(
            "coeffs",
            got=f"shape {list(coeffs.shape)}",
            expected=f"[..., K, D] with K >= {K}",
            why=f"degree {degrees_to_use} has {K} basis functions",
        )
    check_tensor("coeffs", coeffs, tuple(coeffs.shape), dirs)
    resolve_backend(backend, dirs)
    coeffs = coeffs[..., :K, :].expand(*leading, K, coeffs.shape[-1])
    if masks is None:
        return reference.spherical_harmonics(degrees_to_use, dirs, coeffs)
    if masks.shape != leading or masks.dtype != torch.bool:
        raise InputError("masks", got=f"{masks.dtype} {list(masks.shape)}", expected=f"torch.bool {list(leading)}")
    # Only what is asked for is evaluated, so that a NaN elsewhere stays elsewhere, in the gradient too.
    colors = reference.spherical_harmonics(degrees_to_use, dirs[masks], coeffs[masks])
    return colors.new_zeros(*leading, coeffs.shape[-1]).index_put(masks.nonzero(as_tuple=True), colors)
