"""Weight and bias gradients in Triton: sums over all pixels, split into parts that are added in a fixed order.

dw[k, t, c] = sum over pixels of dy[pixel, k] x[pixel * stride - padding + t * dilation, c]

A matrix product whose sum is long and whose result is small. So the sum is split, each part writes its own result into
a workspace, and `add_parts` adds the parts: no atomics, the same bits every time, and no long chain of additions.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.conv.kernels import advance, both, inside, multiple, outer, pixels_first, unravel


@triton.jit(
    do_not_specialize=[
        "N", "groups", "steps", "CI", "CO", "ID", "IH", "IW", "OD", "OH", "OW", "xn", "xd", "xh", "xw",
        "y", "yn", "P", "KD", "KH", "KW", "sd", "sh", "sw", "pd", "ph", "pw", "dd", "dh", "dw", "part",
    ]
)  # fmt: skip
def weight_grad(
    x, dy, parts, N, groups, steps, CI, CO, ID, IH, IW, OD, OH, OW, xn, xd, xh, xw, y, yn, P,
    KD, KH, KW, sd, sh, sw, pd, ph, pw, dd, dh, dw, part,
    VOLUME: tl.constexpr, ROWS: tl.constexpr, ONE_TAP: tl.constexpr,
    ALIGN: tl.constexpr, Y_ALIGN: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Parts [parts, groups CO, taps, CI] of the weight gradient, `part` numbers each.

    x [N, groups CI, ID, IH, IW] has channels as neighbours. dy is, with ROWS, [N OD OH OW, groups CO], which suits
    numbers of 16 bits, or [images, groups CO, P], P pixels as neighbours, which suits tf32: rows are y apart and images
    yn. An image may be all of the batch.
    A program sums `steps` blocks of BP pixels for BM output channels and BN (tap, input channel) pairs of one group.
    With ONE_TAP a block of pairs stays within one tap, so that what padding hides is known by pixel.
    """
    CI, CO, taps = multiple(CI, ALIGN), multiple(CO, Y_ALIGN) if ROWS else CO, KD * KH * KW
    blocks = tl.cdiv(CI, BN)
    across = taps * blocks if ONE_TAP else tl.cdiv(taps * CI, BN)
    down = tl.cdiv(CO, BM)
    program = tl.program_id(0)
    k = program // across % down * BM + tl.arange(0, BM)
    pair = program % across
    program = program // across // down
    group, split = (program % groups).to(tl.int64), (program // groups).to(tl.int64)
    if ONE_TAP:
        tap, c = pair // blocks, pair % blocks * BN + tl.arange(0, BN)
        real = c < CI
        pairs = tap * CI + c
    else:
        pairs = pair * BN + tl.arange(0, BN)
        tap, c = pairs // CI, pairs % CI
        real = tap < taps
    jd, jh, jw = tap // (KH * KW) * dd - pd, tap // KW % KH * dh - ph, tap % KW * dw - pw

    xn, xd, xh, xw = multiple(xn, ALIGN), multiple(xd, ALIGN), multiple(xh, ALIGN), multiple(xw, ALIGN)
    y, yn, P = multiple(y, Y_ALIGN), multiple(yn, Y_ALIGN), multiple(P, Y_ALIGN)
    x += group * CI
    dy += group * CO * (1 if ROWS else y)
    column = c + jd * xd + jh * xh + jw * xw
    pixel, pixels = split.to(tl.int32) * steps * BP + tl.arange(0, BP), N * OD * OH * OW
    filled = pixels if ROWS else tl.cdiv(pixels, Y_ALIGN) * Y_ALIGN  # whole vectors: zeros follow the last pixel
    n, d, h, w = unravel(pixel, OD, OH, OW, VOLUME)
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in tl.range(0, steps, num_stages=STAGES):
        exists = pixel < pixels
        place = outer(pixel * y, k, True) if ROWS else outer(pixel // P * yn + pixel % P, k * y, False)
        a = tl.load(dy + place, both(pixel < filled, k < CO, ROWS), 0.0)
        if ONE_TAP:
            seen = exists & inside(h * sh + jh, IH) & inside(w * sw + jw, IW)
            if VOLUME:
                seen = seen & inside(d * sd + jd, ID)
            seen = both(seen, real, True)
        else:
            seen = both(exists, real, True) & inside(outer(h * sh, jh, True), IH)
            seen = seen & inside(outer(w * sw, jw, True), IW)
            if VOLUME:
                seen = seen & inside(outer(d * sd, jd, True), ID)
        b = tl.load(x + outer(n * xn + d * sd * xd + h * sh * xh + w * sw * xw, column, True), seen, 0.0)
        acc = tl.dot(tl.trans(pixels_first(a, ROWS)), b, acc, input_precision=PRECISION)
        pixel += BP
        n, d, h, w = advance(n, d, h, w, BP, OD, OH, OW, VOLUME)

    out = parts + split * multiple(part, ALIGN) + group * CO * (taps * CI)
    tl.store(out + outer(k * (taps * CI), pairs, True), acc, both(k < CO, real, True))


@triton.jit(do_not_specialize=["count", "share", "size"])
def add_parts(parts, out, count, share, size, ALIGN: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Sums of parts [count, size], `share` at a time and always in the same order: out [ceil(count / share), size]."""
    size = multiple(size, ALIGN)
    across = tl.cdiv(size, BLOCK)
    j, row = tl.program_id(0) % across * BLOCK + tl.arange(0, BLOCK), tl.arange(0, ROWS)
    sums = (tl.program_id(0) // across).to(tl.int64)
    acc = tl.zeros((ROWS, BLOCK), tl.float32)
    count = tl.minimum(count - tl.program_id(0) // across * share, share)
    parts += (sums * share + row)[:, None] * size + j[None, :]
    for i in range(0, count, ROWS):
        acc += tl.load(parts, (i + row < count)[:, None] & (j < size)[None, :], 0.0)
        parts += ROWS * size.to(tl.int64)
    tl.store(out + (sums * size + j), tl.sum(acc, 0).to(out.dtype.element_ty), j < size)


@triton.jit(do_not_specialize=["N", "K", "P", "steps", "chunks", "yn", "yc", "yp"])
def bias_grad(
    dy, parts, N, K, P, steps, chunks, yn, yc, yp,
    LAST: tl.constexpr, ALIGN: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Parts [N chunks, K] of the sums of dy [N, K, P] over pixels: `steps` blocks of BP pixels a part."""
    if LAST:
        yc = 1
        yn, yp, K = multiple(yn, ALIGN), multiple(yp, ALIGN), multiple(K, ALIGN)
    else:
        yp = 1
        yn, yc, P = multiple(yn, ALIGN), multiple(yc, ALIGN), multiple(P, ALIGN)
    blocks = tl.cdiv(K, BC)
    part = tl.program_id(0) // blocks
    k = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    p = part % chunks * steps * BP + tl.arange(0, BP)
    dy += (part // chunks).to(tl.int64) * yn
    acc = tl.zeros((BP, BC), tl.float32) if LAST else tl.zeros((BC, BP), tl.float32)
    for _ in range(steps):
        acc += tl.load(dy + outer(p * yp, k * yc, LAST), both(p < P, k < K, LAST), 0.0).to(tl.float32)
        p += BP
    tl.store(parts + part.to(tl.int64) * K + k, tl.sum(acc, 0 if LAST else 1), k < K)
