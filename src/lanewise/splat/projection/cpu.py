"""EWA projection on the CPU: blocks of Gaussians in parallel, fp32 in and out, fp64 in between.

The formulas are those of `reference.py`; the gradients are theirs, written out. Every Gaussian has one writer, and
the cameras' gradients are summed block by block in a fixed order, so that nothing depends on the number of threads.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from lanewise._numba import njit
from lanewise.splat.projection.reference import ALPHA_THRESHOLD, MAX_EXTENT

LARGEST = 3e38  # of fp32
BLOCKS = 64  # pieces that the Gaussians are cut into; cameras' gradients are summed over them


@njit()
def unit_quaternion(q):
    """Unit quaternion (w, x, y, z) and one over the length it had; (0, 0, 0, 0) stands for the identity."""
    w, x, y, z = np.float64(q[0]), np.float64(q[1]), np.float64(q[2]), np.float64(q[3])
    norm2 = w * w + x * x + y * y + z * z
    inverse = 1.0 / math.sqrt(norm2) if norm2 > 0.0 else 0.0
    return w * inverse, x * inverse, y * inverse, z * inverse, inverse


@njit()
def rotation(w, x, y, z):
    """Rotation matrix, nine entries row by row."""
    return (
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    )  # fmt: skip


@njit()
def factor(quat, scale):
    """M = R diag(scales), whose covariance is M M^T."""
    w, x, y, z, _ = unit_quaternion(quat)
    R = rotation(w, x, y, z)
    a, b, c = np.float64(scale[0]), np.float64(scale[1]), np.float64(scale[2])
    return R[0] * a, R[1] * b, R[2] * c, R[3] * a, R[4] * b, R[5] * c, R[6] * a, R[7] * b, R[8] * c


@njit()
def symmetric(covar):
    """The covariance whose upper triangle is given."""
    a, b, c = np.float64(covar[0, 0]), np.float64(covar[0, 1]), np.float64(covar[0, 2])
    d, e, f = np.float64(covar[1, 1]), np.float64(covar[1, 2]), np.float64(covar[2, 2])
    return a, b, c, b, d, e, c, e, f


@njit()
def times(r, M):
    """Row vector times matrix."""
    return (
        r[0] * M[0] + r[1] * M[3] + r[2] * M[6],
        r[0] * M[1] + r[1] * M[4] + r[2] * M[7],
        r[0] * M[2] + r[1] * M[5] + r[2] * M[8],
    )


@njit()
def dot(a, b):
    """Inner product of two triples."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@njit()
def cross(a, b):
    """Cross product of two triples."""
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@njit()
def combine(s, a, t, b):
    """s a + t b of two triples."""
    return s * a[0] + t * b[0], s * a[1] + t * b[1], s * a[2] + t * b[2]


@njit()
def camera_of(viewmat, K):
    """Rows of the rotation, translation, and (fx, fy, cx, cy), in fp64."""
    V = viewmat.astype(np.float64)
    rows = (V[0, 0], V[0, 1], V[0, 2]), (V[1, 0], V[1, 1], V[1, 2]), (V[2, 0], V[2, 1], V[2, 2])
    intrinsics = np.float64(K[0, 0]), np.float64(K[1, 1]), np.float64(K[0, 2]), np.float64(K[1, 2])
    return rows, (V[0, 3], V[1, 3], V[2, 3]), intrinsics


@njit()
def linearise(mean, rows, t, K, width, height):
    """z, u = x/z, v = y/z, both clamped to near the image too, and the rows of J R."""
    m = np.float64(mean[0]), np.float64(mean[1]), np.float64(mean[2])
    fx, fy, cx, cy = K
    x, y, z = dot(rows[0], m) + t[0], dot(rows[1], m) + t[1], dot(rows[2], m) + t[2]
    u, v = x / z, y / z
    uc = min(max(u, (-cx - 0.15 * width) / fx), (1.15 * width - cx) / fx)
    vc = min(max(v, (-cy - 0.15 * height) / fy), (1.15 * height - cy) / fy)
    return (
        z,
        u,
        v,
        uc,
        vc,
        combine(fx / z, rows[0], -fx / z * uc, rows[2]),
        combine(fy / z, rows[1], -fy / z * vc, rows[2]),
    )


