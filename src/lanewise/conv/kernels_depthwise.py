"""Depthwise convolution in Triton: every output channel reads one input channel, so there is no matrix product.

Output channel k reads input channel k // M. SAME says that M is 1: then channels are vectors on both sides.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.conv.kernels import advance, both, inside, multiple, outer, unravel


@triton.jit
def _pixels(v, CHANNELS_LAST: tl.constexpr):
    """Values of pixels as they stand in a tile of `outer`."""
    return v[:, None] if CHANNELS_LAST else v[None, :]


@triton.jit
def _source(out, tap, size, stride, padding, TRANSPOSED: tl.constexpr, STRIDED: tl.constexpr):
    """Along one axis, which positions the outputs meet through a tap (already times its dilation), and whether they
    exist."""
    if TRANSPOSED:
        position = out + padding - tap
        seen = inside(position, size * stride)
        if STRIDED:
            seen = seen & (position % stride == 0)
            position = position // stride
    else:
        position = out * stride - padding + tap
        seen = inside(position, size)
    return position, seen


@triton.jit(
    do_not_specialize=[
        "pixels", "C", "M", "ID", "IH", "IW", "OD", "OH", "OW", "xn", "xc", "xd", "xh", "xw",
        "yn", "yc", "yd", "yh", "yw", "KD", "KH", "KW", "sd", "sh", "sw", "pd", "ph", "pw", "dd", "dh", "dw",
    ]
)  # fmt: skip
def depthwise(
    x, w, bias, y, pixels, C, M, ID, IH, IW, OD, OH, OW, xn, xc, xd, xh, xw, yn, yc, yd, yh, yw,
    KD, KH, KW, sd, sh, sw, pd, ph, pw, dd, dh, dw,
    TRANSPOSED: tl.constexpr, STRIDED: tl.constexpr, VOLUME: tl.constexpr, SAME: tl.constexpr, LAST: tl.constexpr,
    BIAS: tl.constexpr, ALIGN: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Forward: y [N, C M, OD, OH, OW] from x [N, C, ID, IH, IW]. TRANSPOSED, the input gradient: y [N, C, ...], the
    gradient of the input, from x [N, C M, ...], that of the output. Weights w [KD KH KW, C M]. STRIDED says that a
    stride is not 1.

    A program makes BP pixels of BC channels.
    """
    made, outer_channels = C if TRANSPOSED else C * M, C * M  # channels of y; of the weights
    if LAST:
        xc = 1
        yc = 1
        xn, xd, xh, xw = multiple(xn, ALIGN), multiple(xd, ALIGN), multiple(xh, ALIGN), multiple(xw, ALIGN)
        yn, yd, yh, yw = multiple(yn, ALIGN), multiple(yd, ALIGN), multiple(yh, ALIGN), multiple(yw, ALIGN)
        made = multiple(made, ALIGN)
        if SAME:
            outer_channels = multiple(outer_channels, ALIGN)
    blocks = tl.cdiv(made, BC)
    c = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    r = tl.program_id(0) // blocks * BP + tl.arange(0, BP)
    n, od, oh, ow = unravel(r, OD, OH, OW, VOLUME)
    real, exists = c < made, r < pixels
    acc = tl.zeros((BP, BC), tl.float32) if LAST else tl.zeros((BC, BP), tl.float32)
    for m in range(M if TRANSPOSED else 1):
        source, weights = c if SAME else c // M, c
        if TRANSPOSED:
            source = c if SAME else c * M + m
            weights = source
        filters = w + weights
        for jd in range(KD):
            plane, seen_d = n * xn, exists
            if VOLUME:
                id_, seen = _source(od, jd * dd, ID, sd, pd, TRANSPOSED, STRIDED)
                plane += id_ * xd
                seen_d = seen_d & seen
            for jh in range(KH):
                ih, seen = _source(oh, jh * dh, IH, sh, ph, TRANSPOSED, STRIDED)
                row, seen_h = plane + ih * xh, seen_d & seen
                for jw in range(KW):
                    iw, seen = _source(ow, jw * dw, IW, sw, pw, TRANSPOSED, STRIDED)
                    at = x + outer(row + iw * xw, source * xc, LAST)
                    v = tl.load(at, both(seen_h & seen, real, LAST), 0.0).to(tl.float32)
                    f = tl.load(filters, real, 0.0).to(tl.float32)
                    acc += v * _pixels(f, not LAST)
                    filters += outer_channels
    if BIAS:
        acc += _pixels(tl.load(bias + c, real, 0.0).to(tl.float32), not LAST)
    out = y + outer(n * yn + od * yd + oh * yh + ow * yw, c * yc, LAST)
    tl.store(out, acc.to(y.dtype.element_ty), both(exists, real, LAST))


