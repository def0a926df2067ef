"""Launching the spherical harmonics' Triton kernels."""

# A kernel is launched as kernel[grid](...), which pyright does not follow.
# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false

from __future__ import annotations

import torch
from torch import Tensor

from lanewise.splat._launch import check_window, contiguous, launch, on_its_device
from lanewise.splat.sh import kernels

BLOCK = 128
# Sums over images grow in memory, so that no Gaussian may have a second lane, which would read what the first writes:
# four warps of 64 lanes are more lanes than a block has Gaussians.
ONE_OWNER = {"num_warps": 2}


@on_its_device
def forward(dirs: Tensor, coeffs: Tensor, visible: Tensor, degree: int) -> Tensor:
    """colors [I, N, D] of dirs [I, N, 3], coeffs [I / shared, N, K, D] and visible [I, N] bool."""
    images, N, _ = dirs.shape
    K, D = coeffs.shape[2:]
    dirs, coeffs, visible = contiguous(dirs, coeffs, visible)
    colors = dirs.new_empty(images, N, D)
    check_window(dirs, coeffs, colors)
    if colors.numel():
        launch(
            kernels.harmonics, (images * -(-N // BLOCK),),
            dirs, coeffs, visible.view(torch.uint8), colors, N, K, images // coeffs.shape[0],
            D=D, DEGREE=degree, BLOCK=BLOCK,
        )  # fmt: skip
    return colors


@on_its_device
def backward(
    dirs: Tensor, coeffs: Tensor, visible: Tensor, degree: int, v_colors: Tensor, need_dirs: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of dirs ([I, 0, 3] without need) and coeffs; zero above the degree."""
    images, N, _ = dirs.shape
    groups, _, K, D = coeffs.shape
    dirs, coeffs, visible, v_colors = contiguous(dirs, coeffs, visible, v_colors)
    v_dirs = torch.empty_like(dirs) if need_dirs else dirs.new_empty(images, 0, 3)
    v_coeffs = torch.empty_like(coeffs) if (degree + 1) ** 2 == K and images else torch.zeros_like(coeffs)
    check_window(v_dirs, v_coeffs)
    if v_colors.numel():
        launch(
            kernels.harmonics_backward, (groups * -(-N // BLOCK),),
            dirs, coeffs, visible.view(torch.uint8), v_colors, v_dirs, v_coeffs, N, K, images // groups,
            D=D, DEGREE=degree, DIRS=need_dirs, BLOCK=BLOCK,
            options=ONE_OWNER if images > groups else None,
        )  # fmt: skip
    return v_dirs, v_coeffs
