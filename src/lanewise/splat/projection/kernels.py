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
def _rows_of_matrix(base, STRIDE: tl.constexpr):
    """The upper left 3 x 3 of a row-major matrix, as nine scalars."""
    return (
        tl.load(base), tl.load(base + 1), tl.load(base + 2),
        tl.load(base + STRIDE), tl.load(base + STRIDE + 1), tl.load(base + STRIDE + 2),
        tl.load(base + 2 * STRIDE), tl.load(base + 2 * STRIDE + 1), tl.load(base + 2 * STRIDE + 2),
    )  # fmt: skip


@triton.jit
def _load3(base, mask, other: tl.constexpr):
    return tl.load(base, mask, other), tl.load(base + 1, mask, other), tl.load(base + 2, mask, other)


@triton.jit
def _unit_quaternion(quats, g, mask):
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
def _rotation(w, x, y, z):
    return (
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    )  # fmt: skip


@triton.jit
def _shape(quats, scales, covars, g, mask, COVARS: tl.constexpr):
    """Nine entries a Gaussian: M = R diag(scales) row by row, whose covariance is M M^T; with COVARS the symmetric
    covariance."""
    if COVARS:
        c = covars + g * 9
        xx, xy, xz = _load3(c, mask, 0.0)
        yy, yz, zz = tl.load(c + 4, mask, 0.0), tl.load(c + 5, mask, 0.0), tl.load(c + 8, mask, 0.0)
        M = (xx, xy, xz, xy, yy, yz, xz, yz, zz)
    else:
        w, x, y, z, _ = _unit_quaternion(quats, g, mask)
        R = _rotation(w, x, y, z)
        s0, s1, s2 = _load3(scales + g * 3, mask, 0.0)
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
def _linearise(x, y, z, R, fx, fy, cx, cy, width, height):
    """u = x/z, v = y/z, both clamped near the image too, and the rows of J R."""
    u, v = x / z, y / z
    uc = tl.minimum(tl.maximum(u, (-cx - 0.15 * width) / fx), (1.15 * width - cx) / fx)
    vc = tl.minimum(tl.maximum(v, (-cy - 0.15 * height) / fy), (1.15 * height - cy) / fy)
    sx, sy = fx / z, fy / z
    X = (sx * (R[0] - uc * R[6]), sx * (R[1] - uc * R[7]), sx * (R[2] - uc * R[8]))
    Y = (sy * (R[3] - vc * R[6]), sy * (R[4] - vc * R[7]), sy * (R[5] - vc * R[8]))
    return u, v, uc, vc, X, Y


@triton.jit
def _covariance2d(X, Y, M, eps2d, COVARS: tl.constexpr):
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
    mx, my, mz = _load3(means + g * 3, mask, 0.0)
    M = _shape(quats, scales, covars, g, mask, COVARS)
    opacity = tl.load(opacities + g, mask, 0.0) if OPACITIES else tl.full([BLOCK], 1.0, tl.float32)
    for c in range(C):
        image = batch * C + c
        R, t = _rows_of_matrix(viewmats + image * 16, 4), viewmats + image * 16 + 3
        k = Ks + image * 9
        fx, fy, cx, cy = tl.load(k), tl.load(k + 4), tl.load(k + 2), tl.load(k + 5)
        x = R[0] * mx + R[1] * my + R[2] * mz + tl.load(t)
        y = R[3] * mx + R[4] * my + R[5] * mz + tl.load(t + 4)
        z = R[6] * mx + R[7] * my + R[8] * mz + tl.load(t + 8)
        u, v, _, _, X, Y = _linearise(x, y, z, R, fx, fy, cx, cy, width, height)
        a, b, d, det0, det, _, _, _ = _covariance2d(X, Y, M, eps2d, COVARS)
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


