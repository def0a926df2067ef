"""Launching the statistics' Triton kernel."""

# A kernel is launched as kernel[grid](...), which pyright does not follow.
# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false

from __future__ import annotations

from torch import Tensor

from lanewise.splat._launch import check_window, on_its_device
from lanewise.train.strategy.statistics import kernels

BLOCK = 256


@on_its_device
def observe(
    v_means2d: Tensor,
    radii: Tensor,
    width: int,
    height: int,
    grad2d: Tensor,
    count: Tensor,
    widest: Tensor | None,
    skip: Tensor | None,
) -> None:
    """One step in place; arguments as `lanewise.train.strategy.statistics.observe`, `grad2d`, `count` and `widest`
    contiguous."""
    cameras, N = radii.shape[:2]
    check_window(radii)
    if not cameras or not N:
        return
    # A pointer that is not used stands for a tensor that is not given.
    kernels.observe[(-(-N // BLOCK),)](
        v_means2d, radii.contiguous(), grad2d, count,
        grad2d if widest is None else widest, grad2d if skip is None else skip,
        N, cameras, *v_means2d.stride(), width / 2 * cameras, height / 2 * cameras, float(max(width, height)),
        WIDEST=widest is not None, GUARD=skip is not None, BLOCK=BLOCK,
    )  # fmt: skip
