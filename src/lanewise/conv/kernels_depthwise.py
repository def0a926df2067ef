"""Depthwise convolution in Triton: every output channel reads one input channel, so there is no matrix product.

Output channel k reads input channel k // M. SAME says that M is 1: then channels are vectors on both sides.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.conv.kernels import advance, axis, both, inside, multiple, outer, unravel


@triton.jit
def _pixels(v, CHANNELS_LAST: tl.constexpr):
    """Values of pixels as they stand in a tile of `outer`."""
    return v[:, None] if CHANNELS_LAST else v[None, :]


@triton.jit(
    do_not_specialize=[
        "pixels", "C", "M", "ID", "IH", "IW", "PD", "PH", "PW", "OD", "OH", "OW", "xn", "xc", "xd", "xh", "xw",
        "yn", "yc", "yd", "yh", "yw", "KD", "KH", "KW", "sd", "sh", "sw", "pd", "ph", "pw", "dd", "dh", "dw",
        "td", "th", "tw", "ad", "ah", "aw",
    ]
)  # fmt: skip
def depthwise(
    x, w, bias, y, pixels, C, M, ID, IH, IW, PD, PH, PW, OD, OH, OW, xn, xc, xd, xh, xw, yn, yc, yd, yh, yw,
    KD, KH, KW, sd, sh, sw, pd, ph, pw, dd, dh, dw, td, th, tw, ad, ah, aw,
    TRANSPOSED: tl.constexpr, VOLUME: tl.constexpr, SAME: tl.constexpr, LAST: tl.constexpr, BIAS: tl.constexpr,
    ALIGN: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Forward: y [N, C M, OD, OH, OW] from x [N, C, ID, IH, IW]. TRANSPOSED, the input gradient: y [N, C, ...], the
    gradient of the input, from x [N, C M, ...], that of the output. Weights w [KD KH KW, C M].

    A program makes BP pixels of BC channels, of one phase, of which there are `pixels`; what is met along an axis, and
    what s, p, d, t and a are, is explained in `kernels`.
    """
    made, weights = C if TRANSPOSED else C * M, C * M  # channels of y; of w
    if LAST:
        xc = 1
        yc = 1
        xn, xd, xh, xw = multiple(xn, ALIGN), multiple(xd, ALIGN), multiple(xh, ALIGN), multiple(xw, ALIGN)
        yn, yd, yh, yw = multiple(yn, ALIGN), multiple(yd, ALIGN), multiple(yh, ALIGN), multiple(yw, ALIGN)
        made = multiple(made, ALIGN)
        if SAME:
            weights = multiple(weights, ALIGN)
    across, down = tl.cdiv(made, BC), tl.cdiv(pixels, BP)
    c = tl.program_id(0) % across * BC + tl.arange(0, BC)
    r = tl.program_id(0) // across % down * BP + tl.arange(0, BP)
    phase = tl.program_id(0) // across // down
    phase_w, phase_h, phase_d = phase % sw, phase // sw % sh, phase // sw // sh
    first_w, count_w, start_w, scale_w = axis(phase_w, KW, sw, pw, dw, tw, TRANSPOSED)
    first_h, count_h, start_h, scale_h = axis(phase_h, KH, sh, ph, dh, th, TRANSPOSED)
    first_d, count_d, start_d, scale_d = axis(phase_d, KD, sd, pd, dd, td, TRANSPOSED)
    n, od, oh, ow = unravel(r, PD, PH, PW, VOLUME)
    ih, iw, id_ = oh * scale_h + start_h, ow * scale_w + start_w, od * scale_d + start_d
    real, exists = c < made, r < pixels
    acc = tl.zeros((BP, BC), tl.float32) if LAST else tl.zeros((BC, BP), tl.float32)
    for m in range(M if TRANSPOSED else 1):
        source, filters = c if SAME else c // M, w + c
        if TRANSPOSED:
            source = c if SAME else c * M + m
            filters = w + source
        for jd in range(count_d):
            plane, seen_d = n * xn, exists
            if VOLUME:
                plane += (id_ + jd * ad) * xd
                seen_d = seen_d & inside(id_ + jd * ad, ID)
            for jh in range(count_h):
                row, seen_h = plane + (ih + jh * ah) * xh, seen_d & inside(ih + jh * ah, IH)
                tap = ((first_d + jd * td) * KH + first_h + jh * th) * KW + first_w
                for jw in range(count_w):
                    at = x + outer(row + (iw + jw * aw) * xw, source * xc, LAST)
                    v = tl.load(at, both(seen_h & inside(iw + jw * aw, IW), real, LAST), 0.0).to(tl.float32)
                    f = tl.load(filters + tap * weights, real, 0.0).to(tl.float32)
                    acc += v * _pixels(f, not LAST)
                    tap += tw
    if BIAS:
        acc += _pixels(tl.load(bias + c, real, 0.0).to(tl.float32), not LAST)
    if TRANSPOSED:
        od, oh, ow = od * sd + phase_d, oh * sh + phase_h, ow * sw + phase_w
        exists = exists & (od < OD) & (oh < OH) & (ow < OW)
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
