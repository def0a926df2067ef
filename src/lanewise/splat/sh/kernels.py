"""Real spherical harmonics in Triton: blocks of Gaussians, one camera after the other. The formulas are those of
`reference.py`.

Every basis function of degree l and order m is A(z) c_m or A(z) s_m, where c_m + i s_m = (x + iy)^m and A is a
polynomial of the unit direction's z. Inputs are contiguous fp32: dirs [I, N, 3], coeffs [I / SHARED, N, K, D] for
SHARED images each, colors [I, N, D].
"""

from __future__ import annotations

import triton
import triton.language as tl

from lanewise.splat._ellipse import gaussians_of


@triton.jit
def _polynomial(z, L: tl.constexpr, M: tl.constexpr):
    """A(z) of degree L = 1..4 and order M, and its derivative."""
    A, dA = tl.full(z.shape, 1.0, tl.float32), tl.zeros(z.shape, tl.float32)
    if L == 1 and M == 0:
        A, dA = 0.48860251190292 * z, dA + 0.48860251190292
    if L == 1 and M == 1:
        A = -0.48860251190292 * A
    if L == 2 and M == 0:
        A, dA = 0.9461746957575601 * z * z - 0.3153915652525201, 1.8923493915151202 * z
    if L == 2 and M == 1:
        A, dA = -1.092548430592079 * z, dA - 1.092548430592079
    if L == 2 and M == 2:
        A = 0.5462742152960395 * A
    if L == 3 and M == 0:
        A, dA = z * (1.865881662950577 * z * z - 1.119528997770346), 5.597644988851731 * z * z - 1.119528997770346
    if L == 3 and M == 1:
        A, dA = -2.285228997322329 * z * z + 0.4570457994644658, -4.570457994644658 * z
    if L == 3 and M == 2:
        A, dA = 1.445305721320277 * z, dA + 1.445305721320277
    if L == 3 and M == 3:
        A = -0.5900435899266435 * A
    if L == 4 and M == 0:
        z2 = z * z
        a30, d30 = z * (1.865881662950577 * z2 - 1.119528997770346), 5.597644988851731 * z2 - 1.119528997770346
        a20, d20 = 0.9461746957575601 * z2 - 0.3153915652525201, 1.8923493915151202 * z
        A = 1.984313483298443 * z * a30 - 1.006230589874905 * a20
        dA = 1.984313483298443 * (a30 + z * d30) - 1.006230589874905 * d20
    if L == 4 and M == 1:
        A, dA = z * (-4.683325804901025 * z * z + 2.007139630671868), -14.049977414703075 * z * z + 2.007139630671868
    if L == 4 and M == 2:
        A, dA = 3.31161143515146 * z * z - 0.47308734787878, 6.62322287030292 * z
    if L == 4 and M == 3:
        A, dA = -1.770130769779931 * z, dA - 1.770130769779931
    if L == 4 and M == 4:
        A = 0.6258357354491763 * A
    return A, dA


@triton.jit
def _unit(dirs, p, mask):
    """Unit direction, and one over its length (0 for no direction)."""
    x, y, z = (
        tl.load(dirs + p * 3, mask, 0.0),
        tl.load(dirs + p * 3 + 1, mask, 0.0),
        tl.load(dirs + p * 3 + 2, mask, 0.0),
    )
    norm2 = x * x + y * y + z * z
    inverse = tl.where(norm2 > 0.0, 1.0 / tl.sqrt(tl.where(norm2 > 0.0, norm2, 1.0)), 0.0)
    return x * inverse, y * inverse, z * inverse, inverse


@triton.jit
def _powers(x, y):
    """c_m and s_m for m = 0..4."""
    c2, s2 = x * x - y * y, 2.0 * x * y
    c3, s3 = x * c2 - y * s2, x * s2 + y * c2
    c4, s4 = x * c3 - y * s3, x * s3 + y * c3
    one = tl.full(x.shape, 1.0, tl.float32)
    return (one, x, c2, c3, c4), (one * 0.0, y, s2, s3, s4)


