"""Which Gaussians touch which tiles, front to back: the truth, in torch.

A pair (tile, Gaussian) is listed when the ellipse {alpha >= 1/255} reaches a pixel centre's row of the tile and the
columns it spans there. The ellipse is enlarged by what fp32 shading may round (`threshold`), so that no pair that
shading would count is ever missing and the picture does not depend on the tile size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# Kernels shade with sigma = (a u^2 + s dy^2) / 2, u = dx + (b / a) dy, s = det / a, whose rounding in fp32 is at most
# about 2^-24 t sqrt(a c / det); 64 times that also covers exp and the product with the opacity.
ROUNDING = 64 * 2.0**-24
# Below this share of a c the determinant says nothing, and nothing bounds where shading may count the Gaussian: it is
# listed in every tile. Only conics that fp32 has rounded to indefinite ones are this thin.
DEGENERATE = 1e-9
EVERYWHERE = 1e9  # pixels, past every image


class TileLists(NamedTuple):
    """Front-to-back lists of all tiles of all images.

    tiles_per_gauss [I, N] int32; flatten_ids [n_isects] int32 = image * N + Gaussian, by tile and then by depth;
    isect_offsets [I, tile_height, tile_width] int32 (int64 where lists are longer), where each tile's list begins;
    tile_size in pixels; from Triton also bounds [tiles + 1], the offsets with the end of the last list, and lengths
    [3 or more, n] int64, of which the sums of the first rows are how many entries the lists need, and the coarse lists
    that they are made from, and how long the longest of these is (0: not known); and records [M, 6], the Gaussians'
    shapes as its kernels keep them.
    """

    tiles_per_gauss: Tensor
    flatten_ids: Tensor
    isect_offsets: Tensor
    tile_size: int
    bounds: Tensor | None = None
    lengths: Tensor | None = None
    records: Tensor | None = None

    def isect_ids(self, depths: Tensor) -> Tensor:
        """gsplat's 64-bit keys [n_isects]: the image above the tile's bits, the tile above 32 bits of fp32 depth.

        Args:
            depths: [I, N], those that the lists were made with.
        """
        offsets, tiles = self.isect_offsets.flatten().long(), self.isect_offsets.shape[-2:].numel()
        ids = self.flatten_ids if self.bounds is None else self.flatten_ids[: int(self.bounds[-1])]
        ends = torch.cat([offsets[1:], offsets.new_tensor([ids.numel()])])[: len(offsets)]
        tile = torch.arange(len(offsets), device=offsets.device).repeat_interleave(ends - offsets)  # of all images
        depth = depths.detach().flatten()[ids.long()].to(torch.float32)
        bits = depth.contiguous().view(torch.int32).to(torch.int64) & 0xFFFFFFFF
        return (tile // max(tiles, 1) << (32 + tiles.bit_length())) | (tile % max(tiles, 1) << 32) | bits


def tile_lists(
    means2d: Tensor,
    radii: Tensor,
    depths: Tensor,
    conics: Tensor,
    opacities: Tensor,
    tile_size: int,
    tile_width: int,
    tile_height: int,
) -> TileLists:
    """Exact tile lists.

    Args:
        means2d: [I, N, 2] pixels.
        radii: [I, N, 2] int32; a Gaussian is visible where both are positive.
        depths: [I, N]; equal depths keep the order of the Gaussians.
        conics: [I, N, 3] upper triangle of the inverse covariance.
        opacities: [I, N] as they are shaded (with the antialiasing compensation).
        tile_size: edge of a tile in pixels.
        tile_width: tiles in a row.
        tile_height: rows of tiles.
    """
    images, N = depths.shape
    order = (torch.arange(images, device=depths.device)[:, None] * N + depths.argsort(stable=True, dim=-1)).flatten()
    order = order[(radii > 0).all(-1).flatten()[order]]  # [M] visible, front to back within each image
    first, last = _columns(means2d, conics, opacities, order, tile_size, tile_width, tile_height)  # [M, rows]

    width = (last - first + 1).clamp_min(0)  # [M, rows] tiles in each row
    counts = width.flatten()
    span = torch.arange(counts.numel(), device=counts.device).repeat_interleave(counts)  # [n_isects]
    within = torch.arange(span.numel(), device=span.device) - (counts.cumsum(0) - counts)[span]
    flat = order[span // tile_height]  # [n_isects]
    tile = (span % tile_height) * tile_width + first.flatten()[span] + within
    by_tile = (flat // max(N, 1) * tile_width * tile_height + tile).argsort(stable=True, dim=0)
    flat, tile = flat[by_tile], tile[by_tile]

    tiles_per_gauss = torch.zeros(images * N, dtype=torch.int64, device=depths.device).index_put((order,), width.sum(1))
    key = flat // max(N, 1) * tile_width * tile_height + tile
    tiles = torch.arange(images * tile_height * tile_width, device=key.device)
    return TileLists(
        tiles_per_gauss.reshape(images, N).to(torch.int32),
        flat.to(torch.int32),
        torch.searchsorted(key, tiles).reshape(images, tile_height, tile_width).to(torch.int32),
        tile_size,
    )


def threshold(conics: Tensor, opacities: Tensor) -> tuple[Tensor, Tensor]:
    """Exponent at which alpha falls below 1/255, ln(255 opacity), plus the rounding margin; and whether the conic is
    degenerate. [...]"""
    a, b, c = conics.double().unbind(-1)
    det = a * c - b * b
    t = (255 * opacities.double()).clamp_min(1e-30).log().clamp_min(0)
    degenerate = ~(det > DEGENERATE * a * c)
    return t + ROUNDING * (1 + t * (a * c / torch.where(degenerate, 1, det)).sqrt()), degenerate


def _columns(
    means2d: Tensor,
    conics: Tensor,
    opacities: Tensor,
    order: Tensor,
    tile_size: int,
    tile_width: int,
    tile_height: int,
) -> tuple[Tensor, Tensor]:
    """First and last column of tiles in every row of tiles, for the Gaussians `order` [M]; first > last where none.
    [M, tile_height] int64."""
    t, degenerate = threshold(conics.flatten(0, 1)[order], opacities.flatten()[order])  # [M]
    t, degenerate = t[:, None], degenerate[:, None]
    a, b, c = (x[:, None] for x in conics.flatten(0, 1)[order].double().unbind(-1))
    mx, my = (x[:, None] for x in means2d.flatten(0, 1)[order].double().unbind(-1))
    det = torch.where(degenerate, 1, a * c - b * b)
    half_x = (2 * t * c / det).sqrt()  # of the ellipse's box
    half_y = torch.where(degenerate, EVERYWHERE, (2 * t * a / det).sqrt())
    # The slab of this row's pixel centres, relative to the mean, cut to the ellipse: [M, rows].
    top = torch.arange(tile_height, device=a.device) * tile_size + 0.5 - my
    low, high = torch.maximum(top, -half_y), torch.minimum(top + tile_size - 1, half_y)
    # On the slab the ellipse reaches furthest right at the y of its rightmost point, or at the end nearest to it;
    # left by symmetry.
    y_right = -b / c * half_x
    right = _edge(a, b, det, t, y_right.clamp(min=low, max=torch.maximum(low, high)))
    left = -_edge(a, b, det, t, -((-y_right).clamp(min=low, max=torch.maximum(low, high))))
    right, left = torch.where(degenerate, EVERYWHERE, right), torch.where(degenerate, -EVERYWHERE, left)
    first = ((mx + left - (tile_size - 0.5)) / tile_size).ceil().clamp(0, tile_width)
    last = ((mx + right - 0.5) / tile_size).floor().clamp(-1, tile_width - 1)
    last = torch.where(low <= high, last, -1)
    return first.to(torch.int64), torch.where(last < 0, -1, last).to(torch.int64)


def _edge(a: Tensor, b: Tensor, det: Tensor, t: Tensor, y: Tensor) -> Tensor:
    """Largest x with a x^2 + 2 b x y + c y^2 <= 2 t at height y."""
    return (-b * y + (2 * t * a - det * y * y).clamp_min(0).sqrt()) / a
