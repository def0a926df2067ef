"""Changing the memory order of images in Triton."""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.conv.kernels import multiple


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
