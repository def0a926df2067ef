"""The rasterizer in Triton: one program composites a block of pixels, Gaussian by Gaussian, front to back and back
again.

A program is written over a block of P pixels; nothing in it stands for how the hardware executes it. `pack` gathers
what shading needs of a Gaussian into one record [12]: mean x, y; half width and height of the ellipse in which it may
count; p, r, q of the exponent p u^2 + q dy^2 with u = dx + r dy, in units of log2 e; opacity; then up to four colour
channels from CHANNEL on. Exponents as sums of squares do not cancel in thin Gaussians. Where a tile has several
blocks, each skips the Gaussians of the tile's list whose box it does not meet.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.splat._ellipse import enlarged_ellipse
from lanewise.splat.rasterize.lists import RECORD
from lanewise.splat.rasterize.reference import ALPHA_CAP, ALPHA_THRESHOLD, TRANSMITTANCE_STOP

_RECORD = tl.constexpr(RECORD)
_CAP, _THRESHOLD, _STOP = tl.constexpr(ALPHA_CAP), tl.constexpr(ALPHA_THRESHOLD), tl.constexpr(TRANSMITTANCE_STOP)
_MINUS_HALF_LOG2E, _TWO_LN2 = tl.constexpr(-0.7213475204444817), tl.constexpr(1.3862943611198906)


@triton.jit
def pack(means2d, conics, colors, opacities, records, M, D, CHANNEL, BLOCK: tl.constexpr):
    """records [M, 12] of means2d [M, 2], conics [M, 3], colors [M, D], opacities [M]; written as whole rows."""
    g = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = g < M
    a, b, c = (
        tl.load(conics + g * 3, mask, 1.0),
        tl.load(conics + g * 3 + 1, mask, 0.0),
        tl.load(conics + g * 3 + 2, mask, 1.0),
    )
    opacity = tl.load(opacities + g, mask, 0.0)
    _, _, half_x, half_y = enlarged_ellipse(a, b, c, opacity)
    # An indefinite conic's own determinant, which `enlarged_ellipse` has replaced by 0.
    true_det = (a.to(tl.float64) * c.to(tl.float64) - b.to(tl.float64) * b.to(tl.float64)).to(tl.float32)
    column = tl.arange(0, 16)[None, :]
    row = tl.where(
        column == 0, tl.load(means2d + g * 2, mask, 0.0)[:, None], tl.load(means2d + g * 2 + 1, mask, 0.0)[:, None]
    )
    row = tl.where(column == 2, half_x[:, None], row)
    row = tl.where(column == 3, half_y[:, None], row)
    row = tl.where(column == 4, (a * _MINUS_HALF_LOG2E)[:, None], row)
    row = tl.where(column == 5, (b / a)[:, None], row)
    row = tl.where(column == 6, (true_det / a * _MINUS_HALF_LOG2E)[:, None], row)
    row = tl.where(column == 7, opacity[:, None], row)
    for d in tl.static_range(4):
        channel = tl.zeros([BLOCK], tl.int32) + (CHANNEL + d)
        row = tl.where(column == 8 + d, tl.load(colors + g * D + channel, mask & (channel < D), 0.0)[:, None], row)
    tl.store(records + g[:, None] * _RECORD + column, row, mask[:, None] & (column < _RECORD))


@triton.jit
def _pixels(pid, width, height, tile_width, tiles, TILE: tl.constexpr, SX: tl.constexpr, SY: tl.constexpr):
    """The tile of all images, the block's corner, pixel coordinates [P], whether they exist, and their index over all
    images."""
    BX: tl.constexpr = (TILE + SX - 1) // SX
    BY: tl.constexpr = (TILE + SY - 1) // SY
    tile, block = pid // (BX * BY), pid % (BX * BY)
    image, in_image = tile // tiles, tile % tiles
    i = tl.arange(0, SX * SY)
    lx, ly = block % BX * SX + i % SX, block // BX * SY + i // SX
    left, top = in_image % tile_width * TILE, in_image // tile_width * TILE
    x, y = left + lx, top + ly
    exists = (x < width) & (y < height) & (lx < TILE) & (ly < TILE)
    return (
        tile,
        left + block % BX * SX,
        top + block // BX * SY,
        x,
        y,
        exists,
        (image.to(tl.int64) * height + y) * width + x,
    )


@triton.jit
def _meets(record, x0, y0, SX: tl.constexpr, SY: tl.constexpr):
    """Whether the Gaussian's box meets the pixel centres of the block whose corner is (x0, y0)."""
    dx, dy = tl.abs(tl.load(record) - (x0 + 0.5 * SX)), tl.abs(tl.load(record + 1) - (y0 + 0.5 * SY))
    return (dx <= tl.load(record + 2) + 0.5 * (SX - 1)) & (dy <= tl.load(record + 3) + 0.5 * (SY - 1))


