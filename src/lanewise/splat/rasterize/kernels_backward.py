"""The rasterizer's backward pass in Triton: one program walks the list of a square of pixels [Y, X] from the back, four
Gaussians at a time, and sums their gradients over its pixels.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.splat.rasterize.kernels import CAP, RECORD_SIZE, rows_of_colors, shade, square

_TWO_LN2 = tl.constexpr(1.3862943611198906)
_GROUP = tl.constexpr(4)  # Gaussians at a time


@triton.jit
def _products(x, i, neighbour, pair):
    """Of x [Y, X, 4], along the last axis: the product of all up to and with each, and the product of all."""
    two = x * tl.gather(x, neighbour, 2)
    upto = tl.where((i & 1) == 1, two, x)
    others = tl.gather(two, pair, 2)
    return tl.where((i & 2) == 2, upto * others, upto), two * others


@triton.jit
def _sums(x, i, neighbour, pair):
    """Of x [Y, X, 4], along the last axis: the sum of all before each, and the sum of all."""
    other = tl.gather(x, neighbour, 2)
    before = tl.where((i & 1) == 1, other, 0.0)
    two = x + other
    others = tl.gather(two, pair, 2)
    return tl.where((i & 2) == 2, before + others, before), two + others


@triton.jit
def _number(entries, k):
    """Gaussians at positions k [4] of a list, 0 where k < 0."""
    return tl.load(entries + k, k >= 0, 0).to(tl.int64)


@triton.jit
def _fetch(records, colors, g, k, D, C: tl.constexpr):
    """Of Gaussians g [4], zeros where k < 0: mean, p, r, q, opacity and four colour channels, [4] each."""
    record, color, real = records + g * RECORD_SIZE, colors + g * (C if C > 0 else D), k >= 0
    c0 = tl.zeros([_GROUP], tl.float32)
    c1, c2, c3 = c0, c0, c0
    if C > 0:
        c0 = tl.load(color, real, 0.0)
    if C > 1:
        c1 = tl.load(color + 1, real, 0.0)
    if C > 2:
        c2 = tl.load(color + 2, real, 0.0)
    if C > 3:
        c3 = tl.load(color + 3, real, 0.0)
    return (
        tl.load(record, real, 0.0), tl.load(record + 1, real, 0.0), tl.load(record + 2, real, 0.0),
        tl.load(record + 3, real, 0.0), tl.load(record + 4, real, 0.0), tl.load(record + 5, real, 0.0),
        c0, c1, c2, c3,
    )  # fmt: skip


@triton.jit(do_not_specialize=["width", "height", "tile_width", "tiles", "N", "IMAGES", "D", "COLUMNS"])
def composite_backward(
    records, colors, bounds, ids, backgrounds, in_T, in_last, v_colors, v_alphas, v_out,
    width, height, tile_width, tiles, N, IMAGES, D, COLUMNS,
    TILE: tl.constexpr, SIDE: tl.constexpr, C: tl.constexpr, SHARED_COLORS: tl.constexpr,
    BACKGROUND: tl.constexpr, ALPHAS: tl.constexpr, ABSGRAD: tl.constexpr, ORDERED: tl.constexpr,
):  # fmt: skip
    """Adds each Gaussian's gradient of this square of pixels to v_out [M, COLUMNS], D + 6 (+ 2) columns: colours,
    opacity, conic, mean, absolute mean. ORDERED: stores it in v_out [n_isects * squares, COLUMNS], a row a pair and
    square of pixels, for `sum_records`. colors [.., D] have C = D channels; C = 0: any number D.

    Transmittances before the Gaussians of a group are products of 1 / (1 - alpha) from the back, and what lies behind
    each a sum over those farther back; both run over the group's axis, so that the sums over pixels, of which there
    are many more, are taken for four Gaussians at once."""
    pid = tl.program_id(0)
    _, image, start, _, px, py, exists, pixel = square(pid, bounds, width, height, tile_width, tiles, TILE, SIDE)
    px, py = px[:, :, None], py[:, :, None]
    last = tl.load(in_last + pixel, exists, -1)
    end = tl.max(tl.max(last, 0), 0)
    last = last[:, :, None]
    v = v_colors + pixel * D
    behind = tl.zeros([SIDE, SIDE], tl.float32)  # what lies behind, times its upstream gradient
    v0 = behind
    v1, v2, v3 = v0, v0, v0
    if ALPHAS:
        behind -= tl.load(v_alphas + pixel, exists, 0.0)
    if C > 0:
        v0 = tl.load(v, exists, 0.0)
    if C > 1:
        v1 = tl.load(v + 1, exists, 0.0)
    if C > 2:
        v2 = tl.load(v + 2, exists, 0.0)
    if C > 3:
        v3 = tl.load(v + 3, exists, 0.0)
    if BACKGROUND:
        for c in range(D):
            behind += tl.load(backgrounds + image * D + c) * tl.load(v + c, exists, 0.0)
    T = tl.load(in_T + pixel, exists, 1.0)
    group: tl.constexpr = [SIDE, SIDE, _GROUP]
    behind = tl.broadcast_to((behind * T)[:, :, None], group)
    T = tl.broadcast_to(T[:, :, None], group)
    v0, v1, v2, v3 = v0[:, :, None], v1[:, :, None], v2[:, :, None], v3[:, :, None]
    order = tl.arange(0, _GROUP)
    i = order[None, None, :]
    neighbour, pair = tl.broadcast_to(i ^ 1, group), tl.broadcast_to(i ^ 2, group)
    colors += rows_of_colors(image, N, IMAGES, SHARED_COLORS) * D
    # Loads run ahead: a group's records are fetched one group early, their numbers two.
    g = _number(ids + start, end - order)
    mx, my, p, r, q, o, c0, c1, c2, c3 = _fetch(records, colors, g, end - order, D, C)
    next_g = _number(ids + start, end - _GROUP - order)
    for back in range(0, end + 1, _GROUP):
        k = end - back - order  # the deepest first
        real = k >= 0
        next_mx, next_my, next_p, next_r, next_q, next_o, next_c0, next_c1, next_c2, next_c3 = _fetch(
            records, colors, next_g, k - _GROUP, D, C
        )
        after_next_g = _number(ids + start, k - 2 * _GROUP)
        dx, dy, u, raw, alpha, counted = shade(
            mx[None, None, :], my[None, None, :], p[None, None, :], r[None, None, :], q[None, None, :],
            o[None, None, :], px, py,
        )  # fmt: skip
        alpha = tl.where(counted & (k[None, None, :] <= last), alpha, 0.0)
        through = 1.0 - alpha
        inverse = tl.rsqrt(through)
        inverse *= inverse
        # One step of Newton's. Fused: what rounds here in one direction adds up over hundreds of Gaussians.
        inverse = tl.fma(inverse, tl.fma(-through, inverse, 1.0), inverse)
        upto, of_all = _products(inverse, i, neighbour, pair)
        w = alpha * (T * upto)
        T *= of_all
        if C == 0:
            dot = 0.0 * w
            for c in range(D):
                color = tl.load(colors + g * D + c, real, 0.0)[None, None, :]
                dot += color * tl.load(v + c, exists, 0.0)[:, :, None]
        else:
            dot = c0[None, None, :] * v0
            if C > 1:
                dot += c1[None, None, :] * v1
            if C > 2:
                dot += c2[None, None, :] * v2
            if C > 3:
                dot += c3[None, None, :] * v3
        seen = w * dot
        farther, all_four = _sums(seen, i, neighbour, pair)
        gain = seen - alpha * inverse * (behind + farther)  # alpha dL/dalpha
        gain = tl.where(raw <= CAP, gain, 0.0)
        behind += all_four
        # Sums over the pixels. A column's pixels share dx.
        gy = gain * dy
        s, s_y, s_yy, s_u = tl.sum(gain, 0), tl.sum(gy, 0), tl.sum(gy * dy, 0), tl.sum(gain * u, 0)  # [X, 4]
        along = tl.reshape(dx, [SIDE, _GROUP])
        s_xx, s_xy = tl.sum(along * along * s, 0), tl.sum(along * s_y, 0)
        s, s_y, s_yy, s_u = tl.sum(s, 0), tl.sum(s_y, 0), tl.sum(s_yy, 0), tl.sum(s_u, 0)  # [4]
        m_u, m_y = p * s_u * _TWO_LN2, q * s_y * _TWO_LN2  # dL/du, and dL/d(dy) at fixed u
        if ORDERED:
            SQUARES: tl.constexpr = ((TILE + SIDE - 1) // SIDE) * ((TILE + SIDE - 1) // SIDE)
            out = v_out + ((start + k).to(tl.int64) * SQUARES + pid % SQUARES) * COLUMNS
            some = real
        else:
            out = v_out + g * COLUMNS
            some = real & (tl.max(tl.max(w, 0), 0) > 0.0)
        if C == 0:
            for c in range(D):
                _put(out + c, _over_pixels(w * tl.load(v + c, exists, 0.0)[:, :, None]), some, ORDERED)
        else:
            _put(out, _over_pixels(w * v0), some, ORDERED)
            if C > 1:
                _put(out + 1, _over_pixels(w * v1), some, ORDERED)
            if C > 2:
                _put(out + 2, _over_pixels(w * v2), some, ORDERED)
            if C > 3:
                _put(out + 3, _over_pixels(w * v3), some, ORDERED)
        out += D
        _put(out, s / tl.where(o > 0.0, o, 1.0), some, ORDERED)
        _put(out + 1, -0.5 * s_xx, some, ORDERED)
        _put(out + 2, -s_xy, some, ORDERED)
        _put(out + 3, -0.5 * s_yy, some, ORDERED)
        _put(out + 4, m_u, some, ORDERED)
        _put(out + 5, m_u * r + m_y, some, ORDERED)
        if ABSGRAD:
            by_u = gain * u * p[None, None, :] * _TWO_LN2
            by_y = by_u * r[None, None, :] + gy * q[None, None, :] * _TWO_LN2
            _put(out + 6, _over_pixels(tl.abs(by_u)), some, ORDERED)
            _put(out + 7, _over_pixels(tl.abs(by_y)), some, ORDERED)
        g, next_g = next_g, after_next_g
        mx, my, p, r, q, o = next_mx, next_my, next_p, next_r, next_q, next_o
        c0, c1, c2, c3 = next_c0, next_c1, next_c2, next_c3


@triton.jit
def _over_pixels(x):
    """[4] sums of x [Y, X, 4] over the pixels."""
    return tl.sum(tl.sum(x, 0), 0)


@triton.jit
def _put(pointer, value, mask, ORDERED: tl.constexpr):
    """Store in a record that this program owns, or add to a gradient that several programs share."""
    if ORDERED:
        tl.store(pointer, value, mask)
    else:
        tl.atomic_add(pointer, value, mask, sem="relaxed")


@triton.jit(do_not_specialize=["M", "COLUMNS"])
def sum_records(records, by_gaussian, bounds, out, M, COLUMNS, SQUARES: tl.constexpr, BLOCK: tl.constexpr):
    """out [M, COLUMNS] = sums of the records [n_isects * SQUARES, COLUMNS] at by_gaussian[bounds[g] .. bounds[g + 1]],
    in that order."""
    g = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1)
    mask = g < M
    begin, end = tl.load(bounds + g, mask, 0), tl.load(bounds + g + 1, mask, 0)
    total = tl.zeros([BLOCK], tl.float32)
    for j in range(tl.max(end - begin, 0)):
        here = begin + j < end
        row = tl.load(by_gaussian + begin + j, here, 0) * SQUARES
        for part in range(SQUARES):
            total += tl.load(records + (row + part) * COLUMNS + column, here, 0.0)
    tl.store(out + g.to(tl.int64) * COLUMNS + column, total, mask)
