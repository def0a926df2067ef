"""Launching the binning's Triton kernels."""

# A kernel is launched as kernel[grid](...), which pyright does not follow.
# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false

from __future__ import annotations

import functools
import threading
from typing import NamedTuple

import torch
from torch import Tensor

from lanewise.splat._launch import check_window, contiguous, launch, on_its_device
from lanewise.splat.binning import kernels, kernels_sort
from lanewise.splat.binning.reference import TileLists
from lanewise.splat.rasterize.lists import RECORD

TILE_SIZE = 8  # on a GPU: the shortest lists, and squares of pixels that the rasterizer's blocks fill
BLOCK = 32  # Gaussians a program: its loops run as long as the largest of them needs
DIVIDE_BLOCK = 128
SLOTS = 64  # places that the lengths of the lists are summed in
BEGIN_BLOCK = 2048  # coarse tiles at a time, by the one program that tells where their lists begin
SMALL, CHUNK = 128, 512  # pairs that one program sorts at once; the list of a coarse tile may have several chunks
LONGEST = 8192  # lists of coarse tiles are sorted one by one where none has more pairs (below 2^15); 0: never
MOST_TILES = 2**16  # nor where there are more coarse tiles, or more Gaussians of all images: then a pass is no longer
MOST_GAUSSIANS = 2**21  # bound by the host, and torch's sorts of many pairs take less time on the GPU
ONE_WARP = {"num_warps": 1}
SIXTEEN_WARPS = {"num_warps": 16}
ALIKE = {**ONE_WARP, "enable_fp_fusion": False}  # count and emit are two programs that must round alike
PART = 2**20  # pairs from which on torch sorts them in parts, one after another: what a sort needs besides is shared
LONGEST_PART = 2**22
MOST_PARTS = 64  # of 128 parts and more torch would make one sort
WIDE = 2**31 - 2**10  # list positions from here on are 64 bits wide
SHORT_PAIRS = 2**27  # Gaussians of all images from which on a pair takes 64 bits


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
    more have 64-bit bounds.

    Coarse lists of up to `LONGEST` pairs are sorted one by one, in few launches. Longer ones, and those of a given
    capacity, are sorted by torch all together, from `part` pairs on in parts.
    """
    (C, N), M = depths.shape[-2:], depths.numel()
    images = depths.shape[:-1].numel()
    depths, *gaussians = contiguous(depths, radii, means2d, conics, opacities)
    check_window(*gaussians)
    tile_height, tile_width = -(-height // tile_size), -(-width // tile_size)
    coarse_width, coarse_tiles = -(-tile_width // 2), -(-tile_width // 2) * -(-tile_height // 2)
    tiles, all_tiles = images * tile_height * tile_width, images * coarse_tiles
    records = means2d.new_empty(M, RECORD)
    check_window(records)
    one_by_one = not capacity and LONGEST > 0 and all_tiles <= MOST_TILES and M <= MOST_GAUSSIANS
    rows = -(-(all_tiles + 2) // (2 * SLOTS)) if one_by_one else 0  # of `steps`, which are zeroed with the totals
    totals = means2d.new_zeros(3 + rows, SLOTS, dtype=torch.int64)
    steps = totals[3:].view(torch.int32) if one_by_one else None
    tiles_per_gauss = torch.empty_like(depths, dtype=torch.int32)
    grid = (*depths.shape[:-1], tile_height, tile_width)
    if M == 0:
        bounds, empty = totals.new_zeros(tiles + 1, dtype=torch.int32), totals.new_empty(0, dtype=torch.int32)
        return TileLists(tiles_per_gauss, empty, bounds[:-1].view(grid), tile_size, bounds, totals, records)
    coarse_per_gauss = torch.empty_like(tiles_per_gauss, dtype=torch.int64)
    launch(
        kernels.count, (images * -(-N // BLOCK),),
        *gaussians, records, tiles_per_gauss, coarse_per_gauss, totals, steps, N, C, tile_width, tile_height,
        TILE=tile_size, SHARED=opacities.shape[-2] != C, BLOCK=BLOCK, SLOTS=SLOTS, options=ALIKE,
    )  # fmt: skip
    if steps is not None:
        begin_lists(steps, totals, all_tiles)
    sizes = (*capacity, 0) if capacity else _Later(totals)
    shape = (coarse_width, coarse_tiles, tile_width, tile_height)
    pairs = _Pairs(records, depths, images, tile_size, tiles, shape)
    ranks = None if one_by_one else pairs.ranks(coarse_per_gauss)  # which the GPU does while the host waits
    n_isects, n_coarse, longest = sizes.sums() if isinstance(sizes, _Later) else sizes
    if steps is not None and longest <= LONGEST and n_isects < wide:
        coarse = pairs.sorted_one_by_one(tiles_per_gauss, steps, n_coarse, longest)
    else:
        ranks = ranks or pairs.ranks(coarse_per_gauss)
        del coarse_per_gauss
        coarse = pairs.sorted_together(ranks, n_coarse, part, fits=capacity is None)
    most = 4 * n_coarse if capacity else n_isects  # what the sums may come to
    bounds = coarse.counts.cumsum(0, dtype=torch.int32 if most < wide else torch.int64)
    if capacity:
        bounds.clamp_(max=n_isects)
    ids = means2d.new_empty(n_isects, dtype=torch.int32)
    if capacity:
        ids.fill_(-1)
    launch(
        kernels.divide, (all_tiles,),
        coarse.pairs, coarse.bounds, bounds, ids, coarse.parts, coarse.length, all_tiles, *shape, n_isects,
        BLOCK=DIVIDE_BLOCK, options=ONE_WARP,
    )  # fmt: skip
    return TileLists(tiles_per_gauss, ids, bounds[:-1].view(grid), tile_size, bounds, totals, records)


def begin_lists(steps: Tensor, totals: Tensor, all_tiles: int) -> None:
    """Launch the kernel: steps [2 + all_tiles] int32 to beginnings, the longest list to totals [3 or more, SLOTS]."""
    launch(
        kernels_sort.begin_lists, (1,), steps, totals, all_tiles,
        SLOTS=SLOTS, BLOCK=BEGIN_BLOCK, options=SIXTEEN_WARPS,
    )  # fmt: skip


class _Coarse(NamedTuple):
    """Lists of the coarse tiles: pairs [parts * length] in their order; bounds [parts, coarse tiles + 1] int32, or
    more, of the lists in each part; counts [tiles + 1] int32, the lengths of the tiles' lists behind a zero."""

    pairs: Tensor
    bounds: Tensor
    counts: Tensor
    parts: int
    length: int