@triton.jit(
    do_not_specialize=[
        "N", "steps", "C", "M", "ID", "IH", "IW", "OD", "OH", "OW", "xn", "xc", "xd", "xh", "xw",
        "yn", "yc", "yd", "yh", "yw", "KD", "KH", "KW", "sd", "sh", "sw", "pd", "ph", "pw", "dd", "dh", "dw",
    ]
)  # fmt: skip
def depthwise_weight(
    x, dy, parts, N, steps, C, M, ID, IH, IW, OD, OH, OW, xn, xc, xd, xh, xw, yn, yc, yd, yh, yw,
    KD, KH, KW, sd, sh, sw, pd, ph, pw, dd, dh, dw,
    VOLUME: tl.constexpr, SAME: tl.constexpr, LAST: tl.constexpr, ALIGN: tl.constexpr,
    BT: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Parts [parts, C M, KD KH KW] of the weight gradient.

    A program sums `steps` blocks of BP pixels for BT taps of BC output channels: dy is read once for all of them.
    """
    K, taps = C * M, KD * KH * KW
    if LAST:
        xc = 1
        yc = 1
        xn, xd, xh, xw = multiple(xn, ALIGN), multiple(xd, ALIGN), multiple(xh, ALIGN), multiple(xw, ALIGN)
        yn, yd, yh, yw = multiple(yn, ALIGN), multiple(yd, ALIGN), multiple(yh, ALIGN), multiple(yw, ALIGN)
        K = multiple(K, ALIGN)
    across, blocks = tl.cdiv(taps, BT), tl.cdiv(K, BC)
    tap = tl.program_id(0) % across * BT + tl.arange(0, BT)
    k = tl.program_id(0) // across % blocks * BC + tl.arange(0, BC)
    split = tl.program_id(0) // across // blocks
    jd, jh, jw = tap // (KH * KW) * dd - pd, tap // KW % KH * dh - ph, tap % KW * dw - pw
    shift = (jd * xd + jh * xh + jw * xw)[:, None, None]
    jd, jh, jw, real = jd[:, None, None], jh[:, None, None], jw[:, None, None], (tap < taps)[:, None, None]
    n, d, h, w = unravel(split * steps * BP + tl.arange(0, BP), OD, OH, OW, VOLUME)
    acc = tl.zeros((BT, BP, BC), tl.float32) if LAST else tl.zeros((BT, BC, BP), tl.float32)
    for _ in range(steps):
        exists = both(n < N, k < K, LAST)
        g = tl.load(dy + outer(n * yn + d * yd + h * yh + w * yw, k * yc, LAST), exists, 0.0).to(tl.float32)
        seen = real & exists[None, :, :]
        seen = seen & inside(_pixels(h * sh, LAST)[None, :, :] + jh, IH)
        seen = seen & inside(_pixels(w * sw, LAST)[None, :, :] + jw, IW)
        if VOLUME:
            seen = seen & inside(_pixels(d * sd, LAST)[None, :, :] + jd, ID)
        row = n * xn + d * sd * xd + h * sh * xh + w * sw * xw
        v = tl.load(x + (outer(row, (k if SAME else k // M) * xc, LAST)[None, :, :] + shift), seen, 0.0).to(tl.float32)
        acc += v * g[None, :, :]
        n, d, h, w = advance(n, d, h, w, BP, OD, OH, OW, VOLUME)
    out = parts + split.to(tl.int64) * (K * taps) + (tap[:, None] + k[None, :] * taps)
    tl.store(out, tl.sum(acc, 1 if LAST else 2), (tap < taps)[:, None] & (k < K)[None, :])
