"""EWA projection in Triton: blocks of Gaussians, one camera after the other. The formulas are those of `reference.py`.

Inputs are contiguous fp32: means [B, N, 3], quats [B, N, 4] and scales [B, N, 3] or covars [B, N, 3, 3], viewmats [B,
C, 4, 4], Ks [B, C, 3, 3]. One program takes a block of Gaussians of one batch through all its cameras, so that their
gradients need no atomics.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.splat.projection.reference import ALPHA_THRESHOLD, MAX_EXTENT

_THRESHOLD = tl.constexpr(ALPHA_THRESHOLD)
_EXTENT = tl.constexpr(MAX_EXTENT)


@triton.jit
def rows_of_matrix(base, STRIDE: tl.constexpr):
    """The upper left 3 x 3 of a row-major matrix, as nine scalars."""
    return (
        tl.load(base), tl.load(base + 1), tl.load(base + 2),
        tl.load(base + STRIDE), tl.load(base + STRIDE + 1), tl.load(base + STRIDE + 2),
        tl.load(base + 2 * STRIDE), tl.load(base + 2 * STRIDE + 1), tl.load(base + 2 * STRIDE + 2),
    )  # fmt: skip


@triton.jit
def load3(base, mask, other: tl.constexpr):
    """Three neighbouring numbers."""
    return tl.load(base, mask, other), tl.load(base + 1, mask, other), tl.load(base + 2, mask, other)


@triton.jit
def unit_quaternion(quats, g, mask):
    """Unit quaternion (w, x, y, z) and the length it had; the zero quaternion is the identity, of length infinity."""
    q = quats + g * 4
    w, x, y, z = tl.load(q, mask, 1.0), tl.load(q + 1, mask, 0.0), tl.load(q + 2, mask, 0.0), tl.load(q + 3, mask, 0.0)
    largest = tl.maximum(tl.maximum(tl.abs(w), tl.abs(x)), tl.maximum(tl.abs(y), tl.abs(z)))
    scale = 1.0 / tl.where(largest > 0.0, largest, 1.0)
    w, x, y, z = w * scale, x * scale, y * scale, z * scale
    length = tl.sqrt(w * w + x * x + y * y + z * z)
    inverse = tl.where(largest > 0.0, 1.0 / length, 0.0)
    return w * inverse, x * inverse, y * inverse, z * inverse, inverse * scale


@triton.jit
def rotation(w, x, y, z):
    """The rotation matrix of a unit quaternion, row by row."""
    return (
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    )  # fmt: skip


@triton.jit
def covariance_factor(quats, scales, covars, g, mask, COVARS: tl.constexpr):
    """Nine entries a Gaussian: M = R diag(scales) row by row, whose covariance is M M^T; with COVARS the symmetric
    covariance."""
    if COVARS:
        c = covars + g * 9
        xx, xy, xz = load3(c, mask, 0.0)
        yy, yz, zz = tl.load(c + 4, mask, 0.0), tl.load(c + 5, mask, 0.0), tl.load(c + 8, mask, 0.0)
        M = (xx, xy, xz, xy, yy, yz, xz, yz, zz)
    else:
        w, x, y, z, _ = unit_quaternion(quats, g, mask)
        R = rotation(w, x, y, z)
        s0, s1, s2 = load3(scales + g * 3, mask, 0.0)
        M = (R[0] * s0, R[1] * s1, R[2] * s2, R[3] * s0, R[4] * s1, R[5] * s2, R[6] * s0, R[7] * s1, R[8] * s2)
    return M


@triton.jit
def _times(r0, r1, r2, M):
    """Row vector times matrix."""
    return (
        r0 * M[0] + r1 * M[3] + r2 * M[6],
        r0 * M[1] + r1 * M[4] + r2 * M[7],
        r0 * M[2] + r1 * M[5] + r2 * M[8],
    )  # fmt: skip


@triton.jit
def linearise(x, y, z, R, fx, fy, cx, cy, width, height):
    """u = x/z, v = y/z, both clamped near the image too, and the rows of J R."""
    u, v = x / z, y / z
    uc = tl.minimum(tl.maximum(u, (-cx - 0.15 * width) / fx), (1.15 * width - cx) / fx)
    vc = tl.minimum(tl.maximum(v, (-cy - 0.15 * height) / fy), (1.15 * height - cy) / fy)
    sx, sy = fx / z, fy / z
    X = (sx * (R[0] - uc * R[6]), sx * (R[1] - uc * R[7]), sx * (R[2] - uc * R[8]))
    Y = (sy * (R[3] - vc * R[6]), sy * (R[4] - vc * R[7]), sy * (R[5] - vc * R[8]))
    return u, v, uc, vc, X, Y


@triton.jit
def covariance2d(X, Y, M, eps2d, COVARS: tl.constexpr):
    """Entries a, b, d of the 2-D covariance without blur, its determinant, the determinant with blur, the rows of J R M
    (with COVARS of J R times the covariance), and their cross product."""
    px, py = _times(X[0], X[1], X[2], M), _times(Y[0], Y[1], Y[2], M)
    if COVARS:
        cross = px  # not needed
        a = px[0] * X[0] + px[1] * X[1] + px[2] * X[2]
        b = px[0] * Y[0] + px[1] * Y[1] + px[2] * Y[2]
        d = py[0] * Y[0] + py[1] * Y[1] + py[2] * Y[2]
        det0 = a * d - b * b
    else:
        a = px[0] * px[0] + px[1] * px[1] + px[2] * px[2]
        b = px[0] * py[0] + px[1] * py[1] + px[2] * py[2]
        d = py[0] * py[0] + py[1] * py[1] + py[2] * py[2]
        # |px x py|^2 is a d - b^2 without the cancellation of thin Gaussians.
        cross = (px[1] * py[2] - px[2] * py[1], px[2] * py[0] - px[0] * py[2], px[0] * py[1] - px[1] * py[0])
        det0 = cross[0] * cross[0] + cross[1] * cross[1] + cross[2] * cross[2]
    return a, b, d, det0, det0 + eps2d * (a + d) + eps2d * eps2d, px, py, cross


@triton.jit(do_not_specialize=["N", "C", "width", "height"])
def project(
    means, quats, scales, covars, opacities, viewmats, Ks,
    radii, means2d, depths, conics, compensations, seen,
    N, C, width, height, near, far, radius_clip, eps2d,
    COVARS: tl.constexpr, OPACITIES: tl.constexpr, ANTIALIASED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """radii [B, C, N, 2] int32, means2d [B, C, N, 2], depths [B, C, N], conics [B, C, N, 3], compensations [B, C, N];
    zeros where culled; seen [B, C, N] uint8: 1 where not."""
    batch = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = n < N
    g = batch * N + n
    mx, my, mz = load3(means + g * 3, mask, 0.0)
    M = covariance_factor(quats, scales, covars, g, mask, COVARS)
    opacity = tl.load(opacities + g, mask, 0.0) if OPACITIES else tl.full([BLOCK], 1.0, tl.float32)
    for c in range(C):
        image = batch * C + c
        R, t = rows_of_matrix(viewmats + image * 16, 4), viewmats + image * 16 + 3
        k = Ks + image * 9
        fx, fy, cx, cy = tl.load(k), tl.load(k + 4), tl.load(k + 2), tl.load(k + 5)
        x = R[0] * mx + R[1] * my + R[2] * mz + tl.load(t)
        y = R[3] * mx + R[4] * my + R[5] * mz + tl.load(t + 4)
        z = R[6] * mx + R[7] * my + R[8] * mz + tl.load(t + 8)
        u, v, _, _, X, Y = linearise(x, y, z, R, fx, fy, cx, cy, width, height)
        a, b, d, det0, det, _, _, _ = covariance2d(X, Y, M, eps2d, COVARS)
        A, D = a + eps2d, d + eps2d
        ratio = det0 / det
        compensation = tl.where(ratio > 0.0, tl.sqrt(tl.maximum(ratio, 0.0)), 0.0)
        extent = tl.full([BLOCK], _EXTENT, tl.float32)
        visible = mask & (z >= near) & (z <= far) & (det > 0.0)
        if OPACITIES:
            o = opacity * compensation if ANTIALIASED else opacity
            visible &= o >= _THRESHOLD
            extent = tl.minimum(extent, tl.sqrt(2.0 * tl.log(tl.maximum(o / _THRESHOLD, 1.0))))
        rx, ry = tl.ceil(extent * tl.sqrt(A)), tl.ceil(extent * tl.sqrt(D))
        u2, v2 = fx * u + cx, fy * v + cy
        visible &= (u2 + rx > 0) & (u2 - rx < width) & (v2 + ry > 0) & (v2 - ry < height)
        visible &= (
            (rx > 0) & (ry > 0) & ((rx > radius_clip) | (ry > radius_clip)) & (rx < 2147483648.0) & (ry < 2147483648.0)
        )
        ca, cb, cc = D / det, -b / det, A / det
        total = tl.abs(ca) + tl.abs(cb) + tl.abs(cc) + tl.abs(u2) + tl.abs(v2)
        visible &= total < float("inf")  # NaN and infinity are not
        p = image * N + n
        tl.store(seen + p, visible.to(tl.uint8), mask)
        tl.store(radii + p * 2, tl.where(visible, rx, 0.0).to(tl.int32), mask)
        tl.store(radii + p * 2 + 1, tl.where(visible, ry, 0.0).to(tl.int32), mask)
        tl.store(means2d + p * 2, tl.where(visible, u2, 0.0), mask)
        tl.store(means2d + p * 2 + 1, tl.where(visible, v2, 0.0), mask)
        tl.store(depths + p, tl.where(visible, z, 0.0), mask)
        tl.store(conics + p * 3, tl.where(visible, ca, 0.0), mask)
        tl.store(conics + p * 3 + 1, tl.where(visible, cb, 0.0), mask)
        tl.store(conics + p * 3 + 2, tl.where(visible, cc, 0.0), mask)
        if ANTIALIASED:
            tl.store(compensations + p, tl.where(visible, compensation, 0.0), mask)
