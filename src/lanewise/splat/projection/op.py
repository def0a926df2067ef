"""EWA projection: checks, dispatch, and the autograd rule of the kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from lanewise._operator import operator, zeros_for_none
from lanewise.errors import InputError
from lanewise.splat._backend import Backend, check_positive, check_tensor, resolve_backend
from lanewise.splat.projection.reference import Camera, Projected, project


def project_gaussians(
    means: Tensor,
    covars: Tensor | None,
    quats: Tensor | None,
    scales: Tensor | None,
    viewmats: Tensor,
    Ks: Tensor,
    width: int,
    height: int,
    *,
    eps2d: float = 0.3,
    near_plane: float = 0.01,
    far_plane: float = 1e10,
    radius_clip: float = 0.0,
    calc_compensations: bool = False,
    opacities: Tensor | None = None,
    backend: Backend = "auto",
) -> Projected:
    """Project 3-D Gaussians to the image planes of pinhole cameras (EWA splatting, Zwicker et al. 2002).

    Differentiable with respect to means, covars, quats, scales, viewmats and Ks.

    Args:
        means: world centres, [B, N, 3].
        covars: world covariances, [B, N, 3, 3], of which the upper triangle counts; or None with quats and scales.
        quats: rotations wxyz of any length, [B, N, 4].
        scales: standard deviations in world units, [B, N, 3].
        viewmats: world-to-camera, x right, y down, z forward, [B, C, 4, 4].
        Ks: intrinsics in pixels, pixel centres at +0.5, [B, C, 3, 3].
        width: of the image in pixels.
        height: of the image in pixels.
        eps2d: variance added on the image plane, pixels^2.
        near_plane: smallest depth that is drawn, world units.
        far_plane: largest depth that is drawn, world units.
        radius_clip: Gaussians whose radii are both at most this many pixels are culled.
        calc_compensations: the antialiasing compensation sqrt(det / det of the blurred covariance) (Mip-Splatting).
        opacities: [B, N] in 0..1; they shrink the extents (StopThePop, section B.2) and cull what is below 1/255.
        backend: "auto", "reference", "cpu" or "triton".

    Returns:
        `Projected`; zeros where a Gaussian is culled.

    Raises:
        InputError: a shape, dtype or device that does not fit.
    """
    check_tensor("means", means, ("B", "N", 3))
    B, N = means.shape[:2]
    if covars is not None:
        check_tensor("covars", covars, (B, N, 3, 3), means)
    elif quats is None or scales is None:
        raise InputError("quats, scales", got="None", expected="both, or covars")
    else:
        check_tensor("quats", quats, (B, N, 4), means)
        check_tensor("scales", scales, (B, N, 3), means)
    check_tensor("viewmats", viewmats, (B, "C", 4, 4), means)
    check_tensor("Ks", Ks, (B, viewmats.shape[1], 3, 3), means)
    if opacities is not None:
        check_tensor("opacities", opacities, (B, N), means)
    check_positive("width", width)
    check_positive("height", height)
    camera = Camera(width, height, near_plane, far_plane, radius_clip, eps2d, calc_compensations)
    if covars is not None:
        quats = scales = None
    chosen = resolve_backend(backend, means)
    out = project_checked(means, quats, scales, covars, opacities, viewmats, Ks, camera, chosen)
    asked_for = out.compensations.shape == out.depths.shape
    return out if asked_for else out._replace(compensations=torch.ones_like(out.depths))


def project_checked(
    means: Tensor,
    quats: Tensor | None,
    scales: Tensor | None,
    covars: Tensor | None,
    opacities: Tensor | None,
    viewmats: Tensor,
    Ks: Tensor,
    camera: Camera,
    backend: Literal["reference", "cpu", "triton"],
) -> Projected:
    """`project_gaussians` with arguments that have been checked and any leading dimensions: means [..., N, 3] to
    [..., C, N, ...]. Compensations may be empty where they are not asked for."""
    if backend != "reference":
        return Projected(*_project(means, quats, scales, covars, opacities, viewmats, Ks, *camera, backend)[:5])
    batch = means.shape[:-2]

    def flat(x: Tensor | None) -> Any:
        return None if x is None else x.reshape(batch.numel(), *x.shape[len(batch) :])

    shape = (flat(quats), flat(scales)) if covars is None else flat(covars)
    out = project(flat(means), shape, flat(opacities), flat(viewmats), flat(Ks), camera)
    return Projected(*(x.reshape(*batch, *x.shape[1:]) for x in out))


def _forward(
    means: Tensor,
    quats: Tensor | None,
    scales: Tensor | None,
    covars: Tensor | None,
    opacities: Tensor | None,
    viewmats: Tensor,
    Ks: Tensor,
    width: int,
    height: int,
    near_plane: float,
    far_plane: float,
    radius_clip: float,
    eps2d: float,
    antialiased: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The fields of `Projected`, and what the backward pass asks for who is seen: Triton's uint8 [..., C, N]."""
    camera = Camera(width, height, near_plane, far_plane, radius_clip, eps2d, antialiased)
    if backend == "triton":
        from lanewise.splat.projection import launch

        out, seen = launch.forward(means, quats, scales, covars, opacities, viewmats, Ks, camera)
        return out.radii, out.means2d, out.depths, out.conics, out.compensations, seen
    from lanewise.splat.projection import cpu

    leading, batch = _pairs(means, viewmats), means.dim() - 2
    radii = means.new_zeros((*leading, 2), dtype=torch.int32)
    out = [means.new_zeros((*leading, *tail)) for tail in ((2,), (), (3,), ())]
    gaussians, cameras = (means, quats, scales, covars, opacities), (viewmats, Ks)
    cpu.forward(*_arrays(batch, *gaussians), *_arrays(batch, *cameras), *camera, *_arrays(batch, radii, *out))
    return radii, out[0], out[1], out[2], out[3], means.new_empty(0, dtype=torch.uint8)


