"""Tile lists in Triton, in two levels: pairs of a Gaussian and a coarse tile, twice as large, are counted and emitted,
and every coarse tile's list is brought into depth order (`kernels_sort.py`, or by the order in which they are emitted
and a stable sort by tile); each pair carries which of its four tiles the Gaussian reaches, and the list of a coarse
tile is then divided into those of its tiles, in the same order.

The intervals are those of `reference.py`, in fp32 and a little wider: they must never miss a pair that shading
counts. All arrays are flat over the images: means2d [M, 2], conics [M, 3] with M = I * N; opacities [M], or shared by
the images of a batch; records [M, 6] as of `_ellipse`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.splat._ellipse import ellipse, gaussians_of, record_of, store_record
from lanewise.splat.binning.reference import EVERYWHERE
from lanewise.splat.rasterize.lists import RECORD

_EVERYWHERE = tl.constexpr(EVERYWHERE)
_RECORD = tl.constexpr(RECORD)
_SLACK = tl.constexpr(2e-3)  # pixels: what fp32 rounds in coordinates of some thousand


@triton.jit
def _rows(my, half_y, seen, tile_height, TILE: tl.constexpr):
    """First row of tiles that the ellipse reaches, and how many."""
    first = tl.maximum(tl.ceil((my - half_y - (TILE - 0.5)) * (1.0 / TILE)), 0.0)
    last = tl.minimum(tl.floor((my + half_y - 0.5) * (1.0 / TILE)), tile_height - 1.0)
    count = tl.where(seen, tl.maximum(last - first + 1.0, 0.0), 0.0)
    return tl.minimum(first, tile_height * 1.0).to(tl.int32), count.to(tl.int32)


@triton.jit
def _columns(row, mx, my, half_y, y_right, slope, square, fall, tile_width, TILE: tl.constexpr):
    """First column of tiles that the ellipse reaches in a row of tiles, and how many."""
    top = row.to(tl.float32) * TILE + 0.5 - my
    low = tl.maximum(top, -half_y)
    high = tl.maximum(low, tl.minimum(top + (TILE - 1.0), half_y))
    y = tl.minimum(tl.maximum(y_right, low), high)
    right = slope * y + tl.sqrt(tl.maximum(square - fall * y * y, 0.0))
    y = tl.minimum(tl.maximum(-y_right, low), high)
    left = slope * y - tl.sqrt(tl.maximum(square - fall * y * y, 0.0))
    right, left = tl.where(fall > 0.0, right, _EVERYWHERE), tl.where(fall > 0.0, left, -_EVERYWHERE)
    first = tl.maximum(tl.ceil((mx + left - (TILE - 0.5 + _SLACK)) * (1.0 / TILE)), 0.0)
    last = tl.minimum(tl.floor((mx + right - (0.5 - _SLACK)) * (1.0 / TILE)), tile_width - 1.0)
    count = tl.maximum(last - first + 1.0, 0.0)
    return tl.minimum(first, tile_width * 1.0).to(tl.int32), count.to(tl.int32)


@triton.jit
def _coarse_row(
    row, first_row, n_rows, mx, my, half_y, y_right, slope, square, fall, tile_width, TILE: tl.constexpr
):  # fmt: skip
    """In a row of coarse tiles, first column of tiles that the ellipse reaches and how many, in its upper and in its
    lower row of tiles; first coarse column and how many."""
    up, down = row * 2, row * 2 + 1
    first_up, n_up = _columns(up, mx, my, half_y, y_right, slope, square, fall, tile_width, TILE)
    first_down, n_down = _columns(down, mx, my, half_y, y_right, slope, square, fall, tile_width, TILE)
    n_up = tl.where((up >= first_row) & (up < first_row + n_rows), n_up, 0)
    n_down = tl.where((down >= first_row) & (down < first_row + n_rows), n_down, 0)
    first = tl.minimum(tl.where(n_up > 0, first_up, tile_width), tl.where(n_down > 0, first_down, tile_width))
    last = tl.maximum(tl.where(n_up > 0, first_up + n_up, 0), tl.where(n_down > 0, first_down + n_down, 0)) - 1
    coarse = first // 2
    return first_up, n_up, first_down, n_down, coarse, tl.where(last >= first, last // 2 - coarse + 1, 0)


@triton.jit
def _coarse_rows(first_row, n_rows):
    """First row of coarse tiles, and how many."""
    first = first_row // 2
    return first, tl.where(n_rows > 0, (first_row + n_rows - 1) // 2 - first + 1, 0)


@triton.jit(do_not_specialize=["N", "C", "tile_width", "tile_height"])
def count(
    radii, means2d, conics, opacities, records, tiles_per_gauss, coarse_per_gauss, totals, steps,
    N, C, tile_width, tile_height,
    TILE: tl.constexpr, SHARED: tl.constexpr, BLOCK: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """The records; tiles_per_gauss [M] int32 and coarse_per_gauss [M] int64, whose sums are added to totals [2, SLOTS]
    int64, in many places so that programs do not queue up for one.

    And steps [2 + coarse tiles of all images] int32, or None: by how much the list of each coarse tile, its number plus
    one, is longer than that of the one before it. A row of an ellipse's coarse tiles is one step up and one down."""
    image, n, inside = gaussians_of(tl.program_id(0), N, BLOCK)
    g, row = image * N + n, (image // C if SHARED else image) * N + n
    mx, my, p, r, q, o = record_of(means2d, conics, opacities, g, row, inside)
    store_record(records, g, mx, my, p, r, q, o, inside)
    seen = inside & (tl.load(radii + g * 2, inside, 0) > 0) & (tl.load(radii + g * 2 + 1, inside, 0) > 0)
    half_y, y_right, slope, square, fall = ellipse(p, r, q, o)
    half_y += _SLACK
    first_row, n_rows = _rows(my, half_y, seen, tile_height, TILE)
    first, rows = _coarse_rows(first_row, n_rows)
    fine, coarse = tl.zeros([BLOCK], tl.int32), tl.zeros([BLOCK], tl.int32)
    coarse_width = tl.cdiv(tile_width, 2)
    row_before = image.to(tl.int32) * tl.cdiv(tile_height, 2) + first
    for j in range(tl.max(rows, 0)):
        _, up, _, down, column, columns = _coarse_row(
            first + j, first_row, n_rows, mx, my, half_y, y_right, slope, square, fall, tile_width, TILE
        )
        columns = tl.where(j < rows, columns, 0)
        fine += tl.where(j < rows, up + down, 0)
        coarse += columns
        if steps is not None:
            step = steps + 1 + (row_before + j) * coarse_width + column
            tl.atomic_add(step, 1, columns > 0, sem="relaxed")
            tl.atomic_add(step + columns, -1, columns > 0, sem="relaxed")
    tl.store(tiles_per_gauss + g, fine, inside)
    tl.store(coarse_per_gauss + g, coarse.to(tl.int64), inside)
    totals += tl.program_id(0) % SLOTS
    tl.atomic_add(totals, tl.sum(fine.to(tl.int64), 0), sem="relaxed")
    tl.atomic_add(totals + SLOTS, tl.sum(coarse.to(tl.int64), 0), sem="relaxed")


@triton.jit(do_not_specialize=["N", "coarse_width", "coarse_tiles", "tile_width", "tile_height", "capacity"])
def emit(
    records, order, ends, depths, tiles_per_gauss, cursors, keys, pairs,
    N, coarse_width, coarse_tiles, tile_width, tile_height, capacity,
    TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Pairs of a Gaussian and a coarse tile of all images: Gaussian of all images * 16 + which of the four tiles it
    reaches; in one of two ways.

    In the order of depths [I, N] that is given: keys (coarse tile) and pairs [capacity]; ends [I * N] int64 are the
    sums of the Gaussians' counts in that order, themselves included. What does not fit is left out.

    In any order, into the lists of the coarse tiles: keys [capacity] int64, with the bits of the depth (`depth_bits`)
    above the pair's 32. Cursors [1 + coarse tiles] int32 hold behind a zero where each list begins, and in the end
    where it ends: they are the bounds of the lists then."""
    image, n, inside = gaussians_of(tl.program_id(0), N, BLOCK)
    g = image * N + n
    if cursors is None:
        position = tl.load(ends + g - 1, inside & (g > 0), 0)
        inside &= tl.load(ends + g, inside, 0) > position
        g = image * N + tl.load(order + g, inside, 0)
    else:
        inside &= tl.load(tiles_per_gauss + g, inside, 0) > 0
        depth = depth_bits(tl.load(depths + g, inside, 0.0)).to(tl.int64) << 32
    record = records + g * _RECORD
    mx, my = tl.load(record, inside, 0.0), tl.load(record + 1, inside, 0.0)
    half_y, y_right, slope, square, fall = ellipse(
        tl.load(record + 2, inside, -1.0), tl.load(record + 3, inside, 0.0), tl.load(record + 4, inside, -1.0),
        tl.load(record + 5, inside, 1.0),
    )  # fmt: skip
    half_y += _SLACK
    first_row, n_rows = _rows(my, half_y, inside, tile_height, TILE)
    first, rows = _coarse_rows(first_row, n_rows)
    image_tile = image.to(tl.int32) * coarse_tiles
    for j in range(tl.max(rows, 0)):
        first_up, n_up, first_down, n_down, coarse, columns = _coarse_row(
            first + j, first_row, n_rows, mx, my, half_y, y_right, slope, square, fall, tile_width, TILE
        )
        columns = tl.where(j < rows, columns, 0)
        tile = image_tile + (first + j) * coarse_width + coarse
        for q in range(tl.max(columns, 0)):
            left = (coarse + q) * 2
            reached = (
                _between(left, first_up, n_up)
                + 2 * _between(left + 1, first_up, n_up)
                + 4 * _between(left, first_down, n_down)
                + 8 * _between(left + 1, first_down, n_down)
            )
            here = q < columns
            if cursors is None:
                here &= position + q < capacity
                tl.store(keys + position + q, (tile + q).to(keys.dtype.element_ty), here)
                tl.store(pairs + position + q, (g * 16 + reached).to(pairs.dtype.element_ty), here)
            else:
                place = tl.atomic_add(cursors + 1 + tile + q, 1, here, sem="relaxed")
                tl.store(keys + place, depth | (g * 16 + reached), here)
        if cursors is None:
            position += columns


@triton.jit
def depth_bits(depth):
    """int32 in the order of torch's sort: the two zeros are equal, and NaN, all alike, are behind everything."""
    bits = depth.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    bits = tl.where(bits < 0, -size, size)  # of numbers below zero the size falls
    return tl.where(size > 0x7F800000, 0x7FFFFFFF, bits)


@triton.jit
def _between(x, first, n):
    """1 where first <= x < first + n, else 0."""
    return ((x >= first) & (x < first + n)).to(tl.int32)


@triton.jit
def _coarse_tile(pid, coarse_width, coarse_tiles, tile_width, tile_height):
    """Of coarse tile `pid` of all images: its first tile of all images, and whether there is a second column and
    row."""
    image, row, column = pid // coarse_tiles, pid % coarse_tiles // coarse_width * 2, pid % coarse_width * 2
    tile = (image * tile_height + row) * tile_width + column
    return tile, column + 1 < tile_width, row + 1 < tile_height


@triton.jit(
    do_not_specialize=["parts", "length", "all_tiles", "coarse_width", "coarse_tiles", "tile_width", "tile_height"]
)
def divide_count(
    by_tile, pairs, coarse_bounds, sorted_pairs, counts,
    parts, length, all_tiles, coarse_width, coarse_tiles, tile_width, tile_height,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """counts [tiles + 1] of every tile's list behind a zero, and the pairs in the order of the coarse lists: in each
    of the parts [parts, length], sorted_pairs[i] = pairs[by_tile[i]]; coarse_bounds [parts, all_tiles + 1]."""
    pid = tl.program_id(0)
    n0 = tl.zeros([BLOCK], tl.int32)
    n1, n2, n3 = n0, n0, n0
    for _ in range(parts):
        begin, end = tl.load(coarse_bounds + pid), tl.load(coarse_bounds + pid + 1)
        for start in range(begin, end, BLOCK):
            i = start + tl.arange(0, BLOCK)
            here = i < end
            pair = tl.load(pairs + tl.load(by_tile + i, here, 0), here, 0)
            tl.store(sorted_pairs + i, pair, here)
            reached = pair.to(tl.int32)
            n0 += reached & 1
            n1 += (reached >> 1) & 1
            n2 += (reached >> 2) & 1
            n3 += (reached >> 3) & 1
        by_tile += length
        pairs += length
        sorted_pairs += length
        coarse_bounds += all_tiles + 1
    shape = coarse_width, coarse_tiles, tile_width, tile_height
    store_counts(counts, pid, tl.sum(n0, 0), tl.sum(n1, 0), tl.sum(n2, 0), tl.sum(n3, 0), *shape)


@triton.jit
def store_counts(counts, pid, n0, n1, n2, n3, coarse_width, coarse_tiles, tile_width, tile_height):
    """The lengths of the four lists that coarse tile `pid` is divided into, to counts [tiles + 1], behind a zero."""
    tile, second_column, second_row = _coarse_tile(pid, coarse_width, coarse_tiles, tile_width, tile_height)
    tl.store(counts, 0, pid == 0)
    counts += 1
    tl.store(counts + tile, n0)
    tl.store(counts + tile + 1, n1, second_column)
    tl.store(counts + tile + tile_width, n2, second_row)
    tl.store(counts + tile + tile_width + 1, n3, second_row & second_column)


@triton.jit(
    do_not_specialize=[
        "parts", "length", "all_tiles", "coarse_width", "coarse_tiles", "tile_width", "tile_height", "capacity"
    ]
)  # fmt: skip
def divide(
    sorted_pairs, coarse_bounds, bounds, ids,
    parts, length, all_tiles, coarse_width, coarse_tiles, tile_width, tile_height, capacity,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """ids [capacity]: every tile's list, from bounds [tiles + 1] on, a part behind the other. What does not fit is
    left out."""
    pid = tl.program_id(0)
    tile, second_column, second_row = _coarse_tile(pid, coarse_width, coarse_tiles, tile_width, tile_height)
    at0 = tl.load(bounds + tile).to(tl.int64)
    at1 = tl.load(bounds + tile + 1, second_column, 0).to(tl.int64)
    at2 = tl.load(bounds + tile + tile_width, second_row, 0).to(tl.int64)
    at3 = tl.load(bounds + tile + tile_width + 1, second_row & second_column, 0).to(tl.int64)
    for _ in range(parts):
        begin, end = tl.load(coarse_bounds + pid), tl.load(coarse_bounds + pid + 1)
        for start in range(begin, end, BLOCK):
            i = start + tl.arange(0, BLOCK)
            pair = tl.load(sorted_pairs + i, i < end, 0)
            g, reached = (pair >> 4).to(tl.int32), pair.to(tl.int32)
            at0 += _append(ids, at0, g, reached & 1, capacity)
            at1 += _append(ids, at1, g, (reached >> 1) & 1, capacity)
            at2 += _append(ids, at2, g, (reached >> 2) & 1, capacity)
            at3 += _append(ids, at3, g, (reached >> 3) & 1, capacity)
        sorted_pairs += length
        coarse_bounds += all_tiles + 1


@triton.jit
def _append(ids, at, g, take, capacity):
    """Write those of g [n] with take [n] = 1 from ids[at] on; how many they are."""
    position = at + tl.cumsum(take, 0) - take
    tl.store(ids + position, g, (take == 1) & (position < capacity))
    return tl.sum(take, 0)
