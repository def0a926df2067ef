"""Spherical harmonics: checks, dispatch, and the autograd rule of the kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lanewise._operator import operator
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
        backend: "auto", "reference", "cpu" or "triton".

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
    sizes = zip(coeffs.shape[-3::-1], leading[::-1], strict=False)  # from the last leading dimension on
    if coeffs.dim() - 2 > len(leading) or any(a not in (1, b) for a, b in sizes):
        raise InputError(
            "coeffs",
            got=f"shape {list(coeffs.shape)}",
            expected=f"leading dimensions that broadcast to {list(leading)}, those of dirs",
        )
    if masks is not None and (masks.shape != leading or masks.dtype != torch.bool):
        raise InputError("masks", got=f"{masks.dtype} {list(masks.shape)}", expected=f"torch.bool {list(leading)}")
    chosen = resolve_backend(backend, dirs)
    if chosen != "reference" and leading:
        return _with_kernels(degrees_to_use, dirs, coeffs, masks, chosen)
    coeffs = coeffs[..., :K, :].expand(*leading, K, coeffs.shape[-1])
    if masks is None:
        return reference.spherical_harmonics(degrees_to_use, dirs, coeffs)
    # Only what is asked for is evaluated, so that a NaN elsewhere stays elsewhere, in the gradient too.
    colors = reference.spherical_harmonics(degrees_to_use, dirs[masks], coeffs[masks])
    return colors.new_zeros(*leading, coeffs.shape[-1]).index_put(masks.nonzero(as_tuple=True), colors)


def _with_kernels(degree: int, dirs: Tensor, coeffs: Tensor, masks: Tensor | None, backend: str) -> Tensor:
    """The kernels take dirs [I, N, 3] and coeffs [I / shared, N, K, D]: one set of coefficients may serve several
    images."""
    *leading, N = dirs.shape[:-1]
    K, D = coeffs.shape[-2:]
    images = math.prod(leading)
    one_for_all = images > 0 and coeffs.shape[:-2] == (*leading[:-1], 1, N) and bool(leading)
    if not one_for_all:
        coeffs = coeffs.expand(*leading, N, K, D)
    visible = torch.ones(dirs.shape[:-1], dtype=torch.bool, device=dirs.device) if masks is None else masks
    groups = images // max(leading[-1], 1) if one_for_all else images
    colors = _spherical_harmonics(
        dirs.reshape(images, N, 3), coeffs.reshape(groups, N, K, D), visible.reshape(images, N), degree, backend
    )
    return colors.reshape(*dirs.shape[:-1], D)


def _forward(dirs: Tensor, coeffs: Tensor, visible: Tensor, degree: int, backend: str) -> Tensor:
    if backend == "triton":
        from lanewise.splat.sh import launch

        return launch.forward(dirs, coeffs, visible, degree)
    from lanewise.splat.sh import cpu

    colors = dirs.new_empty(*dirs.shape[:2], coeffs.shape[-1])
    cpu.forward(*_arrays(dirs, coeffs, visible), degree, colors.numpy())
    return colors


def _arrays(*tensors: Tensor) -> tuple[Any, ...]:
    """Contiguous numpy arrays."""
    return tuple(x.detach().contiguous().numpy() for x in tensors)


def _fake_forward(dirs: Tensor, coeffs: Tensor, visible: Tensor, degree: int, backend: str) -> Tensor:
    return dirs.new_empty(*dirs.shape[:2], coeffs.shape[-1])


def _gradients(
    dirs: Tensor, coeffs: Tensor, visible: Tensor, degree: int, backend: str, v_colors: Tensor, need_dirs: bool
) -> tuple[Tensor, Tensor]:
    if backend == "triton":
        from lanewise.splat.sh import launch

        return launch.backward(dirs, coeffs, visible, degree, v_colors, need_dirs)
    from lanewise.splat.sh import cpu

    v_dirs = dirs.new_zeros(dirs.shape) if need_dirs else dirs.new_empty(dirs.shape[0], 0, 3)
    v_coeffs = coeffs.new_zeros(coeffs.shape)
    cpu.backward(*_arrays(dirs, coeffs, visible), degree, *_arrays(v_colors, v_dirs, v_coeffs))
    return v_dirs, v_coeffs


def _fake_gradients(
    dirs: Tensor, coeffs: Tensor, visible: Tensor, degree: int, backend: str, v_colors: Tensor, need_dirs: bool
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(dirs) if need_dirs else dirs.new_empty(dirs.shape[0], 0, 3), torch.empty_like(coeffs)


def _save_for_backward(ctx: Any, inputs: tuple, output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.how = inputs[3:]


def _backward_by(gradients: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., tuple]:
    """The backward rule, with the registered operator or the plain function that computes the gradients."""

    def backward(ctx: Any, v_colors: Tensor) -> tuple:
        need_dirs = ctx.needs_input_grad[0]
        v_dirs, v_coeffs = gradients(*ctx.saved_tensors, *ctx.how, v_colors, need_dirs)
        return v_dirs if need_dirs else None, v_coeffs, None, None, None

    return backward


_custom = torch.library.custom_op("lanewise::spherical_harmonics", _forward, mutates_args=())
_custom_gradients = torch.library.custom_op("lanewise::spherical_harmonics_backward", _gradients, mutates_args=())
_custom.register_fake(_fake_forward)
_custom_gradients.register_fake(_fake_gradients)
_custom.register_autograd(_backward_by(_custom_gradients), setup_context=_save_for_backward)
_spherical_harmonics = operator(_custom, _forward, _save_for_backward, _backward_by(_gradients))
