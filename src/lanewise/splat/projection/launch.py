"""Launching the projection's Triton kernels: grids, blocks, workspaces and bounds."""

# A kernel is launched as kernel[grid](...), which pyright does not follow.
# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false

from __future__ import annotations

import math

import torch
from torch import Tensor

from lanewise.splat._launch import check_window, contiguous, launch, on_its_device
from lanewise.splat.projection import kernels, kernels_backward
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
) -> tuple[Projected, Tensor]:
    """`reference.project` for fp32 tensors with any leading dimensions, where compensations are empty unless
    antialiased; and uint8 [..., C, N], 1 where a Gaussian is not culled."""
    *batch, N, _ = means.shape
    C = viewmats.shape[-3]
    B, pairs = math.prod(batch), (*batch, C, N)
    means, quats, scales, covars, opacities, viewmats, Ks = contiguous(
        means, quats, scales, covars, opacities, viewmats, Ks
    )
    out = Projected(
        means.new_empty((*pairs, 2), dtype=torch.int32),
        means.new_empty(*pairs, 2),
        means.new_empty(pairs),
        means.new_empty(*pairs, 3),
        means.new_empty(pairs if camera.antialiased else 0),
    )
    seen = means.new_empty(pairs, dtype=torch.uint8)
    check_window(*out)
    if B * C * N:
        launch(
            kernels.project, (-(-N // BLOCK), B),
            means, quats, scales, covars, opacities, viewmats, Ks, *out, seen, N, C, camera.width, camera.height,
            float(camera.near_plane), float(camera.far_plane), float(camera.radius_clip), float(camera.eps2d),
            COVARS=covars is not None, OPACITIES=opacities is not None, ANTIALIASED=camera.antialiased, BLOCK=BLOCK,
        )  # fmt: skip
    return out, seen


@on_its_device
def backward(
    means: Tensor,
    quats: Tensor | None,
    scales: Tensor | None,
    covars: Tensor | None,
    viewmats: Tensor,
    Ks: Tensor,
    seen: Tensor,
    grads: tuple[Tensor, Tensor | None, Tensor, Tensor | None],
    camera: Camera,
    need_cameras: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of means, quats, scales, covars, viewmats and Ks, from those of means2d, depths, conics and
    compensations; empty where there is no such input or no need."""
    *batch, N, _ = means.shape
    B, C = math.prod(batch), viewmats.shape[-3]
    means, quats, scales, covars, viewmats, Ks = contiguous(means, quats, scales, covars, viewmats, Ks)
    make = torch.zeros_like if not C else torch.empty_like
    v_means = make(means)
    v_quats, v_scales, v_covars = (means.new_empty(0) if x is None else make(x) for x in (quats, scales, covars))
    programs = -(-N // BLOCK)
    v_cameras = means.new_empty(programs, B, C, 16) if need_cameras else means.new_empty(0)
    check_window(v_means, v_cameras)
    if B * C * N:
        v_means2d, v_conics = _rows(grads[0]), _rows(grads[2])
        v_depths, v_compensations = contiguous(grads[1], grads[3])
        launch(
            kernels_backward.project_backward, (programs, B),
            means, quats, scales, covars, viewmats, Ks, seen, v_means2d, v_depths, v_conics, v_compensations,
            v_means2d.stride(0), v_conics.stride(0), v_means, v_quats, v_scales, v_covars, v_cameras,
            N, C, camera.width, camera.height, float(camera.eps2d), COVARS=covars is not None,
            ANTIALIASED=v_compensations is not None, DEPTHS=v_depths is not None, CAMERAS=need_cameras, BLOCK=BLOCK,
        )  # fmt: skip
    if not need_cameras:
        return v_means, v_quats, v_scales, v_covars, means.new_empty(0), means.new_empty(0)
    # Summed over the programs in a fixed order.
    v_cameras = v_cameras.sum(0).view(*batch, C, 16)
    return v_means, v_quats, v_scales, v_covars, *camera_gradients(v_cameras, viewmats, Ks)


def _rows(grad: Tensor) -> Tensor:
    """A gradient as rows [M, columns] whose columns are adjacent: the rasterizer's are slices of wider rows."""
    rows = grad.reshape(-1, grad.shape[-1])
    return rows if rows.stride(1) == 1 else rows.contiguous()