class _Pairs(NamedTuple):
    """Pairs of a Gaussian and a coarse tile that are to be made, of records [M, 6] and depths [..., C, N]; tiles of all
    images; shape = coarse tiles in a row and of an image, tiles in a row, and rows of tiles."""

    records: Tensor
    depths: Tensor
    images: int
    tile_size: int
    tiles: int
    shape: tuple[int, int, int, int]

    def emit(self, *arguments: Tensor | None, capacity: int) -> None:
        """Launch `emit` with order, ends, depths, tiles_per_gauss, cursors, keys and pairs."""
        N = self.depths.shape[-1]
        launch(
            kernels.emit, (self.images * -(-N // BLOCK),), self.records, *arguments, N, *self.shape, capacity,
            TILE=self.tile_size, BLOCK=BLOCK, options=ALIKE,
        )  # fmt: skip

    def sorted_one_by_one(self, tiles_per_gauss: Tensor, steps: Tensor, n: int, longest: int) -> _Coarse:
        """The lists of n pairs in any order, each sorted by itself; steps as of `begin_lists`. When all pairs are in
        their places, each list's cursor is at its end, where the next one begins: steps are the bounds."""
        all_tiles = self.images * self.shape[1]
        keys = self.records.new_empty(n, dtype=torch.int64)
        self.emit(None, None, self.depths, tiles_per_gauss, steps, keys, None, capacity=n)
        pairs = self.records.new_empty(n, dtype=torch.int32)
        counts = self.records.new_empty(self.tiles + 1, dtype=torch.int32)
        launch(
            kernels_sort.sort_lists, (all_tiles,), keys, steps, pairs, counts, *self.shape,
            SMALL=SMALL, CHUNK=CHUNK, options=ONE_WARP,
        )  # fmt: skip
        if longest > CHUNK:
            launch(kernels_sort.merge_lists, (all_tiles, -(-longest // CHUNK)), keys, steps, pairs, CHUNK=CHUNK)
        return _Coarse(pairs, steps, counts, 1, n)

    def ranks(self, coarse_per_gauss: Tensor) -> list[Tensor]:
        """The order of depths [..., C, N], and the sums of coarse_per_gauss in it, themselves included [M]."""
        order = self.depths.sort(dim=-1, stable=True).indices
        return [order, coarse_per_gauss.gather(-1, order).flatten().cumsum(0)]

    def sorted_together(self, ranks: list[Tensor], n: int, part: int, fits: bool) -> _Coarse:
        """The lists of n pairs, emitted in the order of depths and sorted by coarse tile, from `part` on in parts;
        fits: whether there are as many. Empties `ranks`."""
        all_tiles = self.images * self.shape[1]
        parts, length = _parts(n, part)
        key_type = torch.int16 if all_tiles < 2**15 else torch.int32
        keys = self.records.new_empty(parts, length, dtype=key_type)
        if not fits or parts * length > n:  # what nothing is written to is behind all tiles
            keys.view(-1)[n if fits else 0 :].fill_(all_tiles)
        pair_type = torch.int32 if self.depths.numel() < SHORT_PAIRS else torch.int64
        pairs = self.records.new_empty(n, dtype=pair_type)
        self.emit(*ranks, None, None, None, keys, pairs, capacity=n)
        ranks.clear()  # the sort needs the memory
        keys, by_tile = keys.sort(dim=-1, stable=True)
        numbers = _numbers(parts, all_tiles + 1, keys.dtype, keys.device)
        coarse_bounds = torch.searchsorted(keys, numbers, out_int32=True)
        del keys
        counts = self.records.new_empty(self.tiles + 1, dtype=torch.int32)
        sorted_pairs = torch.empty_like(pairs)
        launch(
            kernels.divide_count, (all_tiles,),
            by_tile, pairs, coarse_bounds, sorted_pairs, counts, parts, length, all_tiles, *self.shape,
            BLOCK=DIVIDE_BLOCK, options=ONE_WARP,
        )  # fmt: skip
        return _Coarse(sorted_pairs, coarse_bounds, counts, parts, length)


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
            self.numbers = torch.empty(3, SLOTS, dtype=torch.int64, pin_memory=True)
        self.event = torch.cuda.Event()


@functools.cache
def _mailbox(device: torch.device) -> _Mailbox:
    return _Mailbox()


class _Later:
    """Totals [3 or more, SLOTS] on their way from the GPU: the host waits for them, and not for what is queued behind
    them."""

    def __init__(self, totals: Tensor) -> None:
        self.numbers, self.event = totals[:3], None
        if totals.is_cuda:
            mailbox = _mailbox(totals.device)
            mailbox.numbers.copy_(self.numbers, non_blocking=True)
            self.numbers, self.event = mailbox.numbers, mailbox.event
            self.event.record()

    def sums(self) -> tuple[int, int, int]:
        """Entries of the lists and of the coarse lists, and those of the longest coarse list (0: not known)."""
        if self.event is not None:
            self.event.synchronize()
        n_isects, n_coarse, longest = map(sum, self.numbers.tolist())
        return n_isects, n_coarse, longest
