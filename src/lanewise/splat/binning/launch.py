"""Launching the binning's Triton kernels."""

# A kernel is launched as kernel[grid](...), which pyright does not follow.
# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false

from __future__ import annotations

import functools
import threading

import torch
from torch import Tensor

from lanewise.splat._launch import check_window, contiguous, launch, on_its_device
from lanewise.splat.binning import kernels
from lanewise.splat.binning.reference import TileLists
from lanewise.splat.rasterize.lists import RECORD

TILE_SIZE = 8  # on a GPU: the shortest lists, and squares of pixels that the rasterizer's blocks fill
BLOCK = 32  # Gaussians a program: its loops run as long as the largest of them needs
DIVIDE_BLOCK = 128
SLOTS = 64  # places that the lengths of the lists are summed in
ONE_WARP = {"num_warps": 1}
ALIKE = {**ONE_WARP, "enable_fp_fusion": False}  # count and emit are two programs that must round alike
PART = 2**20  # pairs from which on they are sorted in parts, one after another: what a sort needs besides is shared
LONGEST_PART = 2**22
MOST_PARTS = 64  # of 128 parts and more torch would make one sort
WIDE = 2**31 - 2**10  # list positions from here on are 64 bits wide


@on_its_device
@torch.no_grad()
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
    part: int = PART,
) -> TileLists:
    """The lists of means2d and radii [..., C, N, 2], depths [..., C, N], conics [..., C, N, 3] and opacities [..., C or
    1, N].

    Without `capacity` the host waits once for the GPU, to learn how long the lists are. With it (entries of the lists,
    and of the coarse lists) nothing waits, and `lengths` tells later whether all fitted. Lists of `wide` entries or
    more have 64-bit bounds, and from `part` pairs of a Gaussian and a coarse tile on these are sorted in parts.
    """
    (C, N), M = depths.shape[-2:], depths.numel()
    images = depths.shape[:-1].numel()
    gaussians = contiguous(radii, means2d, conics, opacities)
    check_window(*gaussians)
    tile_height, tile_width = -(-height // tile_size), -(-width // tile_size)
    coarse_width, coarse_tiles = -(-tile_width // 2), -(-tile_width // 2) * -(-tile_height // 2)
    tiles = images * tile_height * tile_width
    shared = opacities.shape[-2] != C
    records = means2d.new_empty(M, RECORD)
    check_window(records)
    lengths = means2d.new_zeros(2, SLOTS, dtype=torch.int64)
    tiles_per_gauss = torch.empty_like(depths, dtype=torch.int32, memory_format=torch.contiguous_format)
    grid = (*depths.shape[:-1], tile_height, tile_width)
    if M == 0:
        bounds, empty = lengths.new_zeros(tiles + 1, dtype=torch.int32), lengths.new_empty(0, dtype=torch.int32)
        return TileLists(tiles_per_gauss, empty, bounds[:-1].view(grid), tile_size, bounds, lengths, records)
    coarse_per_gauss = torch.empty_like(tiles_per_gauss, dtype=torch.int64)
    programs = (images * -(-N // BLOCK),)
    launch(
        kernels.count, programs, *gaussians, records, tiles_per_gauss, coarse_per_gauss, lengths,
        N, C, tile_width, tile_height, TILE=tile_size, SHARED=shared, BLOCK=BLOCK, SLOTS=SLOTS, options=ALIKE,
    )  # fmt: skip
    sizes = capacity or _Later(lengths)
    order = depths.view(images, N).sort(dim=-1, stable=True).indices
    ends = coarse_per_gauss.view(images, N).gather(1, order).view(M).cumsum(0)
    n_isects, n_coarse = sizes.sums() if isinstance(sizes, _Later) else sizes
    parts, length = _parts(n_coarse, part)
    key_type = torch.int16 if images * coarse_tiles < 2**15 else torch.int32
    keys = torch.empty(parts, length, dtype=key_type, device=depths.device)
    if capacity or parts * length > n_coarse:  # what nothing is written to is behind all tiles
        keys.view(-1)[0 if capacity else n_coarse :].fill_(images * coarse_tiles)
    pairs = torch.empty(n_coarse, dtype=torch.int32 if M < 2**27 else torch.int64, device=depths.device)
    launch(
        kernels.emit, programs, order, ends, records, keys, pairs,
        N, tile_width, tile_height, coarse_width, coarse_tiles, n_coarse, TILE=tile_size, BLOCK=BLOCK, options=ALIKE,
    )  # fmt: skip
    del order, ends, coarse_per_gauss
    keys, by_tile = keys.sort(dim=-1, stable=True)
    numbers = _numbers(parts, images * coarse_tiles + 1, keys.dtype, keys.device)
    coarse_bounds = torch.searchsorted(keys, numbers, out_int32=True)
    del keys
    counts = torch.empty(tiles + 1, dtype=torch.int32, device=depths.device)
    sorted_pairs = torch.empty_like(pairs)
    shape = (parts, length, images * coarse_tiles, coarse_width, coarse_tiles, tile_width, tile_height)
    launch(
        kernels.divide_count, (images * coarse_tiles,),
        by_tile, pairs, coarse_bounds, sorted_pairs, counts, *shape, BLOCK=DIVIDE_BLOCK, options=ONE_WARP,
    )  # fmt: skip
    del by_tile, pairs
    longest = 4 * n_coarse if capacity else n_isects  # what the sums may come to
    bounds = counts.cumsum(0, dtype=torch.int32 if longest < wide else torch.int64)
    if capacity:
        bounds.clamp_(max=n_isects)
    ids = torch.empty(n_isects, dtype=torch.int32, device=depths.device)
    if capacity:
        ids.fill_(-1)
    launch(
        kernels.divide, (images * coarse_tiles,),
        sorted_pairs, coarse_bounds, bounds, ids, *shape, n_isects, BLOCK=DIVIDE_BLOCK, options=ONE_WARP,
    )  # fmt: skip
    return TileLists(tiles_per_gauss, ids, bounds[:-1].view(grid), tile_size, bounds, lengths, records)


def _parts(n: int, part: int) -> tuple[int, int]:
    """In how many parts n pairs are sorted, and how long these are (the last may be shorter)."""
    parts = 1 if n < part else min(max(2, -(-n // LONGEST_PART)), MOST_PARTS)
    return parts, -(-n // parts)


def _numbers(rows: int, count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """0 .. count - 1 in every row, kept for all pictures of a size; but not while a graph is captured: a graph must
    own what it reads, and what it makes holds nothing before it is replayed."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return torch.arange(count, dtype=dtype, device=device).repeat(rows, 1)
    return _kept_numbers(rows, count, dtype, device)


@functools.lru_cache(maxsize=16)
def _kept_numbers(rows: int, count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.arange(count, dtype=dtype, device=device).repeat(rows, 1)


class _Mailbox(threading.local):
    """Pinned memory and an event, which each thread uses again and again."""

    def __init__(self) -> None:
        with torch.inference_mode(False):  # made there, it could not be written to elsewhere
            self.numbers = torch.empty(2, SLOTS, dtype=torch.int64, pin_memory=True)
        self.event = torch.cuda.Event()


@functools.cache
def _mailbox(device: torch.device) -> _Mailbox:
    return _Mailbox()


class _Later:
    """Numbers [2, SLOTS] on their way from the GPU: the host waits for them, and not for what is queued behind them."""

    def __init__(self, numbers: Tensor) -> None:
        self.numbers, self.event = numbers, None
        if numbers.is_cuda:
            mailbox = _mailbox(numbers.device)
            self.numbers, self.event = mailbox.numbers, mailbox.event
            self.numbers.copy_(numbers, non_blocking=True)
            self.event.record()

    def sums(self) -> tuple[int, int]:
        if self.event is not None:
            self.event.synchronize()
        first, second = map(sum, self.numbers.tolist())
        return first, second
