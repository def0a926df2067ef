"""Forward and input gradient as one implicit matrix product in Triton, and what all convolution kernels share.

Both are correlations. An output pixel meets input pixels along each axis at

    position = output * scale + start + j * advance,  j = 0 .. count - 1,  through weight first + j * spacing.

Forward: scale = stride, start = -padding, advance = dilation, and every weight is met. The input gradient's "output" is
the input x, its "input" the output's gradient dy. An x at p = phase + stride * output is met by those weights t for
which stride divides p + padding - t * dilation: they depend on the phase alone. With g = gcd(stride, dilation) they are
spacing = stride / g apart, and dy moves by advance = -dilation / g from one to the next. So each phase is a correlation
of scale 1, and no product with a zero between strides is made.

Tensors are 64-bit pointers and 32-bit offsets, counted in elements; the launch checks that they suffice. No whole
number is specialized on: what a compiler wants to know of them (ALIGN: the power of two that divides the strides)
is a constant of its own.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def multiple(n, ALIGN: tl.constexpr):
    """n, which ALIGN divides, in a form in which the compiler can see that."""
    return n // ALIGN * ALIGN


@triton.jit
def outer(pixels, channels, CHANNELS_LAST: tl.constexpr):
    """Sums of offsets, [pixels, channels] or [channels, pixels]: what neighbours in memory stands last."""
    return pixels[:, None] + channels[None, :] if CHANNELS_LAST else channels[:, None] + pixels[None, :]


@triton.jit
def both(pixels, channels, CHANNELS_LAST: tl.constexpr):
    """Where both masks hold, in `outer`'s shape."""
    return pixels[:, None] & channels[None, :] if CHANNELS_LAST else channels[:, None] & pixels[None, :]


@triton.jit
def pixels_first(tile, CHANNELS_LAST: tl.constexpr):
    """A tile in `outer`'s shape as [pixels, channels]."""
    return tile if CHANNELS_LAST else tl.trans(tile)


@triton.jit
def inside(position, size):
    """Whether 0 <= position < size, in one comparison."""
    return position.to(tl.uint32, bitcast=True) < size.to(tl.uint32, bitcast=True)


@triton.jit
def unravel(index, D, H, W, VOLUME: tl.constexpr):
    """(n, d, h, w) of pixels numbered through [N, D, H, W]; D is 1 unless VOLUME."""
    w, rest = index % W, index // W
    h, rest = rest % H, rest // H
    d = tl.zeros_like(h)
    if VOLUME:
        d, rest = rest % D, rest // D
    return rest, d, h, w


@triton.jit
def advance(n, d, h, w, STEP, D, H, W, VOLUME: tl.constexpr):
    """The pixels that stand STEP numbers after (n, d, h, w), by carrying: no division for each of them."""
    w += STEP % W
    over = w >= W
    w = tl.where(over, w - W, w)
    h += STEP // W % H + over.to(tl.int32)
    over = h >= H
    h = tl.where(over, h - H, h)
    if VOLUME:
        d += STEP // W // H % D + over.to(tl.int32)
        over = d >= D
        d = tl.where(over, d - D, d)
    return n + STEP // W // H // D + over.to(tl.int32), d, h, w


@triton.jit
def axis(phase, K, stride, padding, dilation, spacing, TRANSPOSED: tl.constexpr):
    """(first, count, start, scale) of the correlation along one axis, as explained at the top."""
    first, count, start, scale = 0, K, -padding, stride
    if TRANSPOSED:
        first = K
        for t in range(tl.minimum(K, spacing)):
            first = tl.where((phase + padding - t * dilation) % stride == 0, tl.minimum(first, t), first)
        count, start = (K - first + spacing - 1) // spacing, (phase + padding - first * dilation) // stride
        scale = 1
    return first, count, start, scale