@triton.jit(do_not_specialize=["N", "K", "SHARED"])
def harmonics(
    dirs, coeffs, visible, colors, N, K, SHARED,
    D: tl.constexpr, DEGREE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """colors [I, N, D]; zeros where `visible` [I, N] is False."""
    image, n, inside = gaussians_of(tl.program_id(0), N, BLOCK)
    p = image * N + n
    mask = inside & (tl.load(visible + p, inside, 0) != 0)
    x, y, z, inverse = _unit(dirs, p, mask)
    direction = tl.where(inverse > 0.0, 1.0, 0.0)
    c, s = _powers(x, y)
    row = ((image // SHARED) * N + n) * K
    for d in tl.static_range(D):
        color = 0.2820947917738781 * tl.load(coeffs + row * D + d, mask, 0.0)
        for l in tl.static_range(1, DEGREE + 1):
            for m in tl.static_range(l + 1):
                A, _ = _polynomial(z, l, m)
                A *= direction
                color += A * c[m] * tl.load(coeffs + (row + l * l + l + m) * D + d, mask, 0.0)
                if m > 0:
                    color += A * s[m] * tl.load(coeffs + (row + l * l + l - m) * D + d, mask, 0.0)
        tl.store(colors + p * D + d, color, inside)


@triton.jit(do_not_specialize=["N", "K", "SHARED"])
def harmonics_backward(
    dirs, coeffs, visible, v_colors, v_dirs, v_coeffs,
    N, K, SHARED, D: tl.constexpr, DEGREE: tl.constexpr, DIRS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """v_dirs [I, N, 3] and v_coeffs [I / SHARED, N, K, D]; coefficients above DEGREE are the caller's to clear."""
    group, n, inside = gaussians_of(tl.program_id(0), N, BLOCK)
    row = (group * N + n) * K
    for shared in range(SHARED):
        again = inside & (n * 0 + shared > 0)  # a later pass over the same coefficients adds to the first
        p = (group * SHARED + shared) * N + n
        mask = inside & (tl.load(visible + p, inside, 0) != 0)
        x, y, z, inverse = _unit(dirs, p, mask)
        direction = tl.where(inverse > 0.0, 1.0, 0.0)
        c, s = _powers(x, y)
        v_x, v_y, v_z = 0.0 * x, 0.0 * x, 0.0 * x
        for d in tl.static_range(D):
            v = tl.load(v_colors + p * D + d, mask, 0.0)
            _accumulate(v_coeffs + row * D + d, 0.2820947917738781 * v, inside, again)
            for l in tl.static_range(1, DEGREE + 1):
                for m in tl.static_range(l + 1):
                    A, dA = _polynomial(z, l, m)
                    A, dA = A * direction, dA * direction
                    plus, minus = (row + l * l + l + m) * D + d, (row + l * l + l - m) * D + d
                    _accumulate(v_coeffs + plus, A * c[m] * v, inside, again)
                    if m > 0:
                        _accumulate(v_coeffs + minus, A * s[m] * v, inside, again)
                    if DIRS:
                        gc = v * tl.load(coeffs + plus, mask, 0.0)
                        v_z += dA * gc * c[m]
                        if m > 0:
                            gs = v * tl.load(coeffs + minus, mask, 0.0)
                            v_z += dA * gs * s[m]
                            v_x += A * m * (gc * c[m - 1] + gs * s[m - 1])
                            v_y += A * m * (gs * c[m - 1] - gc * s[m - 1])
        if DIRS:
            along = x * v_x + y * v_y + z * v_z
            tl.store(v_dirs + p * 3, (v_x - x * along) * inverse, inside)
            tl.store(v_dirs + p * 3 + 1, (v_y - y * along) * inverse, inside)
            tl.store(v_dirs + p * 3 + 2, (v_z - z * along) * inverse, inside)


@triton.jit
def _accumulate(pointer, value, mask, again):
    """Store, or add where it is done again: one program owns the address."""
    tl.store(pointer, value + tl.load(pointer, again, 0.0), mask)
