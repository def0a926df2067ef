"""The rasterizer in Triton: one program composites a square of pixels [Y, X], Gaussian by Gaussian from the front. The
way back is in `kernels_backward.py`.

Nothing in it stands for how the hardware executes a block. What shading needs of a Gaussian's shape is one record [6],
as of `_ellipse`: binning makes the records, and `pack` where there are none.

A tile's list is addressed from its own beginning, so that positions in it are 32 bits wide however long all lists are.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.splat._ellipse import gaussians_of, record_of, store_record
from lanewise.splat.rasterize.lists import RECORD
from lanewise.splat.rasterize.reference import ALPHA_CAP, ALPHA_THRESHOLD, TRANSMITTANCE_STOP

RECORD_SIZE = tl.constexpr(RECORD)
CAP, _THRESHOLD, _STOP = tl.constexpr(ALPHA_CAP), tl.constexpr(ALPHA_THRESHOLD), tl.constexpr(TRANSMITTANCE_STOP)


@triton.jit(do_not_specialize=["N", "C"])
def pack(means2d, conics, opacities, records, N, C, SHARED: tl.constexpr, BLOCK: tl.constexpr):
    """records [I * N, 6] of means2d [I * N, 2], conics [I * N, 3], opacities [I * N], or SHARED by the C images of a
    batch."""
    image, n, mask = gaussians_of(tl.program_id(0), N, BLOCK)
    g = image * N + n
    mx, my, p, r, q, o = record_of(means2d, conics, opacities, g, image // C * N + n if SHARED else g, mask)
    store_record(records, g, mx, my, p, r, q, o, mask)


@triton.jit
def square(pid, bounds, width, height, tile_width, tiles, TILE: tl.constexpr, SIDE: tl.constexpr):
    """Of program `pid`: its tile of all images, image, where its list begins and how long it is, pixel centres x [1, X]
    and y [Y, 1], which pixels exist, and their index over all images."""
    ACROSS: tl.constexpr = (TILE + SIDE - 1) // SIDE
    tile, block = pid // (ACROSS * ACROSS), pid % (ACROSS * ACROSS)
    image, in_image = tile // tiles, tile % tiles
    lx = (block % ACROSS * SIDE + tl.arange(0, SIDE))[None, :]
    ly = (block // ACROSS * SIDE + tl.arange(0, SIDE))[:, None]
    x, y = in_image % tile_width * TILE + lx, in_image // tile_width * TILE + ly
    exists = (x < width) & (y < height) & (lx < TILE) & (ly < TILE)
    pixel = (image.to(tl.int64) * height + y) * width + x
    start = tl.load(bounds + tile)
    length = (tl.load(bounds + tile + 1) - start).to(tl.int32)
    return tile, image, start, length, x.to(tl.float32) + 0.5, y.to(tl.float32) + 0.5, exists, pixel


@triton.jit
def rows_of_colors(image, N, IMAGES, SHARED: tl.constexpr):
    """What the number of a Gaussian of all images is off by, as a row of colours that IMAGES images of a batch may
    share."""
    rows = image * 0
    if SHARED:
        rows = image // IMAGES - image
    return rows.to(tl.int64) * N


@triton.jit
def shade(mx, my, p, r, q, o, px, py):
    """dx, dy and u, opacity times falloff before the cap, alpha, and whether the pair counts.

    Fused by hand: forward and backward must round the decision alike, however the compiler would fuse either."""
    dx, dy = mx - px, my - py
    u = tl.fma(r, dy, dx)
    exponent = tl.fma(q * dy, dy, p * u * u)
    raw = o * tl.exp2(exponent)
    alpha = tl.minimum(raw, CAP)
    return dx, dy, u, raw, alpha, (alpha >= _THRESHOLD) & (exponent <= 0.0)


@triton.jit
def _composite(k, real, record, color, px, py, T, floor, last, a0, a1, a2, a3, C: tl.constexpr):
    """Take one Gaussian in, or nothing unless it is real. `floor` is what the transmittance may not fall to; infinite
    where a pixel has stopped."""
    two = tl.arange(0, 2)  # two numbers a load
    mx, my = tl.split(tl.load(record + two))
    p, r = tl.split(tl.load(record + 2 + two))
    q, o = tl.split(tl.load(record + 4 + two))
    o = tl.where(real, o, 0.0)
    _, _, _, _, alpha, counted = shade(mx, my, p, r, q, o, px, py)
    after = T * (1.0 - alpha)
    on = counted & (after > floor)
    w = tl.where(on, alpha, 0.0) * T
    if C > 0:
        a0 += w * tl.load(color)
    if C > 1:
        a1 += w * tl.load(color + 1)
    if C > 2:
        a2 += w * tl.load(color + 2)
    if C > 3:
        a3 += w * tl.load(color + 3)
    floor = tl.where(counted & (on == 0), float("inf"), floor)
    return tl.where(on, after, T), floor, tl.where(on, k, last), a0, a1, a2, a3


@triton.jit(do_not_specialize=["width", "height", "tile_width", "tiles", "N", "IMAGES", "D", "CHANNEL"])
def composite(
    records, colors, bounds, ids, keep, backgrounds, out_colors, out_alphas, out_T, out_last,
    width, height, tile_width, tiles, N, IMAGES, D, CHANNEL,
    TILE: tl.constexpr, SIDE: tl.constexpr, LOOK: tl.constexpr, C: tl.constexpr, ALL: tl.constexpr,
    SHARED_COLORS: tl.constexpr, MASKED: tl.constexpr, BACKGROUND: tl.constexpr,
):  # fmt: skip
    """out_colors [I, H, W, D] (channels CHANNEL .. CHANNEL + C - 1; ALL: there are no others) of colors [.., D], over
    backgrounds [I, D]; out_alphas [I, H, W]; out_T [I, H, W] the transmittance left; out_last [I, H, W] position of the
    last pair in its tile's list, or -1. LOOK Gaussians are composited between two looks at whether any pixel is
    left."""
    tile, image, start, length, px, py, exists, pixel = square(
        tl.program_id(0), bounds, width, height, tile_width, tiles, TILE, SIDE
    )
    if MASKED:
        length = tl.where(tl.load(keep + tile) != 0, length, 0)
    T = tl.full([SIDE, SIDE], 1.0, tl.float32)
    floor = tl.where(exists, _STOP, float("inf"))
    a0 = tl.zeros([SIDE, SIDE], tl.float32)
    a1, a2, a3 = a0, a0, a0
    last = tl.full([SIDE, SIDE], -1, tl.int32)
    entries = ids + start
    colors += rows_of_colors(image, N, IMAGES, SHARED_COLORS) * D + CHANNEL
    k = 0
    go = length > 0
    while go:
        for step in tl.static_range(LOOK):
            # Past the end the last Gaussian stands in, and is not real.
            g = tl.load(entries + tl.minimum(k + step, length - 1)).to(tl.int64)
            T, floor, last, a0, a1, a2, a3 = _composite(
                k + step, k + step < length, records + g * RECORD_SIZE, colors + g * (C if ALL else D),
                px, py, T, floor, last, a0, a1, a2, a3, C,
            )  # fmt: skip
        k += LOOK
        go = (k < length) & (tl.min(tl.min(floor, 0), 0) < 1.0)
    if BACKGROUND:
        color = backgrounds + image * D + CHANNEL
        if C > 0:
            a0 += T * tl.load(color)
        if C > 1:
            a1 += T * tl.load(color + 1)
        if C > 2:
            a2 += T * tl.load(color + 2)
        if C > 3:
            a3 += T * tl.load(color + 3)
    out = out_colors + pixel * D + CHANNEL
    if C > 0:
        tl.store(out, a0, exists)
    if C > 1:
        tl.store(out + 1, a1, exists)
    if C > 2:
        tl.store(out + 2, a2, exists)
    if C > 3:
        tl.store(out + 3, a3, exists)
    tl.store(out_alphas + pixel, 1.0 - T, exists)
    tl.store(out_T + pixel, T, exists)
    tl.store(out_last + pixel, last, exists)


@triton.jit(do_not_specialize=["width", "height", "tile_width", "tiles"])
def pair_sides(
    records, bounds, ids, in_last, sides, width, height, tile_width, tiles, TILE: tl.constexpr, SIDE: tl.constexpr,
):  # fmt: skip
    """sides [n_isects, TILE^2], zero before: 1 where `composite` counted the pair, 2 where its alpha was capped."""
    _tile, _image, start, _length, px, py, exists, pixel = square(
        tl.program_id(0), bounds, width, height, tile_width, tiles, TILE, SIDE
    )
    local = py.to(tl.int32) % TILE * TILE + px.to(tl.int32) % TILE
    last = tl.load(in_last + pixel, exists, -1)
    for k in range(tl.max(tl.max(last, 0), 0) + 1):
        record = records + tl.load(ids + start + k).to(tl.int64) * RECORD_SIZE
        p, r, q, o = tl.load(record + 2), tl.load(record + 3), tl.load(record + 4), tl.load(record + 5)
        _dx, _dy, _u, raw, _alpha, counted = shade(tl.load(record), tl.load(record + 1), p, r, q, o, px, py)
        side = tl.where(counted, tl.where(raw > CAP, 2, 1), 0)
        tl.store(sides + (start + k).to(tl.int64) * TILE * TILE + local, side.to(tl.int8), exists & (k <= last))
