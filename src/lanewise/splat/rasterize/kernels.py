"""The rasterizer in Triton: one program composites a block of pixels, a few Gaussians at a time, front to back and
back again.

A program is written over blocks [G Gaussians, P pixels]; nothing in it stands for how the hardware executes it.
`pack` gathers what shading needs of a Gaussian into one record [16]: mean x, y; p, r, q of the exponent p u^2 + q
dy^2 with u = dx + r dy, in units of log2 e; opacity; conic a, b, c; then up to four colour channels from CHANNEL on.
Exponents as sums of squares do not cancel in thin Gaussians.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.splat.rasterize.reference import ALPHA_CAP, ALPHA_THRESHOLD, TRANSMITTANCE_STOP

RECORD = 16
CHANNELS = 4  # that one program composites; more are further programs over the same lists

_RECORD = tl.constexpr(RECORD)
_CAP, _THRESHOLD, _STOP = tl.constexpr(ALPHA_CAP), tl.constexpr(ALPHA_THRESHOLD), tl.constexpr(TRANSMITTANCE_STOP)
_MINUS_HALF_LOG2E, _TWO_LN2 = tl.constexpr(-0.7213475204444817), tl.constexpr(1.3862943611198906)


@triton.jit
def _mul(a, b):
    return a * b


@triton.jit
def pack(means2d, conics, colors, opacities, records, M, D, CHANNEL, BLOCK: tl.constexpr):
    """records [M, 16] of means2d [M, 2], conics [M, 3], colors [M, D], opacities [M]."""
    g = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = g < M
    a, b, c = (
        tl.load(conics + g * 3, mask, 1.0),
        tl.load(conics + g * 3 + 1, mask, 0.0),
        tl.load(conics + g * 3 + 2, mask, 1.0),
    )
    # The determinant cancels in thin Gaussians: the products of two fp32 numbers are exact in fp64.
    det = a.to(tl.float64) * c.to(tl.float64) - b.to(tl.float64) * b.to(tl.float64)
    r = records + g * _RECORD
    tl.store(r, tl.load(means2d + g * 2, mask, 0.0), mask)
    tl.store(r + 1, tl.load(means2d + g * 2 + 1, mask, 0.0), mask)
    tl.store(r + 2, a * _MINUS_HALF_LOG2E, mask)
    tl.store(r + 3, (b.to(tl.float64) / a.to(tl.float64)).to(tl.float32), mask)
    tl.store(r + 4, (det / a.to(tl.float64) * _MINUS_HALF_LOG2E).to(tl.float32), mask)
    tl.store(r + 5, tl.load(opacities + g, mask, 0.0), mask)
    tl.store(r + 6, a, mask)
    tl.store(r + 7, b, mask)
    tl.store(r + 8, c, mask)
    for d in tl.static_range(4):
        channel = tl.zeros([BLOCK], tl.int32) + (CHANNEL + d)
        tl.store(r + 9 + d, tl.load(colors + g * D + channel, mask & (channel < D), 0.0), mask)


@triton.jit
def _pixels(pid, width, height, tile_width, tiles, TILE: tl.constexpr, SX: tl.constexpr, SY: tl.constexpr):
    """The tile of all images, pixel coordinates [P], whether they exist, and their index over all images."""
    BX: tl.constexpr = (TILE + SX - 1) // SX
    BY: tl.constexpr = (TILE + SY - 1) // SY
    tile, block = pid // (BX * BY), pid % (BX * BY)
    image, in_image = tile // tiles, tile % tiles
    i = tl.arange(0, SX * SY)
    lx, ly = block % BX * SX + i % SX, block // BX * SY + i // SX
    x, y = in_image % tile_width * TILE + lx, in_image // tile_width * TILE + ly
    exists = (x < width) & (y < height) & (lx < TILE) & (ly < TILE)
    return tile, x, y, exists, (image.to(tl.int64) * height + y) * width + x


@triton.jit
def _geometry(records, g, mask):
    """Mean, exponent and opacity of [G] Gaussians; opacity 0 where masked."""
    r = records + g * _RECORD
    return (
        tl.load(r, mask, 0.0), tl.load(r + 1, mask, 0.0), tl.load(r + 2, mask, 0.0),
        tl.load(r + 3, mask, 0.0), tl.load(r + 4, mask, 0.0), tl.load(r + 5, mask, 0.0),
    )  # fmt: skip


@triton.jit
def _colors(records, g, mask, C: tl.constexpr):
    """C colour channels of [G] Gaussians; the others are 0."""
    r = records + g * _RECORD + 9
    zero = tl.zeros(g.shape, tl.float32)
    c0, c1, c2, c3 = tl.load(r, mask, 0.0), zero, zero, zero
    if C > 1:
        c1 = tl.load(r + 1, mask, 0.0)
    if C > 2:
        c2 = tl.load(r + 2, mask, 0.0)
    if C > 3:
        c3 = tl.load(r + 3, mask, 0.0)
    return c0, c1, c2, c3


@triton.jit
def _shade(mx, my, p, r, q, o, px, py):
    """u and dy [G, P], opacity times falloff before the cap, and alpha: 0 where the pair is not counted."""
    dy = my[:, None] - py[None, :]
    u = (mx[:, None] - px[None, :]) + r[:, None] * dy
    exponent = p[:, None] * u * u + q[:, None] * dy * dy
    raw = o[:, None] * tl.exp2(exponent)
    alpha = tl.minimum(raw, _CAP)
    return u, dy, raw, tl.where((alpha >= _THRESHOLD) & (exponent <= 0.0), alpha, 0.0)


@triton.jit
def forward(
    records, offsets, ids, keep, out_colors, out_T, out_last,
    width, height, tile_width, tiles, D, CHANNEL,
    TILE: tl.constexpr, SX: tl.constexpr, SY: tl.constexpr, G: tl.constexpr, C: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """out_colors [I, H, W, D] (channels CHANNEL .. CHANNEL + C - 1), out_T [I, H, W] what is left, out_last [I, H, W]
    position of the last pair."""
    tile, x, y, exists, pixel = _pixels(tl.program_id(0), width, height, tile_width, tiles, TILE, SX, SY)
    P: tl.constexpr = SX * SY
    px, py = x.to(tl.float32) + 0.5, y.to(tl.float32) + 0.5
    k, end = tl.load(offsets + tile), tl.load(offsets + tile + 1)
    if MASKED:
        end = tl.where(tl.load(keep + tile) != 0, end, k)
    T = tl.where(exists, 1.0, 0.0)  # 0 once a pixel has stopped
    stopped_T = tl.zeros([P], tl.float32)
    a0, a1, a2, a3 = (
        tl.zeros([P], tl.float32),
        tl.zeros([P], tl.float32),
        tl.zeros([P], tl.float32),
        tl.zeros([P], tl.float32),
    )
    last = tl.full([P], -1, tl.int32)
    i = tl.arange(0, G)
    go = k < end
    while go:
        mask = k + i < end
        g = tl.load(ids + k + i, mask, 0).to(tl.int64)
        mx, my, p, r, q, o = _geometry(records, g, mask)
        c0, c1, c2, c3 = _colors(records, g, mask, C)
        _, _, _, alpha = _shade(mx, my, p, r, q, o, px, py)
        after = T[None, :] * tl.associative_scan(1.0 - alpha, 0, _mul)  # [G, P]
        on = after > _STOP
        w = tl.where(on, alpha * (after / (1.0 - alpha)), 0.0)
        a0 += tl.sum(w * c0[:, None], 0)
        if C > 1:
            a1 += tl.sum(w * c1[:, None], 0)
        if C > 2:
            a2 += tl.sum(w * c2[:, None], 0)
        if C > 3:
            a3 += tl.sum(w * c3[:, None], 0)
        final = tl.min(after, 0)
        last = tl.maximum(last, tl.max(tl.where(on & (alpha > 0.0), (k + i)[:, None], -1), 0))
        stops = (final <= _STOP) & (T > 0.0)
        stopped_T = tl.where(stops, tl.min(tl.where(on, after, T[None, :]), 0), stopped_T)
        T = tl.where(stops, 0.0, final)
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
    tl.store(out_T + pixel, tl.maximum(T, stopped_T), exists)
    tl.store(out_last + pixel, last, exists)


@triton.jit
def backward(
    records, offsets, ids, in_T, in_last, v_colors, v_T, v_out,
    width, height, tile_width, tiles, D, CHANNEL, COLUMNS,
    TILE: tl.constexpr, SX: tl.constexpr, SY: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
    ABSGRAD: tl.constexpr, ORDERED: tl.constexpr, FIRST: tl.constexpr,
):  # fmt: skip
    """Adds each Gaussian's gradient of this block of pixels to v_out [M, COLUMNS], D + 6 (+ 2) columns: colours,
    opacity, conic, mean, absolute mean. ORDERED: stores it in v_out [n_isects * blocks, COLUMNS], a row a pair and
    block of pixels, for `sum_records`."""
    pid = tl.program_id(0)
    tile, x, y, exists, pixel = _pixels(pid, width, height, tile_width, tiles, TILE, SX, SY)
    px, py = x.to(tl.float32) + 0.5, y.to(tl.float32) + 0.5
    start = tl.load(offsets + tile)
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
    end = tl.max(last, 0) + 1
    i = tl.arange(0, G)
    groups = tl.cdiv(tl.maximum(end - start, 0), G)
    k = start + (groups - 1) * G
    for _ in range(groups):
        mask = k + i < end
        g = tl.load(ids + k + i, mask, 0).to(tl.int64)
        mx, my, p, r, q, o = _geometry(records, g, mask)
        c0, c1, c2, c3 = _colors(records, g, mask, C)
        u, dy, raw, alpha = _shade(mx, my, p, r, q, o, px, py)
        alpha = tl.where((k + i)[:, None] <= last[None, :], alpha, 0.0)
        through = 1.0 - alpha
        inverse = 1.0 / through
        before_group = T * tl.reduce(inverse, 0, _mul)
        before = before_group[None, :] * (tl.associative_scan(through, 0, _mul) * inverse)  # [G, P]
        w = alpha * before
        dot = c0[:, None] * v0[None, :]
        if C > 1:
            dot += c1[:, None] * v1[None, :]
        if C > 2:
            dot += c2[:, None] * v2[None, :]
        if C > 3:
            dot += c3[:, None] * v3[None, :]
        share = w * dot
        behind += tl.sum(share, 0)
        gain = alpha * (before * dot - (behind[None, :] - tl.cumsum(share, 0)) * inverse)  # alpha dL/dalpha
        gain = tl.where(raw <= _CAP, gain, 0.0)
        gu, gy = gain * u, gain * dy
        s, su, sy = tl.sum(gain, 1), tl.sum(gu, 1), tl.sum(gy, 1)
        suu, suy, syy = tl.sum(gu * u, 1), tl.sum(gu * dy, 1), tl.sum(gy * dy, 1)
        m_u, m_y = p * su * _TWO_LN2, q * sy * _TWO_LN2  # dL/du and dL/d(dy at fixed u): p and q carry -log2(e) / 2
        sxx, sxy = suu - 2.0 * r * suy + r * r * syy, suy - r * syy  # dx = u - r dy
        if ORDERED:
            BLOCKS: tl.constexpr = ((TILE + SX - 1) // SX) * ((TILE + SY - 1) // SY)
            out = v_out + ((k + i).to(tl.int64) * BLOCKS + pid % BLOCKS) * COLUMNS
        else:
            out = v_out + g * COLUMNS
            mask &= (s != 0.0) | (tl.sum(w, 1) > 0.0)
        _put(out + CHANNEL, tl.sum(w * v0[None, :], 1), mask, ORDERED, FIRST)
        if C > 1:
            _put(out + CHANNEL + 1, tl.sum(w * v1[None, :], 1), mask, ORDERED, FIRST)
        if C > 2:
            _put(out + CHANNEL + 2, tl.sum(w * v2[None, :], 1), mask, ORDERED, FIRST)
        if C > 3:
            _put(out + CHANNEL + 3, tl.sum(w * v3[None, :], 1), mask, ORDERED, FIRST)
        _put(out + D, s / tl.where(o > 0.0, o, 1.0), mask, ORDERED, FIRST)
        _put(out + D + 1, -0.5 * sxx, mask, ORDERED, FIRST)
        _put(out + D + 2, -sxy, mask, ORDERED, FIRST)
        _put(out + D + 3, -0.5 * syy, mask, ORDERED, FIRST)
        _put(out + D + 4, m_u, mask, ORDERED, FIRST)
        _put(out + D + 5, m_u * r + m_y, mask, ORDERED, FIRST)
        if ABSGRAD:
            x_u = p[:, None] * gu * _TWO_LN2
            x_y = x_u * r[:, None] + q[:, None] * gy * _TWO_LN2
            _put(out + D + 6, tl.sum(tl.abs(x_u), 1), mask, ORDERED, FIRST)
            _put(out + D + 7, tl.sum(tl.abs(x_y), 1), mask, ORDERED, FIRST)
        T = before_group
        k -= G


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
    tile, x, y, exists, pixel = _pixels(tl.program_id(0), width, height, tile_width, tiles, TILE, SX, SY)
    px, py = x.to(tl.float32) + 0.5, y.to(tl.float32) + 0.5
    local = (y % TILE) * TILE + x % TILE
    last = tl.load(in_last + pixel, exists, -1)
    i = tl.arange(0, 1)
    for k in range(tl.load(offsets + tile), tl.max(last, 0) + 1):
        g = tl.load(ids + k + i).to(tl.int64)
        mx, my, p, r, q, o = _geometry(records, g, i == 0)
        _, _, raw, alpha = _shade(mx, my, p, r, q, o, px, py)
        side = tl.where(alpha > 0.0, tl.where(raw > _CAP, 2, 1), 0)
        tl.store(
            sides + (k + i).to(tl.int64)[:, None] * TILE * TILE + local[None, :],
            side.to(tl.int8),
            (exists & (k <= last))[None, :],
        )
