"""The statistics of adaptive density control (Kerbl et al. 2023, section 5). Any dtype, any device."""

from __future__ import annotations

import torch
from torch import Tensor


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
    """Take a step in, in place; see `lanewise.train.strategy.statistics.observe` for the arguments."""
    cameras, n = radii.shape[:2]
    if not cameras or not n:
        return
    unseen = (radii <= 0).any(-1)  # [C, N]
    if skip is not None:
        unseen = unseen | (skip != 0)
    x, y = v_means2d.unbind(-1)
    in_half_images = torch.stack([x * (width / 2 * cameras), y * (height / 2 * cameras)], -1)
    norm = torch.linalg.vector_norm(in_half_images, dim=-1)  # [C, N]
    grad2d += norm.masked_fill(unseen, 0).sum(0)  # not torch.where, which copies its scalar to the GPU and waits
    count += (~unseen).sum(0)
    if widest is not None:
        largest = radii.amax(-1).masked_fill(unseen, 0).amax(0)  # [N], pixels
        widest.copy_(torch.maximum(widest, largest.to(widest.dtype) / max(width, height)))
