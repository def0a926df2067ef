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
    visible = (radii > 0).all(-1)  # [C, N]
    if skip is not None:
        visible = visible & (skip == 0)
    x, y = v_means2d.unbind(-1)
    in_half_images = torch.stack([x * (width / 2 * cameras), y * (height / 2 * cameras)], -1)
    norm = torch.linalg.vector_norm(in_half_images, dim=-1)  # [C, N]
    grad2d += torch.where(visible, norm, 0.0).sum(0)
    count += visible.sum(0)
    if widest is not None:
        largest = torch.where(visible, radii.amax(-1), 0).amax(0)  # [N], pixels
        widest.copy_(torch.maximum(widest, largest.to(widest.dtype) / max(width, height)))
