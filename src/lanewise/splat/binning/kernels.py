"""Tile lists in Triton: count the tiles of every Gaussian, emit them in depth order, find where each tile's list
begins.

The intervals are those of `reference.py`, in fp32 and a little wider: they must never miss a pair that shading
counts. All arrays are flat over the images: means2d [M, 2], conics [M, 3], opacities [M] with M = I * N.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.splat._ellipse import enlarged_ellipse
from lanewise.splat.binning.reference import EVERYWHERE

_EVERYWHERE = tl.constexpr(EVERYWHERE)
_SLACK = tl.constexpr(2e-3)  # pixels: what fp32 rounds in coordinates of some thousand


@triton.jit
def _load_ellipse(radii, means2d, conics, opacities, g, inside):
    """Whether Gaussians g [n] are drawn, and their mean, conic, determinant (0: degenerate), enlarged threshold and
    half size."""
    seen = inside & (tl.load(radii + g * 2, inside, 0) > 0) & (tl.load(radii + g * 2 + 1, inside, 0) > 0)
    mx, my = tl.load(means2d + g * 2, seen, 0.0), tl.load(means2d + g * 2 + 1, seen, 0.0)
    a, b, c = (
        tl.load(conics + g * 3, seen, 1.0),
        tl.load(conics + g * 3 + 1, seen, 0.0),
        tl.load(conics + g * 3 + 2, seen, 1.0),
    )
    det, t, half_x, half_y = enlarged_ellipse(a, b, c, tl.load(opacities + g, seen, 1.0))
    return seen, mx, my, a, b, c, det, t, half_x, half_y + _SLACK


@triton.jit
def _rows(my, half_y, seen, tile_height, TILE: tl.constexpr):
    """First row of tiles that the ellipse reaches, and how many."""
    first = tl.maximum(tl.ceil((my - half_y - (TILE - 0.5)) / TILE), 0.0)
    last = tl.minimum(tl.floor((my + half_y - 0.5) / TILE), tile_height - 1.0)
    count = tl.where(seen, tl.maximum(last - first + 1.0, 0.0), 0.0)
    return tl.minimum(first, tile_height * 1.0).to(tl.int32), count.to(tl.int32)


@triton.jit
def _columns(row, mx, my, a, b, c, det, t, half_x, half_y, tile_width, TILE: tl.constexpr):
    """First column of tiles that the ellipse reaches in a row of tiles, and how many."""
    top = row.to(tl.float32) * TILE + 0.5 - my
    low = tl.maximum(top, -half_y)
    high = tl.maximum(low, tl.minimum(top + (TILE - 1.0), half_y))
    y_right = -b / c * half_x
    y = tl.minimum(tl.maximum(y_right, low), high)
    right = (-b * y + tl.sqrt(tl.maximum(2.0 * t * a - det * y * y, 0.0))) / a
    y = tl.minimum(tl.maximum(-y_right, low), high)
    left = (-b * y - tl.sqrt(tl.maximum(2.0 * t * a - det * y * y, 0.0))) / a
    right, left = tl.where(det > 0.0, right, _EVERYWHERE), tl.where(det > 0.0, left, -_EVERYWHERE)
    first = tl.maximum(tl.ceil((mx + left - (TILE - 0.5 + _SLACK)) / TILE), 0.0)
    last = tl.minimum(tl.floor((mx + right - (0.5 - _SLACK)) / TILE), tile_width - 1.0)
    count = tl.maximum(last - first + 1.0, 0.0)
    return tl.minimum(first, tile_width * 1.0).to(tl.int32), count.to(tl.int32)


@triton.jit
def count(
    radii,
    means2d,
    conics,
    opacities,
    tiles_per_gauss,
    M,
    tile_width,
    tile_height,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """tiles_per_gauss [M] int32."""
    g = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = g < M
    seen, mx, my, a, b, c, det, t, half_x, half_y = _load_ellipse(radii, means2d, conics, opacities, g, inside)
    first_row, n_rows = _rows(my, half_y, seen, tile_height, TILE)
    total = tl.zeros([BLOCK], tl.int32)
    for j in range(tl.max(n_rows, 0)):
        _, n_columns = _columns(first_row + j, mx, my, a, b, c, det, t, half_x, half_y, tile_width, TILE)
        total += tl.where(j < n_rows, n_columns, 0)
    tl.store(tiles_per_gauss + g, total, inside)


@triton.jit
def emit(
    order, ends, radii, means2d, conics, opacities, keys, ids,
    M, N, tile_width, tile_height, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """keys (tile of all images) and ids (Gaussian of all images) [n_isects], for the Gaussians `order` [M] in that
    order; ends [M] int64 are the sums of their counts, themselves included."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < M
    position = tl.load(ends + i - 1, inside & (i > 0), 0)
    end = tl.load(ends + i, inside, 0)
    inside &= end > position
    g = tl.load(order + i, inside, 0).to(tl.int64)
    seen, mx, my, a, b, c, det, t, half_x, half_y = _load_ellipse(radii, means2d, conics, opacities, g, inside)
    first_row, n_rows = _rows(my, half_y, seen, tile_height, TILE)
    image_tile = (g // N).to(tl.int32) * tile_width * tile_height
    for j in range(tl.max(n_rows, 0)):
        first, n_columns = _columns(first_row + j, mx, my, a, b, c, det, t, half_x, half_y, tile_width, TILE)
        n_columns = tl.where(j < n_rows, n_columns, 0)
        key = image_tile + (first_row + j) * tile_width + first
        for q in range(tl.max(n_columns, 0)):
            here = (q < n_columns) & (position + q < end)
            tl.store(keys + position + q, (key + q).to(keys.dtype.element_ty), here)
            tl.store(ids + position + q, g.to(tl.int32), here)
        position += n_columns


@triton.jit
def edges(keys, offsets, n_isects, BLOCK: tl.constexpr):
    """offsets [tiles + 1], filled with n_isects before: where each tile's run of the sorted keys [n_isects] begins."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n_isects
    key = tl.load(keys + i, inside, 0).to(tl.int32)
    before = tl.where(i > 0, tl.load(keys + i - 1, inside & (i > 0), 0).to(tl.int32), -1)
    steps = tl.where(inside, key - before, 0)
    for j in range(tl.max(steps, 0)):
        tl.store(offsets + before + 1 + j, i.to(tl.int32), j < steps)
