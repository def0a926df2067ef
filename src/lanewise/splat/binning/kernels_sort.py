"""Lists of coarse tiles in the order of depths, without an order of the Gaussians: each list is sorted by itself, by
one program in chunks and, where it has several, by merging these.

A key [int64] holds the bits of a depth (`depth_bits`) above the 32 bits of a pair, as `emit` writes them: keys of one
list differ, and equal depths keep the order of the Gaussians.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.splat.binning.kernels import store_counts

_BEHIND_ALL = tl.constexpr(0x7FFFFFFF_FFFFFFF0)  # a key behind all others, which reaches no tile


@triton.jit(do_not_specialize=["all_tiles"])
def begin_lists(steps, totals, all_tiles, SLOTS: tl.constexpr, BLOCK: tl.constexpr):
    """Where the list of each coarse tile begins, behind a zero, in the place of the steps [2 + all_tiles] that `count`
    made: the cursors of `emit`. The length of the longest list to totals [2, 0]. One program."""
    length_before, begin, longest = 0, 0, 0
    steps += 1
    for start in range(0, all_tiles, BLOCK):
        i = start + tl.arange(0, BLOCK)
        step = tl.load(steps + i, i < all_tiles, 0)
        length = tl.where(i < all_tiles, length_before + tl.cumsum(step, 0), 0)
        tl.store(steps + i, begin + tl.cumsum(length, 0) - length, i < all_tiles)
        length_before += tl.sum(step, 0)
        begin += tl.sum(length, 0)
        longest = tl.maximum(longest, tl.max(length, 0))
    tl.store(totals + 2 * SLOTS, longest.to(tl.int64))


@triton.jit(do_not_specialize=["coarse_width", "coarse_tiles", "tile_width", "tile_height"])
def sort_lists(
    keys, coarse_bounds, sorted_pairs, counts, coarse_width, coarse_tiles, tile_width, tile_height,
    SMALL: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Every chunk of the lists in order: its pairs to sorted_pairs int32, and its keys, in place, where a list has
    several; counts [tiles + 1] of every tile's list behind a zero. A chunk of up to SMALL, the last one, is sorted in
    less."""
    pid = tl.program_id(0)
    begin, end = tl.load(coarse_bounds + pid), tl.load(coarse_bounds + pid + 1)
    up, down = 0, 0
    kept = tl.where(end - begin > CHUNK, end, begin)  # as far as keys are needed again
    for start in range(begin, end, CHUNK):
        if end - start > SMALL:
            more_up, more_down = _sort_chunk(keys, sorted_pairs, start, end, kept, CHUNK)
        else:
            more_up, more_down = _sort_chunk(keys, sorted_pairs, start, end, kept, SMALL)
        up, down = up + more_up, down + more_down
    n = up & 0xFFFF, up >> 16, down & 0xFFFF, down >> 16
    store_counts(counts, pid, *n, coarse_width, coarse_tiles, tile_width, tile_height)


@triton.jit
def _sort_chunk(keys, sorted_pairs, begin, end, kept, BLOCK: tl.constexpr):
    """Sort keys[begin : begin + BLOCK] as far as `end`, in place as far as `kept`; how many of their pairs reach each
    of the upper and each of the lower two tiles: the left in the lower 16 bits, the right above them."""
    i = begin + tl.arange(0, BLOCK)
    here = i < end
    key = tl.sort(tl.load(keys + i, here, _BEHIND_ALL))
    pair = key.to(tl.int32)
    tl.store(sorted_pairs + i, pair, here)
    tl.store(keys + i, key, i < kept)
    up, down = (pair & 1) + ((pair & 2) << 15), ((pair >> 2) & 1) + ((pair & 8) << 13)
    return tl.sum(up, 0), tl.sum(down, 0)


@triton.jit
def merge_lists(keys, coarse_bounds, sorted_pairs, CHUNK: tl.constexpr):
    """The pairs of lists of several chunks in order: one program a coarse tile and chunk."""
    begin, end = tl.load(coarse_bounds + tl.program_id(0)), tl.load(coarse_bounds + tl.program_id(0) + 1)
    own = begin + tl.program_id(1) * CHUNK
    if (end - begin > CHUNK) & (own < end):
        i = own + tl.arange(0, CHUNK)
        key = tl.load(keys + i, i < end, _BEHIND_ALL)
        place = begin + tl.zeros([CHUNK], tl.int32)
        for chunk in range(begin, end, CHUNK):
            place += _before(keys + chunk, tl.minimum(end - chunk, CHUNK), key, CHUNK)
        tl.store(sorted_pairs + place, key.to(tl.int32), i < end)


@triton.jit
def _before(keys, n, key, CHUNK: tl.constexpr):
    """How many of keys[0 : n], which are in order, n <= CHUNK, are less than each `key`: a binary search."""
    found = tl.zeros_like(key).to(tl.int32)
    step = CHUNK
    while step > 0:
        further = found + step
        less = tl.load(keys + further - 1, further <= n, _BEHIND_ALL) < key
        found = tl.where((further <= n) & less, further, found)
        step //= 2
    return found
