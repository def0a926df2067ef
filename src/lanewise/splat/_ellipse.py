"""What the Triton kernels keep of a Gaussian's shape, and the ellipse in which shading may count it: what binning and
rasterizing share.

A record [6] is: mean x, y; p, r, q of the exponent p u^2 + q dy^2 with u = dx + r dy, in units of log2 e; opacity.
Exponents as sums of squares do not cancel in thin Gaussians, and neither does anything that is derived from p, r and q.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.splat.binning.reference import DEGENERATE, EVERYWHERE, ROUNDING
from lanewise.splat.rasterize.lists import RECORD

_DEGENERATE, _EVERYWHERE, _ROUNDING = tl.constexpr(DEGENERATE), tl.constexpr(EVERYWHERE), tl.constexpr(ROUNDING)
_MINUS_HALF_LOG2E, _MINUS_TWO_LN2 = tl.constexpr(-0.7213475204444817), tl.constexpr(-1.3862943611198906)
_RECORD = tl.constexpr(RECORD)


@triton.jit
def gaussians_of(pid, N, BLOCK: tl.constexpr):
    """Of program `pid`, which takes a block of the N Gaussians of one image: that image, int64, the Gaussians [BLOCK]
    within it, and which of them exist."""
    programs = tl.cdiv(N, BLOCK)
    n = pid % programs * BLOCK + tl.arange(0, BLOCK)
    return (pid // programs).to(tl.int64), n, n < N


@triton.jit
def record_of(means2d, conics, opacities, g, row, mask):
    """The records of Gaussians g [n], whose opacities are in rows `row`: six tensors [n]."""
    a, b, c = (
        tl.load(conics + g * 3, mask, 1.0),
        tl.load(conics + g * 3 + 1, mask, 0.0),
        tl.load(conics + g * 3 + 2, mask, 1.0),
    )
    # The determinant cancels in thin Gaussians: the products of two fp32 numbers are exact in fp64.
    det = (a.to(tl.float64) * c.to(tl.float64) - b.to(tl.float64) * b.to(tl.float64)).to(tl.float32)
    return (
        tl.load(means2d + g * 2, mask, 0.0),
        tl.load(means2d + g * 2 + 1, mask, 0.0),
        a * _MINUS_HALF_LOG2E,
        b / a,
        det / a * _MINUS_HALF_LOG2E,
        tl.load(opacities + row, mask, 0.0),
    )


@triton.jit
def store_record(records, g, mx, my, p, r, q, o, mask):
    """Write records g [n], two numbers a store: a third of the partial writes."""
    two = tl.arange(0, 2)[None, :]
    record, both = records + g[:, None] * _RECORD + two, mask[:, None] & (two < 2)
    tl.store(record, tl.join(mx, my), both)
    tl.store(record + 2, tl.join(p, r), both)
    tl.store(record + 4, tl.join(q, o), both)


@triton.jit
def ellipse(p, r, q, opacity):
    """The ellipse {alpha >= 1/255} with its rounding margin, `reference.threshold` with the margin doubled since all is
    fp32 here: half its height, y of its rightmost point, and slope, square and fall of its right edge
    slope y + sqrt(square - fall y^2); fall is 0 where the conic is degenerate, and the ellipse everywhere."""
    a, s = p * _MINUS_TWO_LN2, q * _MINUS_TWO_LN2  # the conic is a u^2 + s dy^2
    c = s + r * r * a
    thin = (s > c * _DEGENERATE) == 0
    safe = tl.where(thin, 1.0, s)
    t = tl.maximum(tl.log(tl.maximum(255.0 * opacity, 1e-30)), 0.0)
    t += (1.0 + t * tl.where(thin, 0.0, tl.sqrt(c / safe))) * (2.0 * _ROUNDING)
    inverse = 1.0 / a
    half_x = tl.where(thin, _EVERYWHERE, tl.sqrt(2.0 * t * c / safe * inverse))
    half_y = tl.where(thin, _EVERYWHERE, tl.sqrt(2.0 * t / safe))
    return half_y, -r * a / c * half_x, -r, 2.0 * t * inverse, tl.where(thin, 0.0, s * inverse)