def _pairs(means: Tensor, viewmats: Tensor) -> tuple[int, ...]:
    """(..., C, N) of means [..., N, 3] and viewmats [..., C, 4, 4]."""
    return (*means.shape[:-2], viewmats.shape[-3], means.shape[-2])


def _arrays(batch: int, *tensors: Tensor | None) -> tuple[Any, ...]:
    """Contiguous numpy arrays, their first `batch` dimensions as one; one that is empty along N stands for None."""
    nothing = {1: (0, 0, 4), 2: (0, 0, 3), 3: (0, 0, 3, 3), 4: (0, 0)}  # quats, scales, covars, opacities
    return tuple(
        np.empty(nothing[i], np.float32)
        if x is None
        else x.detach().reshape(math.prod(x.shape[:batch]), *x.shape[batch:]).contiguous().numpy()
        for i, x in enumerate(tensors)
    )


def _fake_forward(
    means: Tensor,
    quats: Tensor | None,
    scales: Tensor | None,
    covars: Tensor | None,
    opacities: Tensor | None,
    viewmats: Tensor,
    Ks: Tensor,
    width: int,
    height: int,
    near_plane: float,
    far_plane: float,
    radius_clip: float,
    eps2d: float,
    antialiased: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    pairs = _pairs(means, viewmats)
    return (
        means.new_empty((*pairs, 2), dtype=torch.int32),
        means.new_empty((*pairs, 2)),
        means.new_empty(pairs),
        means.new_empty((*pairs, 3)),
        means.new_empty(pairs if antialiased or backend != "triton" else 0),
        means.new_empty(pairs if backend == "triton" else 0, dtype=torch.uint8),
    )


def _gradients(
    means: Tensor,
    quats: Tensor | None,
    scales: Tensor | None,
    covars: Tensor | None,
    viewmats: Tensor,
    Ks: Tensor,
    who: Tensor,
    v_means2d: Tensor,
    v_depths: Tensor | None,
    v_conics: Tensor,
    v_compensations: Tensor | None,
    width: int,
    height: int,
    eps2d: float,
    antialiased: bool,
    backend: str,
    need_cameras: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of means, quats, scales, covars, viewmats, Ks; empty for what is not there or not needed. `who` is
    seen: uint8 [..., C, N] for Triton, else the radii."""
    grads = (v_means2d, v_depths, v_conics, v_compensations)
    if backend == "triton":
        from lanewise.splat.projection import launch

        camera = Camera(width, height, eps2d=eps2d, antialiased=antialiased)
        return launch.backward(means, quats, scales, covars, viewmats, Ks, who, grads, camera, need_cameras)
    from lanewise.splat.projection import cpu

    batch = means.dim() - 2
    v_means = torch.zeros_like(means, memory_format=torch.contiguous_format)
    shapes = [None if x is None else means.new_zeros(x.shape) for x in (quats, scales, covars)]
    cameras = math.prod(viewmats.shape[:-2])
    v_cameras = torch.zeros(cpu.BLOCKS, *viewmats.shape[:-2], 16, dtype=torch.float64, device="cpu")
    upstream = [zeros_for_none(x, who.shape[:-1], means) if x is None else x for x in grads]
    by_block = v_cameras.view(cpu.BLOCKS, cameras // max(viewmats.shape[-3], 1), viewmats.shape[-3], 16)
    cpu.backward(
        *_arrays(batch, means, quats, scales, covars), *_arrays(batch, viewmats, Ks), width, height, eps2d,
        antialiased, *_arrays(batch, who, *upstream), *_arrays(batch, v_means, *shapes), by_block.numpy(),
    )  # fmt: skip
    v_quats, v_scales, v_covars = (means.new_empty(0) if x is None else x for x in shapes)
    if not need_cameras:
        return v_means, v_quats, v_scales, v_covars, means.new_empty(0), means.new_empty(0)
    return v_means, v_quats, v_scales, v_covars, *camera_gradients(v_cameras.sum(0), viewmats, Ks)


def camera_gradients(v: Tensor, viewmats: Tensor, Ks: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of viewmats and Ks from v [B, C, 16]: rotation (9), translation (3), fx, fy, cx, cy."""
    v = v.to(viewmats.dtype)
    v_viewmats, v_Ks = viewmats.new_zeros(viewmats.shape), Ks.new_zeros(Ks.shape)
    v_viewmats[..., :3, :3] = v[..., :9].unflatten(-1, (3, 3))
    v_viewmats[..., :3, 3] = v[..., 9:12]
    v_Ks[..., 0, 0], v_Ks[..., 1, 1], v_Ks[..., 0, 2], v_Ks[..., 1, 2] = v[..., 12:].unbind(-1)
    return v_viewmats, v_Ks


def _fake_gradients(
    means: Tensor,
    quats: Tensor | None,
    scales: Tensor | None,
    covars: Tensor | None,
    viewmats: Tensor,
    Ks: Tensor,
    who: Tensor,
    v_means2d: Tensor,
    v_depths: Tensor | None,
    v_conics: Tensor,
    v_compensations: Tensor | None,
    width: int,
    height: int,
    eps2d: float,
    antialiased: bool,
    backend: str,
    need_cameras: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    given = [means.new_empty(0) if x is None else torch.empty_like(x) for x in (quats, scales, covars)]
    cameras = [torch.empty_like(x) if need_cameras else means.new_empty(0) for x in (viewmats, Ks)]
    return torch.empty_like(means), given[0], given[1], given[2], cameras[0], cameras[1]


def _save_for_backward(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    means, quats, scales, covars, _, viewmats, Ks, width, height, _, _, _, eps2d, antialiased, backend = inputs
    who = output[5] if backend == "triton" else output[0]
    ctx.save_for_backward(means, quats, scales, covars, viewmats, Ks, who)
    ctx.pairs = output[0].shape[:-1]
    ctx.camera = (width, height, eps2d, antialiased, backend)


def _backward_by(gradients: Callable[..., tuple[Tensor, ...]]) -> Callable[..., tuple]:
    """The backward rule, with the registered operator or the plain function that computes the gradients."""

    def backward(ctx: Any, _v_radii: Tensor | None, *v: Tensor | None) -> tuple:
        needs, means = ctx.needs_input_grad, ctx.saved_tensors[0]
        v_means2d, v_depths, v_conics, v_compensations, _ = v
        v_means2d = zeros_for_none(v_means2d, (*ctx.pairs, 2), means)
        v_conics = zeros_for_none(v_conics, (*ctx.pairs, 3), means)
        grads = (v_means2d, v_depths, v_conics, v_compensations)
        out = gradients(*ctx.saved_tensors, *grads, *ctx.camera, needs[5] or needs[6])
        v_means, v_quats, v_scales, v_covars, v_viewmats, v_Ks = (x if x.numel() else None for x in out)
        return v_means, v_quats, v_scales, v_covars, None, v_viewmats, v_Ks, *[None] * 8

    return backward


_custom = torch.library.custom_op("lanewise::project", _forward, mutates_args=())
_custom_gradients = torch.library.custom_op("lanewise::project_backward", _gradients, mutates_args=())
_custom.register_fake(_fake_forward)
_custom_gradients.register_fake(_fake_gradients)
_custom.register_autograd(_backward_by(_custom_gradients), setup_context=_save_for_backward)
_project = operator(_custom, _forward, _save_for_backward, _backward_by(_gradients))
