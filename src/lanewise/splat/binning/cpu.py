"""Tile lists on the CPU: count, prefix sum, emit; the same lists for any number of threads."""

from __future__ import annotations

import math

import numba
import numpy as np

from lanewise._numba import njit
from lanewise.splat.binning.reference import DEGENERATE, EVERYWHERE, ROUNDING

CHUNKS = 32  # pieces of the depth order that are counted and emitted in parallel; the lists do not depend on it


@njit()
def ellipse(conic, opacity):
    """(a, b, c, det, t): the conic in float64 and the enlarged exponent threshold; det = 0 where the conic is
    degenerate."""
    a, b, c = np.float64(conic[0]), np.float64(conic[1]), np.float64(conic[2])
    det = a * c - b * b
    t = max(math.log(max(255.0 * opacity, 1e-30)), 0.0)
    if not det > DEGENERATE * a * c:
        return a, b, c, min(det, 0.0), t + ROUNDING
    return a, b, c, det, t + ROUNDING * (1.0 + t * math.sqrt(a * c / det))


@njit()
def half_height(a, det, t):
    """Half the height of the ellipse's box, in pixels."""
    return math.sqrt(2.0 * t * a / det) if det > 0.0 else EVERYWHERE


@njit()
def tile_rows(mean, half_y, tile_size, tile_height):
    """First and last row of tiles that the ellipse reaches."""
    first = max(math.ceil((mean[1] - half_y - (tile_size - 0.5)) / tile_size), 0.0)
    last = min(math.floor((mean[1] + half_y - 0.5) / tile_size), tile_height - 1.0)
    return int(min(first, float(tile_height))), int(max(last, -1.0))


@njit()
def tile_columns(row, mean, a, b, c, det, t, half_y, tile_size, tile_width):
    """First and last column of tiles that the ellipse reaches in a row of tiles."""
    if det > 0.0:
        top = row * tile_size + 0.5 - mean[1]
        low = max(top, -half_y)
        high = max(low, min(top + tile_size - 1.0, half_y))
        y_right = -b / c * math.sqrt(2.0 * t * c / det)
        y = min(max(y_right, low), high)
        right = (-b * y + math.sqrt(max(2.0 * t * a - det * y * y, 0.0))) / a
        y = -min(max(-y_right, low), high)
        left = -(-b * y + math.sqrt(max(2.0 * t * a - det * y * y, 0.0))) / a
    else:
        right, left = EVERYWHERE, -EVERYWHERE
    first = max(math.ceil((mean[0] + left - (tile_size - 0.5)) / tile_size), 0.0)
    last = min(math.floor((mean[0] + right - 0.5) / tile_size), tile_width - 1.0)
    return int(min(first, float(tile_width))), int(max(last, -1.0))


@njit(parallel=True)
def count_tiles(order, n, means2d, conics, opacities, tile_size, tile_width, tile_height, counts, tiles_per_gauss):
    """counts [CHUNKS, I * tiles]: list entries by piece of `order` [M] and tile; tiles_per_gauss [I * N]."""
    tiles = tile_width * tile_height
    for chunk in numba.prange(counts.shape[0]):
        for m in range(chunk * len(order) // counts.shape[0], (chunk + 1) * len(order) // counts.shape[0]):
            g = order[m]
            a, b, c, det, t = ellipse(conics[g], opacities[g])
            half_y = half_height(a, det, t)
            first_row, last_row = tile_rows(means2d[g], half_y, tile_size, tile_height)
            base = g // n * tiles
            total = 0
            for row in range(first_row, last_row + 1):
                first, last = tile_columns(row, means2d[g], a, b, c, det, t, half_y, tile_size, tile_width)
                for column in range(first, last + 1):
                    counts[chunk, base + row * tile_width + column] += 1
                total += max(last - first + 1, 0)
            tiles_per_gauss[g] = total


@njit(parallel=True)
def emit_tiles(order, n, means2d, conics, opacities, tile_size, tile_width, tile_height, cursor, flatten_ids):
    """Write flatten_ids [n_isects]; cursor [CHUNKS, I * tiles] holds where each piece's entries of a tile begin."""
    tiles = tile_width * tile_height
    for chunk in numba.prange(cursor.shape[0]):
        for m in range(chunk * len(order) // cursor.shape[0], (chunk + 1) * len(order) // cursor.shape[0]):
            g = order[m]
            a, b, c, det, t = ellipse(conics[g], opacities[g])
            half_y = half_height(a, det, t)
            first_row, last_row = tile_rows(means2d[g], half_y, tile_size, tile_height)
            base = g // n * tiles
            for row in range(first_row, last_row + 1):
                first, last = tile_columns(row, means2d[g], a, b, c, det, t, half_y, tile_size, tile_width)
                for tile in range(base + row * tile_width + first, base + row * tile_width + last + 1):
                    flatten_ids[cursor[chunk, tile]] = g
                    cursor[chunk, tile] += 1


def tile_lists(means2d, radii, depths, conics, opacities, tile_size, tile_width, tile_height):
    """The tile lists of `reference.tile_lists`, from and to numpy arrays [I, N, ...] of fp32."""
    images, n = depths.shape
    tiles = images * tile_width * tile_height
    order = np.argsort(depths, axis=1, kind="stable") + np.arange(images)[:, None] * n
    order = order.ravel()
    order = order[(radii.reshape(-1, 2) > 0).all(1)[order]]
    gaussians = means2d.reshape(-1, 2), conics.reshape(-1, 3), opacities.reshape(-1)
    sizes = tile_size, tile_width, tile_height

    counts = np.zeros((CHUNKS, tiles), np.int64)
    tiles_per_gauss = np.zeros(images * n, np.int32)
    count_tiles(order, n, *gaussians, *sizes, counts, tiles_per_gauss)
    per_tile = counts.sum(0)
    offsets = np.cumsum(per_tile) - per_tile
    flatten_ids = np.empty(int(per_tile.sum()), np.int32)
    emit_tiles(order, n, *gaussians, *sizes, offsets + np.cumsum(counts, axis=0) - counts, flatten_ids)
    offsets = offsets.astype(np.int32).reshape(images, tile_height, tile_width)
    return tiles_per_gauss.reshape(images, n), flatten_ids, offsets