@triton.jit(
    do_not_specialize=[
        "rows", "groups", "CI", "CO", "ID", "IH", "IW", "PD", "PH", "PW", "OD", "OH", "OW",
        "xn", "xd", "xh", "xw", "yn", "yc", "yd", "yh", "yw", "KD", "KH", "KW", "sd", "sh", "sw",
        "pd", "ph", "pw", "dd", "dh", "dw", "td", "th", "tw", "ad", "ah", "aw", "splits", "part", "run",
    ]
)  # fmt: skip
def correlate(
    x, w, bias, y, rows, groups, CI, CO, ID, IH, IW, PD, PH, PW, OD, OH, OW,
    xn, xd, xh, xw, yn, yc, yd, yh, yw, KD, KH, KW, sd, sh, sw, pd, ph, pw, dd, dh, dw, td, th, tw, ad, ah, aw,
    splits, part, run,
    TRANSPOSED: tl.constexpr, VOLUME: tl.constexpr, RUNS: tl.constexpr, FLAT: tl.constexpr, PLANES: tl.constexpr,
    BIAS: tl.constexpr,
    ALIGN: tl.constexpr, W_ALIGN: tl.constexpr, Y_ALIGN: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """y [N, groups CO, OD, OH, OW] = x [N, groups CI, ID, IH, IW] correlated with w [groups, CO, KD KH KW, CI], + bias.

    x has channels as neighbours, and so has y unless PLANES. A program makes BM pixels of BN channels of one group and
    phase. Phases have PD PH PW pixels an image, `rows` in all. FLAT: there is one phase, and y's pixels lie at one
    distance, with PLANES as neighbours. Strides of x and y by axis; s, p, d, t, a are stride, padding, dilation,
    spacing and advance.
    RUNS: what is called a channel is a (weight along W, channel) pair, which are neighbours in memory, KW is 1, and an
    x has `run` channels. So few channels fill a block of a product.
    The sum over weights and blocks of BK channels is cut into `splits`, each of which makes a y of its own, `part`
    numbers after the one before.
    """
    CI = multiple(CI, W_ALIGN)
    if not PLANES:
        CO = multiple(CO, Y_ALIGN)
    across, down = tl.cdiv(CO, BN), tl.cdiv(rows, BM)
    program = tl.program_id(0)
    channel = program % across * BN + tl.arange(0, BN)
    r = program // across % down * BM + tl.arange(0, BM)
    program = program // across // down
    group, program = (program % groups).to(tl.int64), program // groups
    split, phase = program % splits, program // splits
    phase_w, phase_h, phase_d = phase % sw, phase // sw % sh, phase // sw // sh

    first_w, count_w, start_w, scale_w = axis(phase_w, KW, sw, pw, dw, tw, TRANSPOSED)
    first_h, count_h, start_h, scale_h = axis(phase_h, KH, sh, ph, dh, th, TRANSPOSED)
    first_d, count_d, start_d, scale_d = axis(phase_d, KD, sd, pd, dd, td, TRANSPOSED)

    xn, xd, xh, xw = multiple(xn, ALIGN), multiple(xd, ALIGN), multiple(xh, ALIGN), multiple(xw, ALIGN)
    n, od, oh, ow = unravel(r, PD, PH, PW, VOLUME)
    exists = r < rows
    ih, iw = oh * scale_h + start_h, ow * scale_w + start_w
    row = n * xn + ih * xh + iw * xw
    if VOLUME:
        id_ = od * scale_d + start_d
        row += id_ * xd
    x += group * CI
    w += group * CO * (KD * KH * KW) * CI
    taps = KD * KH * KW
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    blocks = tl.cdiv(CI, BK)
    total = count_d * count_h * count_w * blocks
    begin, end = total * split // splits, total * (split + 1) // splits
    c0, j, jw, jh, jd = begin % blocks * BK, begin // blocks, 0, 0, 0
    if begin < end:  # then no count is 0
        jw, jh, jd = j % count_w, j // count_w % count_h, j // count_w // count_h
    for _ in tl.range(begin, end, num_stages=STAGES):
        c = c0 + k
        seen = exists & inside(ih + jh * ah, IH)
        shift = jh * ah * xh + jw * aw * xw
        tap = (first_h + jh * th) * KW + first_w + jw * tw
        if VOLUME:
            seen = seen & inside(id_ + jd * ad, ID)
            shift += jd * ad * xd
            tap += (first_d + jd * td) * (KH * KW)
        if RUNS:
            seen = both(seen, c < CI, True) & inside(outer(iw * run, c, True), IW * run)
        else:
            seen = both(seen & inside(iw + jw * aw, IW), c < CI, True)
        a = tl.load(x + outer(row, shift + c, True), seen, 0.0)
        b = tl.load(w + outer(channel * (taps * CI), tap * CI + c, True), both(channel < CO, c < CI, True), 0.0)
        acc = tl.dot(a, tl.trans(b), acc, input_precision=PRECISION)
        c0 += BK
        over = c0 >= CI
        c0 = tl.where(over, 0, c0)
        jw = tl.where(over, jw + 1, jw)
        over = jw >= count_w
        jw = tl.where(over, 0, jw)
        jh = tl.where(over, jh + 1, jh)
        over = jh >= count_h
        jh = tl.where(over, 0, jh)
        jd = tl.where(over, jd + 1, jd)

    if BIAS:
        biased = tl.where(split == 0, CO, 0)  # channels
        acc += tl.load(bias + group * CO + channel, channel < biased, 0.0).to(tl.float32)[None, :]
    yn, yc = multiple(yn, Y_ALIGN), multiple(yc, Y_ALIGN) if PLANES else 1
    yd, yh, yw = multiple(yd, Y_ALIGN), multiple(yh, Y_ALIGN), multiple(yw, Y_ALIGN)
    r += c0 // CI * BM  # 0, which the compiler does not see: what follows is not kept in registers through the loop
    if PLANES:
        P = multiple(PD * PH * PW, Y_ALIGN)
        place, exists = r // P * yn + r % P, r < multiple(rows, Y_ALIGN)
    elif FLAT:
        P = PD * PH * PW
        place, exists = r // P * yn + r % P * yw, r < rows
    else:
        n, od, oh, ow = unravel(r, PD, PH, PW, VOLUME)
        if TRANSPOSED:
            od, oh, ow = od * sd + phase_d, oh * sh + phase_h, ow * sw + phase_w
        place, exists = n * yn + od * yd + oh * yh + ow * yw, (r < rows) & (ow < OW) & (oh < OH) & (od < OD)
    y += split.to(tl.int64) * multiple(part, Y_ALIGN)
    out = y + group * CO * yc + outer(place, channel * yc, True)
    tl.store(out, acc.to(y.dtype.element_ty), both(exists, channel < CO, True))
