"""Launching Adam's Triton kernel."""

# A kernel is launched as kernel[grid](...), which pyright does not follow.
# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from lanewise.errors import UnsupportedError
from lanewise.splat._launch import contiguous, on_its_device
from lanewise.train.adam import kernels

BLOCK = 1024


@on_its_device
def adam_step(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    coefficients: Tensor,
    betas: tuple[float, float],
    eps: float,
    visible: Tensor | None,
    skip: Tensor | None,
) -> None:
    """One step in place; arguments as `lanewise.train.adam.adam_step`, all but `grad` and `visible` contiguous."""
    size = param.numel()
    if not size:
        return
    programs = -(-size // BLOCK)
    if programs >= 2**31:
        raise UnsupportedError(f"a step over {size} numbers", why="blocks are numbered with 32 bits")
    grad, coefficients, visible = contiguous(grad, coefficients, visible)
    # A pointer that is not used stands for a tensor that is not given.
    rows = param if visible is None else visible.view(torch.uint8)
    guard = param if skip is None else skip
    kernels.step[(programs,)](
        param, grad, exp_avg, exp_avg_sq, coefficients, rows, guard, size,
        betas[0], betas[1], 1 - betas[0], 1 - betas[1], eps,
        K=1 if visible is None else size // param.shape[0],
        SELECT=visible is not None, GUARD=skip is not None, BLOCK=BLOCK,
    )  # fmt: skip
    increment_version([param, exp_avg, exp_avg_sq])  # autograd's guard against values changed behind its back