@triton.jit
def _shade(record, px, py):
    """p, r, q and opacity, scalars; u, dy, opacity times falloff before the cap, and alpha (0: not counted), [P]."""
    p, r, q, o = tl.load(record + 4), tl.load(record + 5), tl.load(record + 6), tl.load(record + 7)
    dy = tl.load(record + 1) - py
    # Fused by hand: forward and backward must round the decision alike, however the compiler would fuse either.
    u = tl.fma(r, dy, tl.load(record) - px)
    exponent = tl.fma(q * dy, dy, p * u * u)
    raw = o * tl.exp2(exponent)
    alpha = tl.minimum(raw, _CAP)
    return p, r, q, o, u, dy, raw, tl.where((alpha >= _THRESHOLD) & (exponent <= 0.0), alpha, 0.0)


@triton.jit
def _composite(k, record, px, py, T, last, a0, a1, a2, a3, C: tl.constexpr):
    """Take one Gaussian in; T [P] turns negative where a pixel stops."""
    _, _, _, _, _, _, _, alpha = _shade(record, px, py)
    after = T * (1.0 - alpha)
    on = (alpha > 0.0) & (after > _STOP)
    w = tl.where(on, alpha * T, 0.0)
    a0 += w * tl.load(record + 8)
    if C > 1:
        a1 += w * tl.load(record + 9)
    if C > 2:
        a2 += w * tl.load(record + 10)
    if C > 3:
        a3 += w * tl.load(record + 11)
    T = tl.where(on, after, tl.where(alpha > 0.0, -tl.abs(T), T))
    return T, tl.where(on, k, last), a0, a1, a2, a3


