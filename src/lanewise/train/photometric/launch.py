"""Launching the photometric loss's Triton kernels."""

# A kernel is launched as kernel[grid](...), which pyright does not follow.
# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false

from __future__ import annotations

import torch
from torch import Tensor

from lanewise.errors import UnsupportedError
from lanewise.splat._launch import contiguous, on_its_device
from lanewise.train.photometric import kernels
from lanewise.train.photometric.reference import WINDOW

BLOCK = 128  # columns of a program
ROWS = 32  # rows of a program, which reads ten more
SUMS = 1024  # partial sums that are added at a time


@on_its_device
def photometric_loss(
    render: Tensor, target: Tensor, mask: Tensor | None, ssim_weight: float, with_gradient: bool
) -> tuple[Tensor, Tensor]:
    """The loss, a scalar, of pictures [C, H, W, D] and mask [C, H, W], and its gradient by `render` ([0] without).

    Nothing is read back, and what is allocated follows from the shapes: a CUDA graph can hold it.
    """
    C, H, W, D = render.shape
    L = W * D
    before = -(-(WINDOW - 1) * D // 32) * 32  # numbers that `gradient` reads before the first, in whole cache lines
    render, target, mask = contiguous(render, target, mask)
    loss, scales = render.new_empty(()), render.new_empty(2)
    gradient = torch.empty_like(render) if with_gradient else render.new_empty(0)
    if not render.numel():
        return loss.zero_(), gradient
    programs = C * -(-H // ROWS) * -(-L // BLOCK)
    _check_bounds(H, L, programs)
    ssim = ssim_weight > 0
    plane = C * (H - WINDOW + 1) * L if ssim else 0
    sums = render.new_empty(4, programs)
    derivatives = render.new_empty(before + 3 * plane if with_gradient else before)[before:]
    counted = render if mask is None else mask.view(torch.uint8)  # without a mask a pointer that is not used
    pictures = (render, target, counted, derivatives)
    sizes = (H, L, ROWS, plane)
    how = {"D": D, "SSIM": ssim, "MASKED": mask is not None, "BLOCK": BLOCK}
    kernels.similarity[(programs,)](*pictures, sums, *sizes, GRADIENT=with_gradient, **how)
    kernels.total[(1,)](sums, loss, scales, programs, 1 - ssim_weight, ssim_weight, BLOCK=SUMS)
    if with_gradient:
        kernels.gradient[(programs,)](*pictures, scales, gradient, *sizes, **how)
    return loss, gradient


def _check_bounds(H: int, L: int, programs: int) -> None:
    """Rows, columns and programs are numbered with 32 bits; whatever counts over several rows has 64."""
    if max(H + ROWS + WINDOW, L + BLOCK, programs + SUMS) >= 2**31:
        raise UnsupportedError(
            f"pictures of {H} rows of {L} numbers, {programs} blocks in one launch",
            why="rows, columns and blocks are numbered with 32 bits",
            fix="compare fewer or smaller pictures at a time",
        )
