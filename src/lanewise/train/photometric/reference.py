"""The loss of 3DGS between rendered and true pictures: L1 and SSIM (Wang et al. 2004). Any dtype, any device."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

WINDOW = 11  # pixels across the Gaussian window
SIGMA = 1.5  # its standard deviation, pixels
C1, C2 = 0.01**2, 0.03**2  # Wang et al.'s constants for values in 0..1


def window(dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu") -> Tensor:
    """The one-dimensional Gaussian window, [WINDOW], sum 1."""
    offset = torch.arange(WINDOW, dtype=torch.float64) - WINDOW // 2
    weights = torch.exp(-(offset**2) / (2 * SIGMA**2))
    return (weights / weights.sum()).to(device=device, dtype=dtype)


def ssim_map(render: Tensor, target: Tensor) -> Tensor:
    """Structural similarity at every place where the window lies inside the picture.

    Args:
        render, target: pictures, [C, H, W, D] with values in 0..1 and H, W at least WINDOW.

    Returns:
        [C, H - 10, W - 10, D], at most 1.
    """
    x, y = render.permute(0, 3, 1, 2), target.permute(0, 3, 1, 2)  # [C, D, H, W]
    maps = torch.cat([x, y, x * x, y * y, x * y], dim=1)  # [C, 5 D, H, W]
    weights = window(x.dtype, x.device).expand(maps.shape[1], 1, 1, WINDOW)
    rows = F.conv2d(maps, weights, groups=maps.shape[1])
    means = F.conv2d(rows, weights.transpose(2, 3), groups=maps.shape[1])
    mx, my, exx, eyy, exy = means.chunk(5, dim=1)
    vx, vy, vxy = exx - mx * mx, eyy - my * my, exy - mx * my
    similarity = ((2 * mx * my + C1) * (2 * vxy + C2)) / ((mx * mx + my * my + C1) * (vx + vy + C2))
    return similarity.permute(0, 2, 3, 1)


def photometric_loss(render: Tensor, target: Tensor, mask: Tensor | None, ssim_weight: float) -> Tensor:
    """(1 - w) L1 + w (1 - SSIM), a scalar; see `lanewise.train.photometric.photometric_loss` for the arguments."""
    if mask is None:
        l1 = (render - target).abs().mean()
    else:
        render, target = render * mask[..., None], target * mask[..., None]
        l1 = (render - target).abs().sum() / (mask.sum().clamp_min(1) * render.shape[-1])
    if ssim_weight == 0:
        return l1
    similarity = ssim_map(render, target)
    if mask is None:
        dissimilarity = 1 - similarity.mean()
    else:
        border = WINDOW // 2
        centres = mask[:, border:-border, border:-border, None].expand_as(similarity)  # where a window's centre counts
        dissimilarity = ((1 - similarity) * centres).sum() / centres.sum().clamp_min(1)
    return (1 - ssim_weight) * l1 + ssim_weight * dissimilarity
