"""The projection's backward pass in Triton; inputs and blocks as in `kernels.py`."""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.splat.projection.kernels import (
    covariance2d,
    covariance_factor,
    linearise,
    load3,
    rotation,
    rows_of_matrix,
    unit_quaternion,
)


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
        mx, my, mz = load3(means + g * 3, mask, 0.0)
        M = covariance_factor(quats, scales, covars, g, mask, COVARS)
        # Nobody is seen by a camera that is not finite: it is the identity here, so that 0 times it is 0.
        used = tl.max(mask.to(tl.int32), 0) > 0
        R, t = rows_of_matrix(viewmats + image * 16, 4), viewmats + image * 16 + 3
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
        u, v, uc, vc, X, Y = linearise(x, y, z, R, fx, fy, cx, cy, width, height)
        a, b, d, det0, det, px, py, cross = covariance2d(X, Y, M, eps2d, COVARS)
        det = tl.where(mask, det, 1.0)
        A, D = a + eps2d, d + eps2d
        ga, gb, gc = load3(v_conics + p * ROW3, mask, 0.0)
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
        w, x, y, z, inverse = unit_quaternion(quats, g, seen)
        Q = rotation(w, x, y, z)
        s0, s1, s2 = load3(scales + g * 3, seen, 0.0)
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