@triton.jit
def forward(
    records, offsets, ids, keep, out_colors, out_T, out_last,
    n_isects, n_tiles, width, height, tile_width, tiles, D, CHANNEL,
    TILE: tl.constexpr, SX: tl.constexpr, SY: tl.constexpr, G: tl.constexpr, C: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """out_colors [I, H, W, D] (channels CHANNEL .. CHANNEL + C - 1), out_T [I, H, W] what is left, out_last [I, H, W]
    position of the last pair. Between two looks at whether any pixel is left G Gaussians are composited."""
    tile, x0, y0, x, y, exists, pixel = _pixels(tl.program_id(0), width, height, tile_width, tiles, TILE, SX, SY)
    P: tl.constexpr = SX * SY
    px, py = x.to(tl.float32) + 0.5, y.to(tl.float32) + 0.5
    k, end = tl.load(offsets + tile), tl.load(offsets + tile + 1, tile + 1 < n_tiles, n_isects)
    if MASKED:
        end = tl.where(tl.load(keep + tile) != 0, end, k)
    T = tl.where(exists, 1.0, -1.0)
    a0, a1, a2, a3 = (
        tl.zeros([P], tl.float32),
        tl.zeros([P], tl.float32),
        tl.zeros([P], tl.float32),
        tl.zeros([P], tl.float32),
    )
    last = tl.full([P], -1, tl.int32)
    go = k < end
    while go:
        for j in tl.static_range(G):
            # Past the end the last Gaussian stands in, and is not taken.
            record = records + tl.load(ids + tl.minimum(k + j, end - 1)).to(tl.int64) * _RECORD
            if TILE > SX or TILE > SY:
                if _meets(record, x0, y0, SX, SY) & (k + j < end):
                    T, last, a0, a1, a2, a3 = _composite(k + j, record, px, py, T, last, a0, a1, a2, a3, C)
            else:
                taken = tl.where(k + j < end, T, -1.0)
                T_new, last, a0, a1, a2, a3 = _composite(k + j, record, px, py, taken, last, a0, a1, a2, a3, C)
                T = tl.where(k + j < end, T_new, T)
        k += G
        go = (k < end) & (tl.max(T, 0) > 0.0)
    out = out_colors + pixel * D + CHANNEL
    tl.store(out, a0, exists)
    if C > 1:
        tl.store(out + 1, a1, exists)
    if C > 2:
        tl.store(out + 2, a2, exists)
    if C > 3:
        tl.store(out + 3, a3, exists)
    tl.store(out_T + pixel, tl.abs(T), exists)
    tl.store(out_last + pixel, last, exists)


@triton.jit
def backward(
    records, offsets, ids, in_T, in_last, v_colors, v_T, v_out,
    width, height, tile_width, tiles, D, CHANNEL, COLUMNS,
    TILE: tl.constexpr, SX: tl.constexpr, SY: tl.constexpr, C: tl.constexpr,
    ABSGRAD: tl.constexpr, ORDERED: tl.constexpr, FIRST: tl.constexpr,
):  # fmt: skip
    """Adds each Gaussian's gradient of this block of pixels to v_out [M, COLUMNS], D + 6 (+ 2) columns: colours,
    opacity, conic, mean, absolute mean. ORDERED: stores it in v_out [n_isects * blocks, COLUMNS], a row a pair and
    block of pixels, for `sum_records`."""
    pid = tl.program_id(0)
    tile, x0, y0, x, y, exists, pixel = _pixels(pid, width, height, tile_width, tiles, TILE, SX, SY)
    px, py = x.to(tl.float32) + 0.5, y.to(tl.float32) + 0.5
    last = tl.load(in_last + pixel, exists, -1)
    T = tl.load(in_T + pixel, exists, 1.0)
    v = v_colors + pixel * D + CHANNEL
    zero = tl.zeros([SX * SY], tl.float32)
    v0, v1, v2, v3 = tl.load(v, exists, 0.0), zero, zero, zero
    if C > 1:
        v1 = tl.load(v + 1, exists, 0.0)
    if C > 2:
        v2 = tl.load(v + 2, exists, 0.0)
    if C > 3:
        v3 = tl.load(v + 3, exists, 0.0)
    behind = zero  # what lies behind, times its upstream gradient
    if FIRST:
        behind = T * tl.load(v_T + pixel, exists, 0.0)
    start = tl.load(offsets + tile)
    end = tl.max(last, 0)
    for back in range(end - start + 1):
        k = end - back
        g = tl.load(ids + k).to(tl.int64)
        record = records + g * _RECORD
        meets = True
        if TILE > SX or TILE > SY:
            meets = _meets(record, x0, y0, SX, SY)
        if meets:
            p, r, q, o, u, dy, raw, alpha = _shade(record, px, py)
            alpha = tl.where(k <= last, alpha, 0.0)
            inverse = 1.0 / (1.0 - alpha)
            T *= inverse
            w = alpha * T
            dot = tl.load(record + 8) * v0
            if C > 1:
                dot += tl.load(record + 9) * v1
            if C > 2:
                dot += tl.load(record + 10) * v2
            if C > 3:
                dot += tl.load(record + 11) * v3
            gain = alpha * (T * dot - behind * inverse)  # alpha dL/dalpha
            gain = tl.where(raw <= _CAP, gain, 0.0)
            behind += w * dot
            gu, gy = gain * u, gain * dy
            s, su, sy = tl.sum(gain, 0), tl.sum(gu, 0), tl.sum(gy, 0)
            suu, suy, syy = tl.sum(gu * u, 0), tl.sum(gu * dy, 0), tl.sum(gy * dy, 0)
            w0 = tl.sum(w * v0, 0)
            m_u, m_y = p * su * _TWO_LN2, q * sy * _TWO_LN2  # dL/du, and dL/d(dy) at fixed u
            if ORDERED:
                BLOCKS: tl.constexpr = ((TILE + SX - 1) // SX) * ((TILE + SY - 1) // SY)
                out = v_out + (k.to(tl.int64) * BLOCKS + pid % BLOCKS) * COLUMNS
                some = k >= 0
            else:
                out = v_out + g * COLUMNS
                some = (s != 0.0) | (tl.sum(w, 0) > 0.0)
            _put(out + CHANNEL, w0, some, ORDERED, FIRST)
            if C > 1:
                _put(out + CHANNEL + 1, tl.sum(w * v1, 0), some, ORDERED, FIRST)
            if C > 2:
                _put(out + CHANNEL + 2, tl.sum(w * v2, 0), some, ORDERED, FIRST)
            if C > 3:
                _put(out + CHANNEL + 3, tl.sum(w * v3, 0), some, ORDERED, FIRST)
            # dx = u - r dy: the conic's gradient from the moments of u and dy.
            _put(out + D, s / tl.where(o > 0.0, o, 1.0), some, ORDERED, FIRST)
            _put(out + D + 1, -0.5 * (suu - 2.0 * r * suy + r * r * syy), some, ORDERED, FIRST)
            _put(out + D + 2, r * syy - suy, some, ORDERED, FIRST)
            _put(out + D + 3, -0.5 * syy, some, ORDERED, FIRST)
            _put(out + D + 4, m_u, some, ORDERED, FIRST)
            _put(out + D + 5, m_u * r + m_y, some, ORDERED, FIRST)
            if ABSGRAD:
                x_u = p * gu * _TWO_LN2
                _put(out + D + 6, tl.sum(tl.abs(x_u), 0), some, ORDERED, FIRST)
                _put(out + D + 7, tl.sum(tl.abs(x_u * r + q * gy * _TWO_LN2), 0), some, ORDERED, FIRST)


@triton.jit
def _put(pointer, value, mask, ORDERED: tl.constexpr, FIRST: tl.constexpr):
    """Add to a gradient that several programs share, or to a record that this program owns: the first launch finds it
    empty."""
    if ORDERED:
        if not FIRST:
            value += tl.load(pointer, mask, 0.0)
        tl.store(pointer, value, mask)
    else:
        tl.atomic_add(pointer, value, mask, sem="relaxed")


@triton.jit
def sum_records(records, by_gaussian, bounds, out, M, COLUMNS, BLOCKS, BLOCK: tl.constexpr):
    """out [M, COLUMNS] = sums of the records [n_isects * BLOCKS, COLUMNS] at by_gaussian[bounds[g] .. bounds[g + 1]],
    in that order."""
    g = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1)
    mask = g < M
    begin, end = tl.load(bounds + g, mask, 0), tl.load(bounds + g + 1, mask, 0)
    total = tl.zeros([BLOCK], tl.float32)
    for j in range(tl.max(end - begin, 0)):
        here = begin + j < end
        row = tl.load(by_gaussian + begin + j, here, 0) * BLOCKS
        for block in range(BLOCKS):
            total += tl.load(records + (row + block) * COLUMNS + column, here, 0.0)
    tl.store(out + g.to(tl.int64) * COLUMNS + column, total, mask)


@triton.jit
def pair_sides(
    records, offsets, ids, in_last, sides, width, height, tile_width, tiles,
    TILE: tl.constexpr, SX: tl.constexpr, SY: tl.constexpr,
):  # fmt: skip
    """sides [n_isects, TILE^2], zero before: 1 where `forward` counted the pair, 2 where its alpha was capped."""
    tile, x0, y0, x, y, exists, pixel = _pixels(tl.program_id(0), width, height, tile_width, tiles, TILE, SX, SY)
    px, py = x.to(tl.float32) + 0.5, y.to(tl.float32) + 0.5
    local = (y % TILE) * TILE + x % TILE
    last = tl.load(in_last + pixel, exists, -1)
    start = tl.load(offsets + tile)
    for i in range(tl.max(last, 0) + 1 - start):
        k = start + i
        record = records + tl.load(ids + k).to(tl.int64) * _RECORD
        if _meets(record, x0, y0, SX, SY):
            _, _, _, _, _, _, raw, alpha = _shade(record, px, py)
            side = tl.where(alpha > 0.0, tl.where(raw > _CAP, 2, 1), 0)
            tl.store(sides + k.to(tl.int64) * TILE * TILE + local, side.to(tl.int8), exists & (k <= last))
