"""Real spherical harmonics on the CPU: Gaussians in parallel, fp32 in and out, fp64 in between.

Every basis function of degree l and order m is A(z) c_m or A(z) s_m, where c_m + i s_m = (x + iy)^m and A is a
polynomial of the unit direction's z. Arrays: dirs [I, N, 3], coeffs [I / shared, N, K, D], visible [I, N], colors [I,
N, D].
"""

from __future__ import annotations

import math

import numba
import numpy as np

from lanewise._numba import njit


@njit()
def polynomials(z, A, dA):
    """A and its derivative for (l, m) at l (l + 1) / 2 + m, l = 0..4, for a unit direction's z."""
    z2 = z * z
    A[0], dA[0] = 0.2820947917738781, 0.0
    A[1], dA[1] = 0.48860251190292 * z, 0.48860251190292
    A[2], dA[2] = -0.48860251190292, 0.0
    A[3], dA[3] = 0.9461746957575601 * z2 - 0.3153915652525201, 1.8923493915151202 * z
    A[4], dA[4] = -1.092548430592079 * z, -1.092548430592079
    A[5], dA[5] = 0.5462742152960395, 0.0
    A[6], dA[6] = z * (1.865881662950577 * z2 - 1.119528997770346), 5.597644988851731 * z2 - 1.119528997770346
    A[7], dA[7] = -2.285228997322329 * z2 + 0.4570457994644658, -4.570457994644658 * z
    A[8], dA[8] = 1.445305721320277 * z, 1.445305721320277
    A[9], dA[9] = -0.5900435899266435, 0.0
    A[10] = 1.984313483298443 * z * A[6] - 1.006230589874905 * A[3]
    dA[10] = 1.984313483298443 * (A[6] + z * dA[6]) - 1.006230589874905 * dA[3]
    A[11], dA[11] = z * (-4.683325804901025 * z2 + 2.007139630671868), -14.049977414703075 * z2 + 2.007139630671868
    A[12], dA[12] = 3.31161143515146 * z2 - 0.47308734787878, 6.62322287030292 * z
    A[13], dA[13] = -1.770130769779931 * z, -1.770130769779931
    A[14], dA[14] = 0.6258357354491763, 0.0


@njit()
def direction(d, c, s):
    """Unit direction and one over its length (0 for no direction); c and s [5] are the powers (x + iy)^m."""
    x, y, z = np.float64(d[0]), np.float64(d[1]), np.float64(d[2])
    norm2 = x * x + y * y + z * z
    inverse = 1.0 / math.sqrt(norm2) if norm2 > 0.0 else 0.0
    x, y, z = x * inverse, y * inverse, z * inverse
    c[0], s[0] = 1.0, 0.0
    for m in range(1, 5):
        c[m], s[m] = x * c[m - 1] - y * s[m - 1], x * s[m - 1] + y * c[m - 1]
    return x, y, z, inverse


@njit(parallel=True)
def forward(dirs, coeffs, visible, degree, colors):
    """colors, zero where not visible."""
    images, N, D = colors.shape
    shared = images // max(coeffs.shape[0], 1)
    for i in numba.prange(images * N):
        image, n = i // N, i % N
        colors[image, n] = 0.0
        if not visible[image, n]:
            continue
        A, dA, c, s = np.empty(15), np.empty(15), np.empty(5), np.empty(5)
        _, _, z, inverse = direction(dirs[image, n], c, s)
        polynomials(z, A, dA)
        row = coeffs[image // shared, n]
        for d in range(D):
            color = A[0] * row[0, d]
            for l in range(1, degree + 1 if inverse > 0.0 else 1):
                first = l * (l + 1) // 2
                color += A[first] * row[l * l + l, d]
                for m in range(1, l + 1):
                    color += A[first + m] * (c[m] * row[l * l + l + m, d] + s[m] * row[l * l + l - m, d])
            colors[image, n, d] = color


@njit(parallel=True)
def backward(dirs, coeffs, visible, degree, v_colors, v_dirs, v_coeffs):
    """v_dirs [I, N, 3] and v_coeffs [I / shared, N, K, D] into arrays of zeros; v_dirs may be empty along N."""
    images, N, D = v_colors.shape
    groups = coeffs.shape[0]
    shared = images // max(groups, 1)
    for i in numba.prange(groups * N):
        group, n = i // N, i % N
        A, dA, c, s = np.empty(15), np.empty(15), np.empty(5), np.empty(5)
        row, v_row = coeffs[group, n], v_coeffs[group, n]
        for image in range(group * shared, (group + 1) * shared):
            if not visible[image, n]:
                continue
            x, y, z, inverse = direction(dirs[image, n], c, s)
            polynomials(z, A, dA)
            v_x = v_y = v_z = 0.0
            for d in range(D):
                v = np.float64(v_colors[image, n, d])
                v_row[0, d] += A[0] * v
                for l in range(1, degree + 1 if inverse > 0.0 else 1):
                    first, middle = l * (l + 1) // 2, l * l + l
                    v_row[middle, d] += A[first] * v
                    v_z += dA[first] * v * row[middle, d]
                    for m in range(1, l + 1):
                        gc, gs = v * row[middle + m, d], v * row[middle - m, d]
                        v_row[middle + m, d] += A[first + m] * c[m] * v
                        v_row[middle - m, d] += A[first + m] * s[m] * v
                        v_x += A[first + m] * m * (gc * c[m - 1] + gs * s[m - 1])
                        v_y += A[first + m] * m * (gs * c[m - 1] - gc * s[m - 1])
                        v_z += dA[first + m] * (gc * c[m] + gs * s[m])
            if v_dirs.shape[1]:
                along = x * v_x + y * v_y + z * v_z
                v_dirs[image, n, 0] = (v_x - x * along) * inverse
                v_dirs[image, n, 1] = (v_y - y * along) * inverse
                v_dirs[image, n, 2] = (v_z - z * along) * inverse
