"""The ellipse in which shading may count a Gaussian, in Triton: what binning and rasterizing share."""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.splat.binning.reference import DEGENERATE, EVERYWHERE, ROUNDING

_DEGENERATE, _EVERYWHERE, _ROUNDING = tl.constexpr(DEGENERATE), tl.constexpr(EVERYWHERE), tl.constexpr(ROUNDING)


@triton.jit
def enlarged_ellipse(a, b, c, opacity):
    """Determinant of conics (a, b, c) [n] (0: degenerate), threshold t of the exponent with its rounding margin, and
    half the width and the height of the ellipse, fp32; `reference.threshold` with the margin doubled, since all but
    the determinant is fp32 here."""
    # The determinant cancels in thin Gaussians: the products of two fp32 numbers are exact in fp64.
    det = (a.to(tl.float64) * c.to(tl.float64) - b.to(tl.float64) * b.to(tl.float64)).to(tl.float32)
    thin = (det > a * c * _DEGENERATE) == 0
    safe = tl.where(thin, 1.0, det)
    t = tl.maximum(tl.log(tl.maximum(255.0 * opacity, 1e-30)), 0.0)
    t += (1.0 + t * tl.where(thin, 0.0, tl.sqrt(a * c / safe))) * (2.0 * _ROUNDING)
    half_x = tl.where(thin, _EVERYWHERE, tl.sqrt(2.0 * t * c / safe))
    half_y = tl.where(thin, _EVERYWHERE, tl.sqrt(2.0 * t * a / safe))
    return tl.where(thin, 0.0, det), t, half_x, half_y
