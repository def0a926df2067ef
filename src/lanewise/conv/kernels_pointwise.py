"""Convolutions by single weights (1x1, stride 1) whose pixels are neighbours in memory, as plain matrix products.

They are bound by memory: each tensor is read or written once, in whole vectors. A sum or a side of up to 192 channels
is cut into two blocks of powers of two (96 = 64 + 32), so that nothing is computed for channels that are not there.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.conv.kernels import multiple


@triton.jit
def _pixels(tile, P, BP: tl.constexpr):
    """(image, pixels [BP]) of a tile; tiles are numbered through the pixels of an image, then through images."""
    per_image = tl.cdiv(P, BP)
    return (tile // per_image).to(tl.int64), tile % per_image * BP + tl.arange(0, BP)


@triton.jit
def _load(x, c, p, C, P, xc, WHOLE: tl.constexpr = False):
    """x[c, p], 0 where there is none; WHOLE says that there is everywhere."""
    if WHOLE:
        return tl.load(x + (c[:, None] * xc + p[None, :]))
    return tl.load(x + (c[:, None] * xc + p[None, :]), (c < C)[:, None] & (p < P)[None, :], 0.0)


@triton.jit
def _weights(w, o, i, CO, CI):
    """w[o, i], 0 where there is none."""
    return tl.load(w + (o[:, None] * CI + i[None, :]), (o < CO)[:, None] & (i < CI)[None, :], 0.0)


@triton.jit
def _bias(bias, o, CO, BIAS: tl.constexpr):
    """bias[o] in fp32, or zeros."""
    return tl.load(bias + o, o < CO, 0.0).to(tl.float32) if BIAS else tl.zeros(o.shape, tl.float32)


@triton.jit
def _store(y, acc, o, p, CO, P, yc):
    """y[o, p] = acc [p, o]."""
    out = tl.trans(acc).to(y.dtype.element_ty)
    tl.store(y + (o[:, None] * yc + p[None, :]), out, (o < CO)[:, None] & (p < P)[None, :])


@triton.jit(do_not_specialize=["tiles", "P", "CI", "CO", "xn", "xc", "yn", "yc"])
def narrow(
    x, w, bias, y, tiles, P, CI, CO, xn, xc, yn, yc,
    BIAS: tl.constexpr, ALIGN: tl.constexpr, W_ALIGN: tl.constexpr, PRECISION: tl.constexpr,
    I1: tl.constexpr, I2: tl.constexpr, O1: tl.constexpr, O2: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """y [N, CO, P] = w [CO, CI] x [N, CI, P] + bias, CI <= I1 + I2, CO <= O1 + O2.

    Programs walk over all tiles of pixels and keep the weights.
    """
    P, xn, xc, CI = multiple(P, ALIGN), multiple(xn, ALIGN), multiple(xc, ALIGN), multiple(CI, W_ALIGN)
    yn, yc = multiple(yn, ALIGN), multiple(yc, ALIGN)
    i1, i2, o1, o2 = tl.arange(0, I1), I1 + tl.arange(0, I2 or 1), tl.arange(0, O1), O1 + tl.arange(0, O2 or 1)
    b1, b2 = _bias(bias, o1, CO, BIAS), _bias(bias, o2, CO, BIAS)
    w11 = tl.trans(_weights(w, o1, i1, CO, CI))
    if I2:
        w12 = tl.trans(_weights(w, o1, i2, CO, CI))
    if O2:
        w21 = tl.trans(_weights(w, o2, i1, CO, CI))
        if I2:
            w22 = tl.trans(_weights(w, o2, i2, CO, CI))
    n, p = _pixels(tl.program_id(0), P, BP)
    x1 = _load(x + n * xn, i1, p, CI, P, xc)
    if I2:
        x2 = _load(x + n * xn, i2, p, CI, P, xc)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        a1 = tl.trans(x1)
        if I2:
            a2 = tl.trans(x2)
        # The next tile is on its way while this one is multiplied. (Left to the compiler, it would be copied number by
        # number: the transposed operand's order in shared memory is not that of the vectors.)
        after, q = _pixels(tile + tl.num_programs(0), P, BP)
        end = tl.where(tile + tl.num_programs(0) < tiles, P, 0)
        x1 = _load(x + after * xn, i1, q, CI, end, xc)
        if I2:
            x2 = _load(x + after * xn, i2, q, CI, end, xc)
        acc = tl.dot(a1, w11, input_precision=PRECISION)
        if I2:
            acc = tl.dot(a2, w12, acc, input_precision=PRECISION)
        _store(y + n * yn, acc + b1[None, :], o1, p, CO, P, yc)
        if O2:
            acc = tl.dot(a1, w21, input_precision=PRECISION)
            if I2:
                acc = tl.dot(a2, w22, acc, input_precision=PRECISION)
            _store(y + n * yn, acc + b2[None, :], o2, p, CO, P, yc)
        n, p = after, q


@triton.jit(do_not_specialize=["P", "CI", "CO", "xn", "xc", "yn", "yc"])
def wide(
    x, w, bias, y, P, CI, CO, xn, xc, yn, yc,
    BIAS: tl.constexpr, ALIGN: tl.constexpr, W_ALIGN: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """`narrow` for any number of channels: a program makes BM pixels of BN channels."""
    P, xn, xc, CI = multiple(P, ALIGN), multiple(xn, ALIGN), multiple(xc, ALIGN), multiple(CI, W_ALIGN)
    yn, yc = multiple(yn, ALIGN), multiple(yc, ALIGN)
    across = tl.cdiv(CO, BN)
    o = tl.program_id(0) % across * BN + tl.arange(0, BN)
    n, p = _pixels(tl.program_id(0) // across, P, BM)
    x += n * xn
    acc = tl.zeros((BN, BM), tl.float32)
    for i in tl.range(0, CI, BK, num_stages=STAGES):
        c = i + tl.arange(0, BK)
        a, b = _weights(w, o, c, CO, CI), _load(x, c, p, CI, P, xc)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    _store(y + n * yn, tl.trans(acc) + _bias(bias, o, CO, BIAS)[None, :], o, p, CO, P, yc)


@triton.jit(do_not_specialize=["splits", "tiles", "P", "CI", "CO", "xn", "xc", "yn", "yc", "part"])
def pointwise_weight(
    x, dy, parts, splits, tiles, P, CI, CO, xn, xc, yn, yc, part,
    ALIGN: tl.constexpr, W_ALIGN: tl.constexpr, WHOLE: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, BP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Parts [splits, CO, CI] of dy [N, CO, P] x [N, CI, P]^T summed over images and pixels.

    A program sums every `splits`-th tile of BP pixels for BM output and N1 + N2 input channels: what runs at one time
    reads neighbouring tiles. WHOLE: blocks have no channel and no pixel that is not there, so that nothing is masked.
    """
    P, xn, xc = multiple(P, ALIGN), multiple(xn, ALIGN), multiple(xc, ALIGN)
    yn, yc, CI, part = multiple(yn, ALIGN), multiple(yc, ALIGN), multiple(CI, W_ALIGN), multiple(part, W_ALIGN)
    across, down = tl.cdiv(CI, N1 + N2), tl.cdiv(CO, BM)
    program = tl.program_id(0)
    c1 = program % across * (N1 + N2) + tl.arange(0, N1)
    c2 = program % across * (N1 + N2) + N1 + tl.arange(0, N2 or 1)
    k = program // across % down * BM + tl.arange(0, BM)
    split = program // across // down
    acc1 = tl.zeros((BM, N1), tl.float32)
    acc2 = tl.zeros((BM, N2 or 1), tl.float32)
    for tile in tl.range(split, tiles, splits, num_stages=STAGES):
        n, p = _pixels(tile, P, BP)
        a = _load(dy + n * yn, k, p, CO, P, yc, WHOLE)
        b = _load(x + n * xn, c1, p, CI, P, xc, WHOLE)
        acc1 = tl.dot(a, tl.trans(b), acc1, input_precision=PRECISION)
        if N2:
            b = _load(x + n * xn, c2, p, CI, P, xc, WHOLE)
            acc2 = tl.dot(a, tl.trans(b), acc2, input_precision=PRECISION)
    k += tl.minimum(tiles, 0)  # 0, which the compiler does not see: addresses are not kept through the loop
    out = parts + split.to(tl.int64) * part + k[:, None] * CI
    tl.store(out + c1[None, :], acc1, (k < CO)[:, None] & (c1 < CI)[None, :])
    if N2:
        tl.store(out + c2[None, :], acc2, (k < CO)[:, None] & (c2 < CI)[None, :])