@triton.jit(do_not_specialize=["ROW2", "ROW3", "N", "C", "width", "height"])
def project_backward(
    means, quats, scales, covars, viewmats, Ks, visible,
    v_means2d, v_depths, v_conics, v_compensations, ROW2, ROW3,
    v_means, v_quats, v_scales, v_covars, v_cameras,
    N, C, width, height, eps2d,
    COVARS: tl.constexpr, ANTIALIASED: tl.constexpr, DEPTHS: tl.constexpr, CAMERAS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of means, quats and scales or covars, of those of means2d and conics, whose rows are ROW2 and ROW3
    numbers apart; v_cameras [programs, B, C, 16]: each block's share of the gradients of the rotation (9), the
    translation (3), fx, fy, cx, cy."""
    batch = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = n < N
    g = batch * N + n
    zero = tl.zeros([BLOCK], tl.float32)
    seen = n < 0  # by any camera; who is not may hold NaN
    v_x0, v_x1, v_x2 = zero, zero, zero
    # Of M row by row; with covars of the symmetric covariance's upper triangle: xx, xy, xz, yy, yz, zz.
    m0, m1, m2, m3, m4, m5, m6, m7, m8 = zero, zero, zero, zero, zero, zero, zero, zero, zero
    for c in range(C):
        image = batch * C + c
        p = image * N + n
        mask = inside & (tl.load(visible + p, inside, 0) != 0)
        seen |= mask
        mx, my, mz = _load3(means + g * 3, mask, 0.0)
        M = _shape(quats, scales, covars, g, mask, COVARS)
        # Nobody is seen by a camera that is not finite: it is the identity here, so that 0 times it is 0.
        used = tl.max(mask.to(tl.int32), 0) > 0
        R, t = _rows_of_matrix(viewmats + image * 16, 4), viewmats + image * 16 + 3
        R = (
            tl.where(used, R[0], 1.0), tl.where(used, R[1], 0.0), tl.where(used, R[2], 0.0),
            tl.where(used, R[3], 0.0), tl.where(used, R[4], 1.0), tl.where(used, R[5], 0.0),
            tl.where(used, R[6], 0.0), tl.where(used, R[7], 0.0), tl.where(used, R[8], 1.0),
        )  # fmt: skip
        t0 = tl.where(used, tl.load(t), 0.0)
        t1 = tl.where(used, tl.load(t + 4), 0.0)
        t2 = tl.where(used, tl.load(t + 8), 0.0)
        k = Ks + image * 9
        fx, fy = tl.where(used, tl.load(k), 1.0), tl.where(used, tl.load(k + 4), 1.0)
        cx, cy = tl.where(used, tl.load(k + 2), 0.0), tl.where(used, tl.load(k + 5), 0.0)
        x = R[0] * mx + R[1] * my + R[2] * mz + t0
        y = R[3] * mx + R[4] * my + R[5] * mz + t1
        z = tl.where(mask, R[6] * mx + R[7] * my + R[8] * mz + t2, 1.0)
        u, v, uc, vc, X, Y = _linearise(x, y, z, R, fx, fy, cx, cy, width, height)
        a, b, d, det0, det, px, py, cross = _covariance2d(X, Y, M, eps2d, COVARS)
        det = tl.where(mask, det, 1.0)
        A, D = a + eps2d, d + eps2d
        ga, gb, gc = _load3(v_conics + p * ROW3, mask, 0.0)
        v_a, v_b, v_d = gc / det, -gb / det, ga / det
        v_det = -(ga * D - gb * b + gc * A) / (det * det)
        v_det0 = v_det
        if ANTIALIASED:
            ratio = det0 / det
            slope = tl.where(ratio > 0.0, 0.5 / tl.sqrt(tl.where(ratio > 0.0, ratio, 1.0)), 0.0)
            v_ratio = tl.load(v_compensations + p, mask, 0.0) * slope
            v_det -= v_ratio * ratio / det
            v_det0 = v_det + v_ratio / det
        v_a += eps2d * v_det
        v_d += eps2d * v_det
        # The determinant's gradient goes through the cross product: against v_a, v_b, v_d it would cancel in thin
        # Gaussians.
        if COVARS:
            v_a += v_det0 * d
            v_d += v_det0 * a
            v_b -= 2.0 * v_det0 * b
        P0, P1, P2 = 2 * v_a * px[0] + v_b * py[0], 2 * v_a * px[1] + v_b * py[1], 2 * v_a * px[2] + v_b * py[2]
        Q0, Q1, Q2 = 2 * v_d * py[0] + v_b * px[0], 2 * v_d * py[1] + v_b * px[1], 2 * v_d * py[2] + v_b * px[2]
        if COVARS:
            v_X, v_Y = (P0, P1, P2), (Q0, Q1, Q2)
            m0 += v_a * X[0] * X[0] + v_b * X[0] * Y[0] + v_d * Y[0] * Y[0]
            m3 += v_a * X[1] * X[1] + v_b * X[1] * Y[1] + v_d * Y[1] * Y[1]
            m5 += v_a * X[2] * X[2] + v_b * X[2] * Y[2] + v_d * Y[2] * Y[2]
            m1 += 2 * v_a * X[0] * X[1] + v_b * (X[0] * Y[1] + X[1] * Y[0]) + 2 * v_d * Y[0] * Y[1]
            m2 += 2 * v_a * X[0] * X[2] + v_b * (X[0] * Y[2] + X[2] * Y[0]) + 2 * v_d * Y[0] * Y[2]
            m4 += 2 * v_a * X[1] * X[2] + v_b * (X[1] * Y[2] + X[2] * Y[1]) + 2 * v_d * Y[1] * Y[2]
        else:
            n0, n1, n2 = cross[0] * 2 * v_det0, cross[1] * 2 * v_det0, cross[2] * 2 * v_det0
            P0 += py[1] * n2 - py[2] * n1
            P1 += py[2] * n0 - py[0] * n2
            P2 += py[0] * n1 - py[1] * n0
            Q0 += n1 * px[2] - n2 * px[1]
            Q1 += n2 * px[0] - n0 * px[2]
            Q2 += n0 * px[1] - n1 * px[0]
            v_X = (
                M[0] * P0 + M[1] * P1 + M[2] * P2,
                M[3] * P0 + M[4] * P1 + M[5] * P2,
                M[6] * P0 + M[7] * P1 + M[8] * P2,
            )
            v_Y = (
                M[0] * Q0 + M[1] * Q1 + M[2] * Q2,
                M[3] * Q0 + M[4] * Q1 + M[5] * Q2,
                M[6] * Q0 + M[7] * Q1 + M[8] * Q2,
            )
            m0 += X[0] * P0 + Y[0] * Q0
            m1 += X[0] * P1 + Y[0] * Q1
            m2 += X[0] * P2 + Y[0] * Q2
            m3 += X[1] * P0 + Y[1] * Q0
            m4 += X[1] * P1 + Y[1] * Q1
            m5 += X[1] * P2 + Y[1] * Q2
            m6 += X[2] * P0 + Y[2] * Q0
            m7 += X[2] * P1 + Y[2] * Q1
            m8 += X[2] * P2 + Y[2] * Q2
        sx, sy = fx / z, fy / z
        v_sx = v_X[0] * (R[0] - uc * R[6]) + v_X[1] * (R[1] - uc * R[7]) + v_X[2] * (R[2] - uc * R[8])
        v_sy = v_Y[0] * (R[3] - vc * R[6]) + v_Y[1] * (R[4] - vc * R[7]) + v_Y[2] * (R[5] - vc * R[8])
        v_uc = -sx * (v_X[0] * R[6] + v_X[1] * R[7] + v_X[2] * R[8])
        v_vc = -sy * (v_Y[0] * R[6] + v_Y[1] * R[7] + v_Y[2] * R[8])
        gu, gv = tl.load(v_means2d + p * ROW2, mask, 0.0), tl.load(v_means2d + p * ROW2 + 1, mask, 0.0)
        v_u = fx * gu + tl.where(uc == u, v_uc, 0.0)
        v_v = fy * gv + tl.where(vc == v, v_vc, 0.0)
        vx, vy = v_u / z, v_v / z
        vz = -(v_u * u + v_v * v + v_sx * sx + v_sy * sy) / z
        if DEPTHS:
            vz += tl.load(v_depths + p, mask, 0.0)
        v_x0 += R[0] * vx + R[3] * vy + R[6] * vz
        v_x1 += R[1] * vx + R[4] * vy + R[7] * vz
        v_x2 += R[2] * vx + R[5] * vy + R[8] * vz
        if CAMERAS:
            out = v_cameras + ((tl.program_id(0).to(tl.int64) * tl.num_programs(1) + batch) * C + c) * 16
            wx, wy = sx * uc, sy * vc
            tl.store(out, tl.sum(tl.where(mask, vx * mx + sx * v_X[0], 0.0)))
            tl.store(out + 1, tl.sum(tl.where(mask, vx * my + sx * v_X[1], 0.0)))
            tl.store(out + 2, tl.sum(tl.where(mask, vx * mz + sx * v_X[2], 0.0)))
            tl.store(out + 3, tl.sum(tl.where(mask, vy * mx + sy * v_Y[0], 0.0)))
            tl.store(out + 4, tl.sum(tl.where(mask, vy * my + sy * v_Y[1], 0.0)))
            tl.store(out + 5, tl.sum(tl.where(mask, vy * mz + sy * v_Y[2], 0.0)))
            tl.store(out + 6, tl.sum(tl.where(mask, vz * mx - wx * v_X[0] - wy * v_Y[0], 0.0)))
            tl.store(out + 7, tl.sum(tl.where(mask, vz * my - wx * v_X[1] - wy * v_Y[1], 0.0)))
            tl.store(out + 8, tl.sum(tl.where(mask, vz * mz - wx * v_X[2] - wy * v_Y[2], 0.0)))
            tl.store(out + 9, tl.sum(tl.where(mask, vx, 0.0)))
            tl.store(out + 10, tl.sum(tl.where(mask, vy, 0.0)))
            tl.store(out + 11, tl.sum(tl.where(mask, vz, 0.0)))
            # A clamped u sits on a bound (w - cx) / fx, which moves with fx and cx.
            bound_x, bound_y = tl.where(uc == u, 0.0, v_uc), tl.where(vc == v, 0.0, v_vc)
            tl.store(out + 12, tl.sum(tl.where(mask, gu * u + v_sx / z - bound_x * uc / fx, 0.0)))
            tl.store(out + 13, tl.sum(tl.where(mask, gv * v + v_sy / z - bound_y * vc / fy, 0.0)))
            tl.store(out + 14, tl.sum(tl.where(mask, gu - bound_x / fx, 0.0)))
            tl.store(out + 15, tl.sum(tl.where(mask, gv - bound_y / fy, 0.0)))
    tl.store(v_means + g * 3, v_x0, inside)
    tl.store(v_means + g * 3 + 1, v_x1, inside)
    tl.store(v_means + g * 3 + 2, v_x2, inside)
    if COVARS:
        o = v_covars + g * 9
        tl.store(o, m0, inside)
        tl.store(o + 1, m1, inside)
        tl.store(o + 2, m2, inside)
        tl.store(o + 3, zero, inside)
        tl.store(o + 4, m3, inside)
        tl.store(o + 5, m4, inside)
        tl.store(o + 6, zero, inside)
        tl.store(o + 7, zero, inside)
        tl.store(o + 8, m5, inside)
    else:
        w, x, y, z, inverse = _unit_quaternion(quats, g, seen)
        Q = _rotation(w, x, y, z)
        s0, s1, s2 = _load3(scales + g * 3, seen, 0.0)
        tl.store(v_scales + g * 3, m0 * Q[0] + m3 * Q[3] + m6 * Q[6], inside)
        tl.store(v_scales + g * 3 + 1, m1 * Q[1] + m4 * Q[4] + m7 * Q[7], inside)
        tl.store(v_scales + g * 3 + 2, m2 * Q[2] + m5 * Q[5] + m8 * Q[8], inside)
        m0, m3, m6 = m0 * s0, m3 * s0, m6 * s0
        m1, m4, m7 = m1 * s1, m4 * s1, m7 * s1
        m2, m5, m8 = m2 * s2, m5 * s2, m8 * s2
        v_w = 2 * (x * (m7 - m5) + y * (m2 - m6) + z * (m3 - m1))
        v_x = 2 * (y * (m1 + m3) + z * (m2 + m6) - 2 * x * (m4 + m8) + w * (m7 - m5))
        v_y = 2 * (x * (m1 + m3) + z * (m5 + m7) - 2 * y * (m0 + m8) + w * (m2 - m6))
        v_z = 2 * (x * (m2 + m6) + y * (m5 + m7) - 2 * z * (m0 + m4) + w * (m3 - m1))
        along = w * v_w + x * v_x + y * v_y + z * v_z
        q = v_quats + g * 4
        tl.store(q, (v_w - w * along) * inverse, inside)
        tl.store(q + 1, (v_x - x * along) * inverse, inside)
        tl.store(q + 2, (v_y - y * along) * inverse, inside)
        tl.store(q + 3, (v_z - z * along) * inverse, inside)
