"""Changing the memory order of images in Triton."""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.conv.kernels import both, inside, multiple, outer, unravel


@triton.jit(do_not_specialize=["R", "C", "an", "ar", "bn", "bc"])
def transpose(
    a, b, R, C, an, ar, bn, bc, ALIGN: tl.constexpr, B_ALIGN: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr
):
    """b[n, c, r] = a[n, r, c] for r < R, c < C; the last axis of each has stride 1. A program moves BR by BC."""
    an, ar, C = multiple(an, ALIGN), multiple(ar, ALIGN), multiple(C, ALIGN)
    bn, bc, R = multiple(bn, B_ALIGN), multiple(bc, B_ALIGN), multiple(R, B_ALIGN)
    across, down = tl.cdiv(C, BC), tl.cdiv(R, BR)
    n = (tl.program_id(0) // across // down).to(tl.int64)
    c = tl.program_id(0) % across * BC + tl.arange(0, BC)
    r = tl.program_id(0) // across % down * BR + tl.arange(0, BR)
    tile = tl.load(a + n * an + (r[:, None] * ar + c[None, :]), (r < R)[:, None] & (c < C)[None, :])
    tl.store(b + n * bn + (c[:, None] * bc + r[None, :]), tl.trans(tile), (c < C)[:, None] & (r < R)[None, :])


@triton.jit(
    do_not_specialize=[
        "C", "Q", "ID", "IH", "IW", "OD", "OH", "OW", "width", "xn", "xc", "xd", "xh", "xw",
        "KW", "rd", "rh", "rw", "pd", "ph", "pw", "dw",
    ]
)  # fmt: skip
def windows(
    x, out, C, Q, ID, IH, IW, OD, OH, OW, width, xn, xc, xd, xh, xw, KW, rd, rh, rw, pd, ph, pw, dw,
    VOLUME: tl.constexpr, LAST: tl.constexpr, ALIGN: tl.constexpr, VECTOR: tl.constexpr,
    BQ: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """out[j, c, n, d, h, w] = x[n, c, d rd - pd, h rh - ph, w rw - pw + j dw] for j < KW, c < C, d < OD, h < OH and
    w < OW, and 0 where x has no such place and for OW <= w < width, which VECTOR divides.

    out has Q numbers for each j and c. A program makes BQ of them for BC channels, which with LAST are neighbours in x.
    """
    if LAST:
        xc = 1
        xn, xd, xh, xw = multiple(xn, ALIGN), multiple(xd, ALIGN), multiple(xh, ALIGN), multiple(xw, ALIGN)
        C = multiple(C, ALIGN)
    Q, width = multiple(Q, VECTOR), multiple(width, VECTOR)
    across = tl.cdiv(C, BC)
    c = tl.program_id(0) % across * BC + tl.arange(0, BC)
    q = tl.program_id(0) // across * BQ + tl.arange(0, BQ)
    n, d, h, w = unravel(q, OD, OH, width, VOLUME)
    seen = (q < Q) & (w < OW)
    d, h, w = d * rd - pd, h * rh - ph, w * rw - pw
    seen = seen & inside(h, IH)
    if VOLUME:
        seen = seen & inside(d, ID)
    row = n * xn + d * xd + h * xh
    out += c[:, None] * Q + q[None, :]
    for _ in range(KW):
        tile = tl.load(x + outer(row + w * xw, c * xc, LAST), both(seen & inside(w, IW), c < C, LAST), 0.0)
        tl.store(out, tl.trans(tile) if LAST else tile, (c < C)[:, None] & (q < Q)[None, :])
        w += dw
        out += C * Q
