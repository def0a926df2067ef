"""L1 + SSIM and its gradient in Triton: strips of pictures, row after row.

A picture [H, W, D] is H rows of L = W * D numbers; a neighbour in x is then D numbers away. A program owns BLOCK
columns of `rows` rows. It sums each row that it reads along x, and adds the sum, by its weight, to the ten windows
that are still open in y: both halves of the separable window stay in registers, and what overlaps between programs
is read again from a cache.

With u, v, w the derivatives of a window's similarity by E[x], E[x^2], E[x y] (`cpu.py`), and q = 2 v + w:
    d / d x_p = sum over windows k of g(p - k) (u_k + x_p q_k - (x_p - y_p) w_k)
"""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.train.photometric.reference import C1, C2, WINDOW, window

_C1, _C2, _TAPS, _BORDER = tl.constexpr(C1), tl.constexpr(C2), tl.constexpr(WINDOW), tl.constexpr(WINDOW // 2)
_G0, _G1, _G2, _G3, _G4, _G5 = (tl.constexpr(weight) for weight in window().tolist()[: WINDOW // 2 + 1])


@triton.jit
def _strip(H, L, rows, BLOCK: tl.constexpr):
    """This program's picture, first row and columns [BLOCK]; programs are numbered along x, then y, then pictures."""
    across, down = (L + BLOCK - 1) // BLOCK, (H + rows - 1) // rows
    strip = tl.program_id(0)
    picture, y = strip // (across * down), strip // across % down
    return picture.to(tl.int64), y * rows, strip % across * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def _open_windows(BLOCK: tl.constexpr):
    """The sums of the ten windows that are open in y: none has begun."""
    zero = tl.zeros([BLOCK], tl.float32)
    return zero, zero, zero, zero, zero, zero, zero, zero, zero, zero


@triton.jit
def _take_row(s, row):
    """The sum of the window that ends with this row, and the open ones, the oldest first."""
    return s[0] + _G0 * row, (
        s[1] + _G1 * row,
        s[2] + _G2 * row,
        s[3] + _G3 * row,
        s[4] + _G4 * row,
        s[5] + _G5 * row,
        s[6] + _G4 * row,
        s[7] + _G3 * row,
        s[8] + _G2 * row,
        s[9] + _G1 * row,
        _G0 * row,
    )


@triton.jit
def _mask_row(mask, row, j, L, D: tl.constexpr, MASKED: tl.constexpr):
    """Where the mask of columns j of a row stands."""
    if MASKED:
        mask += row * (L // D) + j // D
    return mask


@triton.jit
def _counts(mask, exists, MASKED: tl.constexpr):
    """Whether pixels exist and count, `mask` pointing at them."""
    if MASKED:
        exists = tl.load(mask, exists, 0) != 0
    return exists


@triton.jit
def _moments(x_row, y_row, mask, D: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    """Weighted sums along x, from where the pointers [BLOCK] stand, of p, d, p^2 and d^2: p = x + y, d = x - y."""
    g = (_G0, _G1, _G2, _G3, _G4, _G5, _G4, _G3, _G2, _G1, _G0)
    zero = tl.zeros([BLOCK], tl.float32)
    sp, sd, spp, sdd = zero, zero, zero, zero
    for t in tl.static_range(_TAPS):
        x, y = tl.load(x_row + t * D), tl.load(y_row + t * D)
        p, d = x + y, x - y
        if MASKED:
            counts = tl.load(mask + t) != 0
            p, d = tl.where(counts, p, 0.0), tl.where(counts, d, 0.0)
        gp, gd = g[t] * p, g[t] * d
        sp, sd, spp, sdd = sp + gp, sd + gd, spp + gp * p, sdd + gd * d
    return sp, sd, spp, sdd


@triton.jit
def _similarity(mp, md, epp, edd):
    """1 - similarity of windows, and the similarity's u, q and w.

    similarity = (a1 a2) / (b1 b2), where b1 - a1 = md^2 and b2 - a2 = vd. Written with these two, nothing cancels
    where the pictures are nearly equal.
    """
    vp, vd = epp - mp * mp, edd - md * md  # variances of x + y and of x - y: 4 cov(x, y) is vp - vd
    mx, my = 0.5 * (mp + md), 0.5 * (mp - md)
    a1, b1 = 2.0 * mx * my + _C1, mx * mx + my * my + _C1
    a2, b2 = 0.5 * (vp - vd) + _C2, 0.5 * (vp + vd) + _C2
    inverse = 1.0 / (b1 * b2)
    w = 2.0 * a1 * inverse
    share = vd / b2
    u = w * (md - mx * share) + 2.0 * inverse * a2 * md * (mx * md / b1 - 1.0)
    return (md * md * b2 + a1 * vd) * inverse, u, w * share, w


@triton.jit(do_not_specialize=["H", "L", "rows", "plane"])
def similarity(
    render, target, mask, derivatives, sums, H, L, rows, plane,
    D: tl.constexpr, SSIM: tl.constexpr, GRADIENT: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums [4, programs] of |x - y|, of 1 - similarity, and of how many numbers and how many windows count.

    With GRADIENT also derivatives [3, plane], plane = C (H - 10) L: u, q and w of every window by its first row and
    column, and 0 in the last 10 D columns and in the 10 D numbers before them all. A program's windows are those whose
    first row and column it owns.
    """
    picture, top, j = _strip(H, L, rows, BLOCK)
    plane = plane.to(tl.int64)  # the argument's own width follows its value
    end, last = top + rows, L - (_TAPS - 1) * D - 1  # the last column where a window begins
    k = tl.minimum(j, last)  # columns past it repeat it: loads need no mask, and what they give is not counted
    zero = tl.zeros([BLOCK], tl.float32)
    difference, dissimilarity, numbers, windows = zero, zero, zero, zero
    REACH: tl.constexpr = _TAPS - 1 if SSIM else 0  # rows after its own that the program's windows end in
    p, d, pp, dd = _open_windows(BLOCK), _open_windows(BLOCK), _open_windows(BLOCK), _open_windows(BLOCK)
    for i in range(tl.minimum(rows + REACH, H - top)):
        row = picture * H + top + i
        x_row, y_row = render + row * L, target + row * L
        own = _counts(_mask_row(mask, row, j, L, D, MASKED), j < tl.where(top + i < end, L, 0), MASKED)
        difference += tl.abs(tl.load(x_row + j, own, 0.0) - tl.load(y_row + j, own, 0.0))
        numbers += tl.where(own, 1.0, 0.0)
        if SSIM:
            sp, sd, spp, sdd = _moments(x_row + k, y_row + k, _mask_row(mask, row, k, L, D, MASKED), D, MASKED, BLOCK)
            mp, p = _take_row(p, sp)
            md, d = _take_row(d, sd)
            epp, pp = _take_row(pp, spp)
            edd, dd = _take_row(dd, sdd)
            if i >= _TAPS - 1:
                counts = _counts(_mask_row(mask, row - _BORDER, j, L, D, MASKED) + _BORDER, j <= last, MASKED)
                dissimilar, u, q, w = _similarity(mp, md, epp, edd)
                dissimilarity += tl.where(counts, dissimilar, 0.0)
                windows += tl.where(counts, 1.0, 0.0)
                if GRADIENT:
                    out = derivatives + (picture * (H - _TAPS + 1) + top + i - (_TAPS - 1)) * L + j
                    tl.store(out, tl.where(counts, u, 0.0), j < L)
                    tl.store(out + plane, tl.where(counts, q, 0.0), j < L)
                    tl.store(out + 2 * plane, tl.where(counts, w, 0.0), j < L)
    if GRADIENT and SSIM:
        tl.store(derivatives - 1 - j, zero, j < tl.where(picture + top == 0, (_TAPS - 1) * D, 0))
    program, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0).to(tl.int64)
    tl.store(sums + program, tl.sum(difference, 0))
    tl.store(sums + programs + program, tl.sum(dissimilarity, 0))
    tl.store(sums + 2 * programs + program, tl.sum(numbers, 0))
    tl.store(sums + 3 * programs + program, tl.sum(windows, 0))


@triton.jit(do_not_specialize=["programs"])
def total(sums, loss, scales, programs, l1_weight, ssim_weight, BLOCK: tl.constexpr):
    """The loss, and the weights [2] of one number's difference and of one window's dissimilarity in it."""
    zero = tl.zeros([BLOCK], tl.float64)
    difference, dissimilarity, numbers, windows = zero, zero, zero, zero
    many = programs.to(tl.int64)
    for start in range(0, programs, BLOCK):
        k = (start + tl.arange(0, BLOCK)).to(tl.int64)
        inside = k < programs
        difference += tl.load(sums + k, inside, 0.0)
        dissimilarity += tl.load(sums + k + many, inside, 0.0)
        numbers += tl.load(sums + k + 2 * many, inside, 0.0)
        windows += tl.load(sums + k + 3 * many, inside, 0.0)
    l1_scale = l1_weight / tl.maximum(tl.sum(numbers, 0), 1.0)
    ssim_scale = ssim_weight / tl.maximum(tl.sum(windows, 0), 1.0)
    tl.store(loss, (l1_scale * tl.sum(difference, 0) + ssim_scale * tl.sum(dissimilarity, 0)).to(tl.float32))
    tl.store(scales, l1_scale.to(tl.float32))
    tl.store(scales + 1, ssim_scale.to(tl.float32))


@triton.jit(do_not_specialize=["H", "L", "rows", "plane"])
def gradient(
    render, target, mask, derivatives, scales, out, H, L, rows, plane,
    D: tl.constexpr, SSIM: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out [C, H, L]: the loss's gradient by `render`; every pixel sums over the windows that hold it."""
    picture, top, j = _strip(H, L, rows, BLOCK)
    plane = plane.to(tl.int64)  # the argument's own width follows its value
    k = tl.minimum(j, L - 1)  # columns past the last repeat it, and are not stored
    l1_scale, ssim_scale = tl.load(scales), tl.load(scales + 1)
    zero = tl.zeros([BLOCK], tl.float32)
    REACH: tl.constexpr = _TAPS - 1 if SSIM else 0  # rows before a pixel's own that its windows begin in
    s, t, st = _open_windows(BLOCK), _open_windows(BLOCK), _open_windows(BLOCK)
    for i in range(tl.minimum(rows, H - top) + REACH):
        first = top + i - REACH
        su, sq, sw = zero, zero, zero
        if SSIM:
            if (first >= 0) & (first < H - _TAPS + 1):
                at = derivatives + (picture * (H - _TAPS + 1) + first) * L + k
                su, sq, sw = _along_row(at, plane, D, BLOCK)
            su, s = _take_row(s, su)
            sq, t = _take_row(t, sq)
            sw, st = _take_row(st, sw)
        if i >= REACH:
            row = picture * H + first
            counts = _counts(_mask_row(mask, row, j, L, D, MASKED), j < L, MASKED)
            x, y = tl.load(render + row * L + j, counts, 0.0), tl.load(target + row * L + j, counts, 0.0)
            difference = x - y
            sign = tl.where(difference > 0, 1.0, tl.where(difference < 0, -1.0, difference))  # NaN stays NaN
            slope = l1_scale * sign - ssim_scale * (su + x * sq - difference * sw)
            tl.store(out + row * L + j, tl.where(counts, slope, 0.0), j < L)


@triton.jit
def _along_row(at, plane, D: tl.constexpr, BLOCK: tl.constexpr):
    """Weighted sums along x of u, q and w of the windows that begin where the pointers [BLOCK] stand or up to ten
    pixels before: before the first column these are zeros of the row before."""
    g = (_G0, _G1, _G2, _G3, _G4, _G5, _G4, _G3, _G2, _G1, _G0)
    zero = tl.zeros([BLOCK], tl.float32)
    su, sq, sw = zero, zero, zero
    for t in tl.static_range(_TAPS):
        su += g[t] * tl.load(at - t * D)
        sq += g[t] * tl.load(at + plane - t * D)
        sw += g[t] * tl.load(at + 2 * plane - t * D)
    return su, sq, sw
