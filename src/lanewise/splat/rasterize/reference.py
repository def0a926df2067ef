"""Alpha compositing of projected Gaussians: the truth, in differentiable torch, any floating dtype.

Source: Kerbl et al., "3D Gaussian Splatting" (2023), with the constants of gsplat 1.5.3. A pair (pixel, Gaussian)
counts when its exponent is not negative and alpha = min(0.999, opacity exp(-sigma)) is at least 1/255; a pixel stops
before the pair that would bring its transmittance to 1e-4 or less.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
from torch import Tensor

ALPHA_THRESHOLD = 1.0 / 255.0
ALPHA_CAP = 0.999
TRANSMITTANCE_STOP = 1e-4

SKIPPED, COUNTED, CAPPED = 0, 1, 2  # the sides of a pair


class Image(NamedTuple):
    """colors [I, H, W, D] without background, transmittance [I, H, W] left behind the last Gaussian, last_ids [I, H,
    W] int32 the position in `flatten_ids` of the last pair that counted (-1 where none did)."""

    colors: Tensor
    transmittance: Tensor
    last_ids: Tensor


def rasterize(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
    width: int,
    height: int,
    tile_size: int,
    isect_offsets: Tensor,
    flatten_ids: Tensor,
    masks: Tensor | None = None,
    *,
    sides: Tensor | None = None,
) -> Image:
    """Composite front to back, tile by tile.

    Args:
        means2d: [M, 2] pixels, M = images * Gaussians.
        conics: [M, 3].
        colors: [M, D].
        opacities: [M].
        width: of the image in pixels.
        height: of the image in pixels.
        tile_size: edge of a tile in pixels.
        isect_offsets: [I, tile_height, tile_width] where each tile's list begins.
        flatten_ids: [n_isects] rows of the tensors above, by tile, front to back.
        masks: [I, tile_height, tile_width] bool; tiles that are False stay empty.
        sides: [n_isects, tile_size^2] int8, replays another implementation's decisions (`SKIPPED`, `COUNTED`,
            `CAPPED`) in place of this one's own.
    """
    images, tile_height, tile_width = isect_offsets.shape
    bounds = torch.cat([isect_offsets.flatten(), isect_offsets.new_full((1,), flatten_ids.numel())]).tolist()
    keep = [True] * (len(bounds) - 1) if masks is None else masks.flatten().tolist()
    index = torch.arange(tile_size**2, device=means2d.device)
    # Nothing composited over any pixels: every empty tile shows it, and it keeps empty pictures in the graph.
    empty = _composite(means2d[:0], conics[:0], colors[:0], opacities[:0], means2d.new_zeros(len(index), 2), None)
    tiles = []
    for tile, (start, end) in enumerate(itertools.pairwise(bounds)):
        if start == end or not keep[tile]:
            tiles.append(empty)
            continue
        row, column = tile // tile_width % tile_height, tile % tile_width
        pixels = torch.stack([column * tile_size + index % tile_size, row * tile_size + index // tile_size], -1) + 0.5
        g = flatten_ids[start:end].long()
        tile_sides = None if sides is None else sides[start:end]
        color, left, last = _composite(means2d[g], conics[g], colors[g], opacities[g], pixels.to(means2d), tile_sides)
        tiles.append((color, left, torch.where(last >= 0, last + start, -1)))

    def assemble(parts: list[Tensor]) -> Tensor:  # I * tiles x [tile_size^2, ...] -> [I, H, W, ...]
        grid = torch.stack(parts) if parts else means2d.new_zeros(0, tile_size**2)
        grid = grid.unflatten(1, (tile_size, tile_size)).unflatten(0, (images, tile_height, tile_width))
        return grid.transpose(2, 3).flatten(3, 4).flatten(1, 2)[:, :height, :width]

    color, left, last = (assemble([tile[k] for tile in tiles]) for k in range(3))
    return Image(color, left, last.int())


def _composite(
    means2d: Tensor, conics: Tensor, colors: Tensor, opacities: Tensor, pixels: Tensor, sides: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """One tile: G Gaussians front to back over P pixels; colours [P, D], transmittance [P], last position in the list
    [P] (-1: none)."""
    raw = raw_alpha(means2d, conics, opacities, pixels)  # [G, P]
    sides = own_sides(means2d, conics, opacities, pixels) if sides is None else sides
    alpha = torch.where(sides == CAPPED, ALPHA_CAP, torch.where(sides == COUNTED, raw, 0))
    after = (1 - alpha).cumprod(0)  # [G, P] transmittance behind each Gaussian
    before = torch.cat([torch.ones_like(after[:1]), after[:-1]])
    position = torch.arange(1, len(raw) + 1, device=raw.device)[:, None]
    last = (torch.where(sides != SKIPPED, position, 0).T.cummax(1).values[:, -1:].sum(1)) - 1
    return (alpha * before).T @ colors, (1 - alpha).prod(0), last


def raw_alpha(means2d: Tensor, conics: Tensor, opacities: Tensor, pixels: Tensor) -> Tensor:
    """opacity exp(-sigma), [G, P]."""
    return opacities[:, None] * torch.exp(-_sigma(means2d, conics, pixels))


def own_sides(means2d: Tensor, conics: Tensor, opacities: Tensor, pixels: Tensor) -> Tensor:
    """The decisions of this implementation, [G, P] int8."""
    with torch.no_grad():
        raw = raw_alpha(means2d, conics, opacities, pixels)
        counted = (_sigma(means2d, conics, pixels) >= 0) & (raw.clamp_max(ALPHA_CAP) >= ALPHA_THRESHOLD)
        after = torch.where(counted, 1 - raw.clamp_max(ALPHA_CAP), 1).cumprod(0)
        counted &= after > TRANSMITTANCE_STOP  # transmittance never rises: the first stop is the last word
        return counted.to(torch.int8) + (counted & (raw > ALPHA_CAP)).to(torch.int8)


def _sigma(means2d: Tensor, conics: Tensor, pixels: Tensor) -> Tensor:
    """(d^T conic d) / 2 with d = mean - pixel, [G, P]."""
    dx, dy = (means2d[:, None] - pixels[None]).unbind(-1)
    a, b, c = conics[:, None].unbind(-1)
    return 0.5 * (a * dx * dx + c * dy * dy) + b * dx * dy
