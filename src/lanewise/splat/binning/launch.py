"""Launching the binning's Triton kernels."""

# A kernel is launched as kernel[grid](...), which pyright does not follow.
# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false

from __future__ import annotations

import torch
from torch import Tensor

from lanewise.errors import UnsupportedError
from lanewise.splat._launch import check_window, contiguous, on_its_device
from lanewise.splat.binning import kernels
from lanewise.splat.binning.reference import TileLists

TILE_SIZE = 8  # on a GPU: the shortest lists, and squares of pixels that the rasterizer's blocks fill
BLOCK = 32  # Gaussians a program: its loops run as long as the largest of them needs
DIVIDE_BLOCK = 128
ALIKE = {"enable_fp_fusion": False}  # count and emit are two programs that must round alike
LONGEST_SORT = 2**31 - 1  # what torch sorts
WIDE = 2**31 - 2**10  # list positions from here on are 64 bits wide


@on_its_device
def tile_lists(
    means2d: Tensor,
    radii: Tensor,
    depths: Tensor,
    conics: Tensor,
    opacities: Tensor,
    tile_size: int,
    width: int,
    height: int,
    capacity: tuple[int, int] | None = None,
    wide: int = WIDE,
) -> TileLists:
    """The lists of means2d and radii [B, C, N, 2], depths [B, C, N], conics [B, C, N, 3] and opacities [B, C or 1, N].

    Without `capacity` the host waits once for the GPU, to learn how long the lists are. With it (entries of the lists,
    and of the coarse lists) nothing waits, and `lengths` tells later whether all fitted. Lists of `wide` entries or
    more have 64-bit bounds.
    """
    B, C, N = depths.shape
    images, M = B * C, depths.numel()
    gaussians = contiguous(radii, means2d, conics, opacities)
    check_window(*gaussians)
    tile_height, tile_width = -(-height // tile_size), -(-width // tile_size)
    coarse_width, coarse_tiles = -(-tile_width // 2), -(-tile_width // 2) * -(-tile_height // 2)
    tiles = images * tile_height * tile_width
    shared = opacities.shape[1] != C
    sizes = {"TILE": tile_size, "SHARED": shared, "BLOCK": BLOCK, "num_warps": 1, **ALIKE}
    lengths = means2d.new_zeros(2, dtype=torch.int64)
    tiles_per_gauss = torch.empty_like(depths, dtype=torch.int32, memory_format=torch.contiguous_format)
    if M == 0:
        bounds, empty = lengths.new_zeros(tiles + 1, dtype=torch.int32), lengths.new_empty(0, dtype=torch.int32)
        return _lists(tiles_per_gauss, empty, bounds, (*depths.shape[:2], tile_height, tile_width), tile_size, lengths)
    coarse_per_gauss = torch.empty_like(tiles_per_gauss)
    programs = (-(-M // BLOCK),)
    kernels.count[programs](
        *gaussians, tiles_per_gauss, coarse_per_gauss, lengths, M, N, C, tile_width, tile_height, **sizes
    )
    later = None if capacity else _Later(lengths)
    order = depths.view(images, N).sort(dim=-1, stable=True).indices
    if images > 1:
        order += torch.arange(images, device=depths.device)[:, None] * N
    order = order.view(M)
    ends = coarse_per_gauss.view(M)[order].cumsum(0, dtype=torch.int64)
    n_isects, n_coarse = later.values() if later else capacity
    if n_coarse > LONGEST_SORT:
        raise UnsupportedError(
            f"{n_coarse} pairs of a Gaussian and a tile of {2 * tile_size} pixels",
            why="one sort takes up to 2^31 - 1",
            fix="render fewer cameras at a time, or larger tiles (tile_size=32)",
        )
    keys_fit = images * coarse_tiles < 2**15
    keys = torch.empty(n_coarse, dtype=torch.int16 if keys_fit else torch.int32, device=depths.device)
    if capacity:
        keys.fill_(images * coarse_tiles)  # behind all tiles
    pairs = torch.empty(n_coarse, dtype=torch.int32 if M < 2**27 else torch.int64, device=depths.device)
    kernels.emit[programs](
        order, ends, *gaussians, keys, pairs,
        M, N, C, tile_width, tile_height, coarse_width, coarse_tiles, n_coarse, **sizes,
    )  # fmt: skip
    del order, ends, coarse_per_gauss
    keys, by_tile = keys.sort(stable=True)
    numbers = torch.arange(images * coarse_tiles + 1, dtype=keys.dtype, device=keys.device)
    coarse_bounds = torch.searchsorted(keys, numbers, out_int32=True)
    del keys
    counts = torch.zeros(tiles + 1, dtype=torch.int32, device=depths.device)  # the first one stays 0
    sorted_pairs, grid = torch.empty_like(pairs), (coarse_width, coarse_tiles, tile_width, tile_height)
    kernels.divide_count[(images * coarse_tiles,)](
        by_tile, pairs, coarse_bounds, sorted_pairs, counts[1:], *grid, BLOCK=DIVIDE_BLOCK, num_warps=1
    )
    del by_tile, pairs
    longest = n_isects if later else 4 * n_coarse  # what the sums may come to
    bounds = counts.cumsum(0, dtype=torch.int32 if longest < wide else torch.int64)
    if capacity:
        bounds.clamp_(max=n_isects)
    ids = torch.empty(n_isects, dtype=torch.int32, device=depths.device)
    kernels.divide[(images * coarse_tiles,)](
        sorted_pairs, coarse_bounds, bounds, ids, *grid, n_isects, BLOCK=DIVIDE_BLOCK, num_warps=1
    )
    return _lists(tiles_per_gauss, ids, bounds, (*depths.shape[:2], tile_height, tile_width), tile_size, lengths)


def _lists(
    tiles_per_gauss: Tensor, ids: Tensor, bounds: Tensor, grid: tuple[int, ...], tile_size: int, lengths: Tensor
) -> TileLists:
    return TileLists(tiles_per_gauss, ids, bounds[:-1].view(grid), tile_size, bounds, lengths)


class _Later:
    """Numbers on their way from the GPU: the host waits for them, and not for what is queued behind them."""

    def __init__(self, numbers: Tensor) -> None:
        self.event = None
        if numbers.is_cuda:
            self.numbers = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            self.numbers.copy_(numbers, non_blocking=True)
            self.event = torch.cuda.Event()
            self.event.record()
        else:
            self.numbers = numbers

    def values(self) -> list[int]:
        if self.event is not None:
            self.event.synchronize()
        return self.numbers.tolist()