@njit()
def covariance2d(X, Y, M, is_covar):
    """a, b, d of the 2-D covariance without blur, its determinant, and the rows X M and Y M."""
    px, py = times(X, M), times(Y, M)
    if is_covar:
        a, b, d = dot(px, X), dot(px, Y), dot(py, Y)
        return a, b, d, a * d - b * b, px, py
    n = cross(px, py)  # |px x py|^2 is a d - b^2 without the cancellation of thin Gaussians
    return dot(px, px), dot(px, py), dot(py, py), dot(n, n), px, py


@njit()
def shape_of(quats, scales, covars, b, n):
    """M of a Gaussian, or its covariance where there are any."""
    return symmetric(covars[b, n]) if covars.shape[1] else factor(quats[b, n], scales[b, n])


@njit(parallel=True)
def forward(
    means, quats, scales, covars, opacities, viewmats, Ks, width, height, near, far, radius_clip, eps2d, antialiased,
    radii, means2d, depths, conics, compensations,
):  # fmt: skip
    """`reference.project` into arrays of zeros; covars or (quats, scales) and opacities may be empty along N."""
    B, N, C = means.shape[0], means.shape[1], viewmats.shape[1]
    for block in numba.prange(BLOCKS):
        for b in range(B):
            for c in range(C):
                rows, t, K = camera_of(viewmats[b, c], Ks[b, c])
                for n in range(block * N // BLOCKS, (block + 1) * N // BLOCKS):
                    z, u, v, _, _, X, Y = linearise(means[b, n], rows, t, K, width, height)
                    if not near <= z <= far:
                        continue
                    a, bb, d, det0, _, _ = covariance2d(
                        X, Y, shape_of(quats, scales, covars, b, n), covars.shape[1] > 0
                    )
                    det = det0 + eps2d * (a + d) + eps2d * eps2d
                    if not 0.0 < det < np.inf:
                        continue
                    compensation = math.sqrt(max(det0 / det, 0.0)) if antialiased else 1.0
                    extent = MAX_EXTENT
                    if opacities.shape[1]:
                        opacity = opacities[b, n] * compensation
                        if not opacity >= np.float32(ALPHA_THRESHOLD):
                            continue
                        extent = min(extent, math.sqrt(2.0 * math.log(max(opacity / ALPHA_THRESHOLD, 1.0))))
                    rx, ry = math.ceil(extent * math.sqrt(a + eps2d)), math.ceil(extent * math.sqrt(d + eps2d))
                    x, y = K[0] * u + K[2], K[1] * v + K[3]
                    if not (x + rx > 0 and x - rx < width and y + ry > 0 and y - ry < height):
                        continue
                    if not (rx > 0 and ry > 0 and max(rx, ry) > radius_clip and max(rx, ry) < 2.0**31):
                        continue
                    if not max(a + eps2d, abs(bb), d + eps2d) / det < LARGEST or not max(abs(x), abs(y), z) < LARGEST:
                        continue  # what fp32 cannot hold is not drawn
                    radii[b, c, n, 0], radii[b, c, n, 1] = int(rx), int(ry)
                    means2d[b, c, n, 0], means2d[b, c, n, 1], depths[b, c, n] = x, y, z
                    conics[b, c, n, 0], conics[b, c, n, 1] = (d + eps2d) / det, -bb / det
                    conics[b, c, n, 2], compensations[b, c, n] = (a + eps2d) / det, compensation


@njit()
def covariance_gradients(v_conic, v_compensation, a, b, d, det0, eps2d, antialiased):
    """From the conic and the compensation to a, b, d (the determinant held apart) and the unblurred determinant."""
    A, D = a + eps2d, d + eps2d
    det = det0 + eps2d * (a + d) + eps2d * eps2d
    ga, gb, gc = np.float64(v_conic[0]), np.float64(v_conic[1]), np.float64(v_conic[2])
    v_det = -(ga * D - gb * b + gc * A) / (det * det)
    v_det0 = v_det
    if antialiased and det0 > 0.0:
        v_ratio = v_compensation * 0.5 / math.sqrt(det0 / det)
        v_det -= v_ratio * det0 / (det * det)
        v_det0 = v_det + v_ratio / det
    return gc / det + eps2d * v_det, -gb / det, ga / det + eps2d * v_det, v_det0


@njit()
def rotation_gradient(q, V):
    """Gradient of a quaternion, divided by its length, from V [9] = dL/dR; q = (w, x, y, z, 1 / length)."""
    w, x, y, z, inverse = q
    v_w = 2 * (x * (V[7] - V[5]) + y * (V[2] - V[6]) + z * (V[3] - V[1]))
    v_x = 2 * (y * (V[1] + V[3]) + z * (V[2] + V[6]) - 2 * x * (V[4] + V[8]) + w * (V[7] - V[5]))
    v_y = 2 * (x * (V[1] + V[3]) + z * (V[5] + V[7]) - 2 * y * (V[0] + V[8]) + w * (V[2] - V[6]))
    v_z = 2 * (x * (V[2] + V[6]) + y * (V[5] + V[7]) - 2 * z * (V[0] + V[4]) + w * (V[3] - V[1]))
    along = w * v_w + x * v_x + y * v_y + z * v_z
    return (
        (v_w - w * along) * inverse,
        (v_x - x * along) * inverse,
        (v_y - y * along) * inverse,
        (v_z - z * along) * inverse,
    )


@njit(parallel=True)
def backward(
    means, quats, scales, covars, viewmats, Ks, width, height, eps2d, antialiased, radii,
    v_means2d, v_depths, v_conics, v_compensations, v_means, v_quats, v_scales, v_covars, v_cameras,
):  # fmt: skip
    """Gradients into arrays of zeros; v_cameras [BLOCKS, B, C, 16] fp64: rotation (9), translation (3), fx, fy, cx,
    cy."""
    B, N, C = means.shape[0], means.shape[1], viewmats.shape[1]
    is_covar = covars.shape[1] > 0
    for block in numba.prange(BLOCKS):
        v_M, V = np.empty(9, np.float64), np.empty(9, np.float64)
        for b in range(B):
            for n in range(block * N // BLOCKS, (block + 1) * N // BLOCKS):
                v_M[:] = 0.0
                v_m0 = v_m1 = v_m2 = 0.0
                seen = False
                for c in range(C):
                    if radii[b, c, n, 0] <= 0 or radii[b, c, n, 1] <= 0:
                        continue
                    seen = True
                    rows, t, K = camera_of(viewmats[b, c], Ks[b, c])
                    fx, fy = K[0], K[1]
                    z, u, v, uc, vc, X, Y = linearise(means[b, n], rows, t, K, width, height)
                    M = shape_of(quats, scales, covars, b, n)
                    a, bb, d, det0, px, py = covariance2d(X, Y, M, is_covar)
                    v_a, v_b, v_d, v_det0 = covariance_gradients(
                        v_conics[b, c, n], v_compensations[b, c, n], a, bb, d, det0, eps2d, antialiased
                    )
                    if is_covar:
                        v_a, v_b, v_d = v_a + v_det0 * d, v_b - 2 * v_det0 * bb, v_d + v_det0 * a
                        P, Q = combine(2 * v_a, px, v_b, py), combine(2 * v_d, py, v_b, px)
                        v_X, v_Y = P, Q
                        for i in range(3):
                            v_M[4 * i] += v_a * X[i] * X[i] + v_b * X[i] * Y[i] + v_d * Y[i] * Y[i]
                            for j in range(i + 1, 3):
                                v_M[3 * i + j] += (
                                    2 * v_a * X[i] * X[j] + v_b * (X[i] * Y[j] + X[j] * Y[i]) + 2 * v_d * Y[i] * Y[j]
                                )
                    else:
                        # The determinant |px x py|^2 through its cross product: against v_a, v_b, v_d it would cancel.
                        normal = cross(px, py)
                        P = combine(1.0, combine(2 * v_a, px, v_b, py), 2 * v_det0, cross(py, normal))
                        Q = combine(1.0, combine(2 * v_d, py, v_b, px), 2 * v_det0, cross(normal, px))
                        v_X = dot(M[0:3], P), dot(M[3:6], P), dot(M[6:9], P)
                        v_Y = dot(M[0:3], Q), dot(M[3:6], Q), dot(M[6:9], Q)
                        for i in range(3):
                            for j in range(3):
                                v_M[3 * i + j] += X[i] * P[j] + Y[i] * Q[j]
                    sx, sy = fx / z, fy / z
                    v_sx, v_sy = (
                        dot(v_X, combine(1.0, rows[0], -uc, rows[2])),
                        dot(v_Y, combine(1.0, rows[1], -vc, rows[2])),
                    )
                    v_uc, v_vc = -sx * dot(v_X, rows[2]), -sy * dot(v_Y, rows[2])
                    gu, gv = v_means2d[b, c, n, 0], v_means2d[b, c, n, 1]
                    v_u = fx * gu + (v_uc if uc == u else 0.0)
                    v_v = fy * gv + (v_vc if vc == v else 0.0)
                    vx, vy = v_u / z, v_v / z
                    vz = v_depths[b, c, n] - (v_u * u + v_v * v + v_sx * sx + v_sy * sy) / z
                    v_m0 += rows[0][0] * vx + rows[1][0] * vy + rows[2][0] * vz
                    v_m1 += rows[0][1] * vx + rows[1][1] * vy + rows[2][1] * vz
                    v_m2 += rows[0][2] * vx + rows[1][2] * vy + rows[2][2] * vz
                    out = v_cameras[block, b, c]
                    for j in range(3):
                        m = means[b, n, j]
                        out[j] += vx * m + sx * v_X[j]
                        out[3 + j] += vy * m + sy * v_Y[j]
                        out[6 + j] += vz * m - sx * uc * v_X[j] - sy * vc * v_Y[j]
                    out[9] += vx
                    out[10] += vy
                    out[11] += vz
                    # A clamped u sits on a bound (w - cx) / fx, which moves with fx and cx.
                    bound_x, bound_y = 0.0 if uc == u else v_uc, 0.0 if vc == v else v_vc
                    out[12] += gu * u + v_sx / z - bound_x * uc / fx
                    out[13] += gv * v + v_sy / z - bound_y * vc / fy
                    out[14] += gu - bound_x / fx
                    out[15] += gv - bound_y / fy
                if not seen:
                    continue
                v_means[b, n, 0], v_means[b, n, 1], v_means[b, n, 2] = v_m0, v_m1, v_m2
                if is_covar:
                    for i in range(3):
                        for j in range(i, 3):
                            v_covars[b, n, i, j] = v_M[3 * i + j]
                    continue
                q = unit_quaternion(quats[b, n])
                R = rotation(q[0], q[1], q[2], q[3])
                for k in range(3):
                    scale = np.float64(scales[b, n, k])
                    v_scales[b, n, k] = v_M[k] * R[k] + v_M[3 + k] * R[3 + k] + v_M[6 + k] * R[6 + k]
                    V[k], V[3 + k], V[6 + k] = v_M[k] * scale, v_M[3 + k] * scale, v_M[6 + k] * scale
                v_q = rotation_gradient(q, V)
                v_quats[b, n, 0], v_quats[b, n, 1], v_quats[b, n, 2], v_quats[b, n, 3] = v_q
