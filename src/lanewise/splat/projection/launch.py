"""Launching the projection's Triton kernels: grids, blocks, workspaces and bounds."""

# A kernel is launched as kernel[grid](...), which pyright does not follow.
# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false

from __future__ import annotations

import torch
from torch import Tensor

from lanewise.splat._launch import check_window, contiguous, on_its_device
from lanewise.splat.projection import kernels
from lanewise.splat.projection.op import camera_gradients
from lanewise.splat.projection.reference import Camera, Projected

BLOCK = 128


@on_its_device
def forward(
    means: Tensor,
    quats: Tensor | None,
    scales: Tensor | None,
    covars: Tensor | None,
    opacities: Tensor | None,
    viewmats: Tensor,
    Ks: Tensor,
    camera: Camera,
) -> Projected:
    """`reference.project` for contiguous fp32 tensors; compensations are 1 unless antialiased."""
    B, N, C = means.shape[0], means.shape[1], viewmats.shape[1]
    means, quats, scales, covars, opacities, viewmats, Ks = contiguous(
        means, quats, scales, covars, opacities, viewmats, Ks
    )
    out = Projected(
        means.new_empty((B, C, N, 2), dtype=torch.int32),
        means.new_empty(B, C, N, 2),
        means.new_empty(B, C, N),
        means.new_empty(B, C, N, 3),
        means.new_empty(B, C, N) if camera.antialiased else means.new_ones(B, C, N),
    )
    check_window(*out)
    if B * C * N:
        kernels.forward[(-(-N // BLOCK), B)](
            means, quats, scales, covars, opacities, viewmats, Ks, *out, N, C, camera.width, camera.height,
            camera.near_plane, camera.far_plane, camera.radius_clip, camera.eps2d,
            COVARS=covars is not None, OPACITIES=opacities is not None, ANTIALIASED=camera.antialiased, BLOCK=BLOCK,
        )  # fmt: skip
    return out


@on_its_device
def backward(
    means: Tensor,
    quats: Tensor | None,
    scales: Tensor | None,
    covars: Tensor | None,
    viewmats: Tensor,
    Ks: Tensor,
    radii: Tensor,
    grads: tuple[Tensor, Tensor, Tensor, Tensor],
    camera: Camera,
    need_cameras: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of means, quats, scales, covars, viewmats and Ks; empty where there is no such input or no need."""
    B, N, C = means.shape[0], means.shape[1], viewmats.shape[1]
    means, quats, scales, covars, viewmats, Ks, radii = contiguous(means, quats, scales, covars, viewmats, Ks, radii)
    v_means = torch.zeros_like(means) if not C else torch.empty_like(means)
    make = torch.zeros_like if not C else torch.empty_like
    v_quats, v_scales, v_covars = (means.new_empty(0) if x is None else make(x) for x in (quats, scales, covars))
    programs = -(-N // BLOCK)
    v_cameras = means.new_empty(programs, B, C, 16) if need_cameras else means.new_empty(0)
    check_window(v_means, v_cameras)
    if B * C * N:
        kernels.backward[(programs, B)](
            means, quats, scales, covars, viewmats, Ks, radii, *contiguous(*grads),
            v_means, v_quats, v_scales, v_covars, v_cameras, N, C, camera.width, camera.height, camera.eps2d,
            COVARS=covars is not None, ANTIALIASED=camera.antialiased, CAMERAS=need_cameras, BLOCK=BLOCK,
        )  # fmt: skip
    if not need_cameras:
        return v_means, v_quats, v_scales, v_covars, means.new_empty(0), means.new_empty(0)
    # Summed over the programs in a fixed order.
    return v_means, v_quats, v_scales, v_covars, *camera_gradients(v_cameras.sum(0), viewmats, Ks)
