"""Launching the binning's Triton kernels."""

# A kernel is launched as kernel[grid](...), which pyright does not follow.
# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false

from __future__ import annotations

import torch
from torch import Tensor

from lanewise.errors import UnsupportedError
from lanewise.splat._launch import check_window, contiguous, on_its_device
from lanewise.splat.binning import kernels

BLOCK = 32  # Gaussians a program: its loops run as long as the largest of them needs
EDGES_BLOCK = 1024
LARGEST_LIST = 2**31 - 2**10  # positions are 32 bits wide, and the rasterizer steps a few past the end of a list
ALIKE = {"enable_fp_fusion": False}  # count and emit are two programs that must round alike


# Tiles of 8 pixels have the shorter lists, tiles of 16 make fewer pairs of a tile and a Gaussian. On an H200 the
# larger ones are faster from about this many times fewer pairs on: 2.8 in a scene of large Gaussians, 2.3 and 2.0 in
# scenes where the small ones are.
SMALL, LARGE, FEWER_PAIRS = 8, 16, 2.5


@on_its_device
def tile_lists(
    means2d: Tensor,
    radii: Tensor,
    depths: Tensor,
    conics: Tensor,
    opacities: Tensor,
    tile_size: int | None,
    width: int,
    height: int,
) -> tuple[Tensor, Tensor, Tensor, int]:
    """tiles_per_gauss [I, N], flatten_ids [n_isects], isect_offsets [I, tile_height, tile_width], all int32, and the
    edge of a tile, which is chosen when `tile_size` is None. One host synchronisation, behind which the depth sort
    already runs."""
    images, N = depths.shape
    M = images * N
    gaussians = contiguous(radii, means2d, conics, opacities)
    check_window(*gaussians)
    sizes = (SMALL, LARGE) if tile_size is None else (tile_size,)
    if M == 0:
        offsets = depths.new_zeros((images, *_grid(sizes[0], width, height)), dtype=torch.int32)
        empty = depths.new_empty(0, dtype=torch.int32)
        return depths.new_empty((images, N), dtype=torch.int32), empty, offsets, sizes[0]
    counts = [_count(gaussians, depths, size, width, height) for size in sizes]
    totals = _Later(torch.stack([x.sum(dtype=torch.int64) for x in counts]))
    order = depths.sort(dim=-1, stable=True).indices
    if images > 1:
        order = order + torch.arange(images, device=depths.device)[:, None] * N
    order = order.flatten()
    pairs = totals.values()
    best = int(len(sizes) == 2 and pairs[0] > FEWER_PAIRS * pairs[1])
    size, n_isects, tiles_per_gauss = sizes[best], pairs[best], counts[best]
    if n_isects > LARGEST_LIST:
        raise UnsupportedError(
            f"{n_isects} (tile, Gaussian) pairs",
            why="positions in the lists are numbered with 32 bits",
            fix="render fewer cameras at a time, or larger tiles (tile_size=32)",
        )
    tile_height, tile_width = _grid(size, width, height)
    tiles = images * tile_width * tile_height
    keys = depths.new_empty(n_isects, dtype=torch.int16 if tiles <= 2**15 else torch.int32)
    ids = depths.new_empty(n_isects, dtype=torch.int32)
    bounds = depths.new_full((tiles + 1,), n_isects, dtype=torch.int32)
    if n_isects:
        ends = tiles_per_gauss.flatten()[order].cumsum(0, dtype=torch.int64)
        kernels.emit[(-(-M // BLOCK),)](
            order, ends, *gaussians, keys, ids, M, N, tile_width, tile_height,
            TILE=size, BLOCK=BLOCK, num_warps=1, **ALIKE,
        )  # fmt: skip
        keys, by_tile = keys.sort(stable=True)
        ids = ids[by_tile]
        kernels.edges[(-(-n_isects // EDGES_BLOCK),)](keys, bounds, n_isects, BLOCK=EDGES_BLOCK)
    return tiles_per_gauss, ids, bounds[:-1].reshape(images, tile_height, tile_width), size


def _grid(size: int, width: int, height: int) -> tuple[int, int]:
    """Rows and columns of tiles."""
    return -(-height // size), -(-width // size)


def _count(gaussians: tuple[Tensor, ...], depths: Tensor, size: int, width: int, height: int) -> Tensor:
    """Tiles of this size that every Gaussian reaches, [I, N] int32."""
    tiles_per_gauss = torch.empty_like(depths, dtype=torch.int32, memory_format=torch.contiguous_format)
    tile_height, tile_width = _grid(size, width, height)
    M = depths.numel()
    kernels.count[(-(-M // BLOCK),)](
        *gaussians, tiles_per_gauss, M, tile_width, tile_height, TILE=size, BLOCK=BLOCK, num_warps=1, **ALIKE
    )  # fmt: skip
    return tiles_per_gauss


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
