"""Launching the binning's Triton kernels."""

# A kernel is launched as kernel[grid](...), which pyright does not follow.
# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# kernel[grid](...))

from __future__ import annotations

import torch
from torch import Tensor

from lanewise.errors import UnsupportedError
from lanewise.splat._launch import check_window, contiguous
from lanewise.splat.binning import kernels

BLOCK = 32  # Gaussians a program: its loops run as long as the largest of them needs
EDGES_BLOCK = 1024
LARGEST_LIST = 2**31 - 1


def tile_lists(
    means2d: Tensor,
    radii: Tensor,
    depths: Tensor,
    conics: Tensor,
    opacities: Tensor,
    tile_size: int,
    tile_width: int,
    tile_height: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """tiles_per_gauss [I, N], flatten_ids [n_isects], isect_offsets [I, tile_height, tile_width], all int32. One host
    synchronisation."""
    images, N = depths.shape
    M, tiles = images * N, images * tile_width * tile_height
    means2d, radii, conics, opacities = contiguous(means2d, radii, conics, opacities)
    check_window(means2d, radii, conics)
    tiles_per_gauss = depths.new_empty((images, N), dtype=torch.int32)
    offsets = (images, tile_height, tile_width)
    if M == 0:
        return tiles_per_gauss, depths.new_empty(0, dtype=torch.int32), depths.new_zeros(offsets, dtype=torch.int32)
    gaussians, sizes = (radii, means2d, conics, opacities), (tile_width, tile_height)
    grid = (-(-M // BLOCK),)
    kernels.count[grid](*gaussians, tiles_per_gauss, M, *sizes, TILE=tile_size, BLOCK=BLOCK, num_warps=1)
    order = depths.sort(dim=-1, stable=True).indices
    if images > 1:
        order = order + torch.arange(images, device=depths.device)[:, None] * N
    order = order.flatten()
    ends = tiles_per_gauss.flatten()[order].cumsum(0, dtype=torch.int64)
    n_isects = int(ends[-1])
    if n_isects > LARGEST_LIST:
        raise UnsupportedError(
            f"{n_isects} (tile, Gaussian) pairs",
            why="positions in the lists are numbered with 32 bits",
            fix="render fewer cameras at a time, or larger tiles (tile_size=32)",
        )
    keys = depths.new_empty(n_isects, dtype=torch.int16 if tiles <= 2**15 else torch.int32)
    ids = depths.new_empty(n_isects, dtype=torch.int32)
    bounds = depths.new_full((tiles + 1,), n_isects, dtype=torch.int32)
    if n_isects:
        kernels.emit[grid](
            order, ends, *gaussians, keys, ids, M, N, *sizes, TILE=tile_size, BLOCK=BLOCK, num_warps=1
        )  # fmt: skip
        keys, by_tile = keys.sort(stable=True)
        ids = ids[by_tile]
        kernels.edges[(-(-n_isects // EDGES_BLOCK),)](keys, bounds, n_isects, BLOCK=EDGES_BLOCK)
    return tiles_per_gauss, ids, bounds[:-1].reshape(offsets)
