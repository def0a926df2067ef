"""The weight gradient in Triton where both operands have pixels as neighbours: a product without gaps or masks.

Matrix instructions of 32-bit numbers want the axis that is summed, pixels here, innermost in memory. x as it is would
be shifted against whole vectors by the weights along W, so `kernels_layout.windows` makes a copy for each of those.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.conv.kernels import advance, both, multiple, outer, unravel


@triton.jit(
    do_not_specialize=[
        "pixels", "splits", "groups", "CI", "CO", "OD", "OH", "width", "xj", "xc", "xn", "xd", "xh", "yn", "y",
        "KD", "KH", "KW", "sd", "sh", "dd", "dh", "part",
    ]
)  # fmt: skip
def windows_weight(
    x, dy, parts, pixels, splits, groups, CI, CO, OD, OH, width, xj, xc, xn, xd, xh, yn, y,
    KD, KH, KW, sd, sh, dd, dh, part,
    VOLUME: tl.constexpr, ALIGN: tl.constexpr, W_ALIGN: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Parts [splits, groups CO, taps, CI] of the weight gradient, `part` numbers each.

    x [KW, groups CI, N, D, H, width] and dy [N, groups CO, OD, OH, width] have `width` numbers a row, zeros at the end.
    An output pixel (d, h) meets x's rows (d sd + jd dd, h sh + jh dh). A program sums every `splits`-th block of BP of
    the `pixels` for BM output channels and BN (tap, input channel) pairs of one group: what runs at one time reads
    neighbouring blocks.
    """
    pixels, width, y, yn = multiple(pixels, ALIGN), multiple(width, ALIGN), multiple(y, ALIGN), multiple(yn, ALIGN)
    xj, xc, xn = multiple(xj, ALIGN), multiple(xc, ALIGN), multiple(xn, ALIGN)
    xd, xh, taps = multiple(xd, ALIGN), multiple(xh, ALIGN), KD * KH * KW
    across, down = tl.cdiv(taps * CI, BN), tl.cdiv(CO, BM)
    program = tl.program_id(0)
    pair = program % across * BN + tl.arange(0, BN)
    k = program // across % down * BM + tl.arange(0, BM)
    program = program // across // down
    group, split = (program % groups).to(tl.int64), program // groups
    tap, c = pair // CI, pair % CI
    row = c * xc + tap % KW * xj + tap // KW % KH * dh * xh + tap // KW // KH * dd * xd
    x += group * CI * xc
    dy += group * CO * y
    pixel = split * BP + tl.arange(0, BP)
    n, d, h, w = unravel(pixel, OD, OH, width, VOLUME)
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in tl.range(split, tl.cdiv(pixels, BP), splits, num_stages=STAGES):
        exists = pixel < pixels
        # In groups of ALIGN pixels are neighbours, which the compiler does not see for itself.
        at = tl.max_contiguous(tl.multiple_of(pixel + n * (yn - OD * OH * width), ALIGN), ALIGN)
        a = tl.load(dy + outer(at, k * y, False), both(exists, k < CO, False), 0.0)
        at = n * xn + h * sh * xh + w
        if VOLUME:
            at += d * sd * xd
        at = tl.max_contiguous(tl.multiple_of(at, ALIGN), ALIGN)
        b = tl.load(x + outer(at, row, False), both(exists, tap < taps, False), 0.0)
        acc = tl.dot(a, tl.trans(b), acc, input_precision=PRECISION)
        pixel += splits * BP
        n, d, h, w = advance(n, d, h, w, splits * BP, OD, OH, width, VOLUME)
    k += tl.minimum(splits, 0)  # 0, which the compiler does not see: addresses are not kept through the loop
    size = multiple(taps * CI, W_ALIGN)
    out = parts + split.to(tl.int64) * multiple(part, W_ALIGN) + group * CO * size
    tl.store(out + outer(k * size, pair, True), acc, both(k < CO, tap < taps, True))
