"""The rasterizer on the CPU: tiles in parallel, Gaussian by Gaussian, the tile's pixels as vectors.

Everything is written for LLVM's vectorizer: the innermost loops run over the pixels of the rows that a Gaussian may
reach, in flat buffers, with selects in place of branches. What decides about a pair is never reordered or fused (no
fast-math there), so that forward, backward and `pair_sides` decide alike, whatever the tile size and the number of
threads.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from lanewise._numba import njit
from lanewise.splat.binning.cpu import ellipse, half_height
from lanewise.splat.rasterize.reference import ALPHA_CAP, ALPHA_THRESHOLD, CAPPED, COUNTED, SKIPPED, TRANSMITTANCE_STOP

f32 = np.float32
CAP, THRESHOLD, STOP = f32(ALPHA_CAP), f32(ALPHA_THRESHOLD), f32(TRANSMITTANCE_STOP)
TWO, HALF, ONE, ZERO = f32(2), f32(0.5), f32(1), f32(0)
LOG2E, LN2_HIGH, LN2_LOW, LARGEST_SIGMA = f32(1.4426950408889634), f32(0.693359375), f32(-2.12194440e-4), f32(80)
MAGIC = f32(1.5 * 2**23)  # adding and subtracting it rounds to the nearest integer
E2, E3, E4, E5, E6 = f32(0.5), f32(1.6666665459e-1), f32(4.1665795894e-2), f32(8.3334519073e-3), f32(1.3981999507e-3)
E7 = f32(1.9875691500e-4)  # exp(r) = 1 + r + r^2 (E2 + E3 r + E4 r^2 ...), Cephes' expf


@njit()
def gauss(sigma):
    """exp(-sigma) for sigma in 0..LARGEST_SIGMA, clamped outside; within one unit in the last place or two."""
    x = -min(max(sigma, ZERO), LARGEST_SIGMA)
    n = (x * LOG2E + MAGIC) - MAGIC
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    p = ((((E7 * r + E6) * r + E5) * r + E4) * r + E3) * r + E2
    p = (p * r) * r + r + ONE
    return p * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(f32)


@njit()
def is_counted(sigma, alpha):
    """Whether a pair of a live pixel is above the threshold."""
    return (sigma >= ZERO) & (alpha >= THRESHOLD)


@njit(parallel=True)
def prepare(flatten_ids, conics, opacities, heights, squares):
    """Of every listed Gaussian: heights [M], half the height of its enlarged ellipse, and squares [M, 3], its
    exponent as a sum of squares, p u^2 + q dy^2 with u = dx + r dy: what the plain form loses to cancellation in thin
    Gaussians."""
    for k in numba.prange(len(flatten_ids)):
        g = flatten_ids[k]
        a, b, c, det, t = ellipse(conics[g], opacities[g])
        heights[g] = half_height(a, det, t)
        squares[g, 0], squares[g, 1], squares[g, 2] = 0.5 * a, 0.5 * (a * c - b * b) / a, b / a


@njit()
def pixels_reached(mean_y, half_height, Y0, tile_size):
    """Begin and end of the tile's pixels, row by row, in the rows that the ellipse may reach; Y0 is the tile's first
    row of pixels."""
    first = max(math.ceil(mean_y - half_height - 0.5 - Y0), 0.0)
    last = min(math.floor(mean_y + half_height - 0.5 - Y0), tile_size - 1.0)
    return int(min(first, float(tile_size))) * tile_size, (int(max(last, -1.0)) + 1) * tile_size


@njit()
def pixel_centres(X0, Y0, tile_size):
    """x and y of the tile's pixel centres, each [tile_size^2]."""
    px, py = np.empty(tile_size**2, f32), np.empty(tile_size**2, f32)
    for p in range(tile_size**2):
        px[p], py[p] = f32(X0 + p % tile_size) + HALF, f32(Y0 + p // tile_size) + HALF
    return px, py


@njit()
def shade(k, mean, square, o, px, py, T, last, w):
    """One Gaussian over P pixels: T [P] transmittance (negative once the pixel has stopped), last [P]; w [P] weights
    out. Returns how many pixels stop here."""
    mx, my, p, q, r = mean[0], mean[1], square[0], square[1], square[2]
    stopped = 0
    for i in range(len(T)):
        dy = my - py[i]
        u = mx - px[i] + r * dy
        sigma = p * u * u + q * dy * dy
        alpha = min(o * gauss(sigma), CAP)
        before = T[i]
        after = before * (ONE - alpha)
        counted = is_counted(sigma, alpha) & (before > ZERO)
        on = counted & (after > STOP)
        stop = counted & (after <= STOP)
        w[i] = alpha * before if on else ZERO
        T[i] = after if on else (-before if stop else before)
        last[i] = k if on else last[i]
        stopped += 1 if stop else 0
    return stopped


@njit(parallel=True)
def forward(
    means2d,
    squares,
    colors,
    opacities,
    heights,
    offsets,
    flatten_ids,
    keep,
    tile_size,
    tile_width,
    out_colors,
    out_T,
    out_last,
):
    """Composite all tiles: offsets [I * tiles + 1], keep [I * tiles]; out_colors [I, H, W, D], out_T [I, H, W],
    out_last [I, H, W]."""
    images, H, W, D = out_colors.shape
    per_image = (len(offsets) - 1) // max(images, 1)
    for tile in numba.prange(len(offsets) - 1):
        image, X0, Y0 = (
            tile // per_image,
            tile % per_image % tile_width * tile_size,
            tile % per_image // tile_width * tile_size,
        )
        h, w = min(tile_size, H - Y0), min(tile_size, W - X0)
        px, py = pixel_centres(X0, Y0, tile_size)
        T = np.full(tile_size**2, -ONE)  # pixels outside the image have stopped
        T.reshape(tile_size, tile_size)[:h, :w] = ONE
        color = np.zeros((D, tile_size**2), f32)
        last = np.full(tile_size**2, np.int32(-1))
        weight = np.empty(tile_size**2, f32)
        alive = h * w
        for k in range(offsets[tile], offsets[tile + 1] if keep[tile] else offsets[tile]):
            g = flatten_ids[k]
            i, j = pixels_reached(means2d[g, 1], heights[g], Y0, tile_size)
            alive -= shade(
                np.int32(k), means2d[g], squares[g], opacities[g], px[i:j], py[i:j], T[i:j], last[i:j], weight[i:j]
            )
            for d in range(D):
                value, out, weights = colors[g, d], color[d, i:j], weight[i:j]
                for p in range(len(out)):
                    out[p] += value * weights[p]
            if alive == 0:
                break
        for y in range(h):
            for x in range(w):
                p = y * tile_size + x
                for d in range(D):
                    out_colors[image, Y0 + y, X0 + x, d] = color[d, p]
                out_T[image, Y0 + y, X0 + x] = abs(T[p])
                out_last[image, Y0 + y, X0 + x] = last[p]


@njit()
def unshade(k, mean, square, o, px, py, T, last, w, inverse, e):
    """One Gaussian taken back from P pixels: T [P] becomes the transmittance before it. Out: w [P] weights, inverse
    [P] = 1 / (1 - alpha), e [P] = exp(-sigma) where the pair counted and is not capped, else 0."""
    mx, my, p, q, r = mean[0], mean[1], square[0], square[1], square[2]
    for i in range(len(T)):
        dy = my - py[i]
        u = mx - px[i] + r * dy
        sigma = p * u * u + q * dy * dy
        falloff = gauss(sigma)
        raw = o * falloff
        alpha = min(raw, CAP)
        counted = is_counted(sigma, alpha) & (k <= last[i])
        inverse[i] = ONE / (ONE - alpha)
        before = T[i] * inverse[i] if counted else T[i]
        T[i] = before
        w[i] = alpha * before if counted else ZERO
        e[i] = falloff if counted & (raw <= CAP) else ZERO


@njit(fastmath={"reassoc"})
def color_gradients(values, v, w, dot, out):
    """dot [P] = values . v and out[:D] = sum over the pixels of w v, with v [D, P] the upstream gradient."""
    dot[:] = ZERO
    for d in range(len(values)):
        value, v_, total = values[d], v[d], ZERO
        for p in range(len(w)):
            dot[p] += value * v_[p]
            total += w[p] * v_[p]
        out[d] = total


@njit(fastmath={"reassoc"})
def shape_gradients(mean, square, o, px, py, T, inverse, w, dot, behind, e, out):
    """out[:6] = opacity, conic (3), mean (2); q = exp(-sigma) dL/dalpha is left in e [P]; behind [P] takes the
    Gaussian in."""
    mx, my, r = mean[0], mean[1], square[2]
    s = su = sy = sxx = sxy = syy = ZERO
    for p in range(len(T)):
        q = e[p] * (T[p] * dot[p] - behind[p] * inverse[p])
        behind[p] += w[p] * dot[p]
        e[p] = q
        dx, dy = mx - px[p], my - py[p]
        s += q
        su += q * (dx + r * dy)
        sy += q * dy
        sxx += q * dx * dx
        sxy += q * dx * dy
        syy += q * dy * dy
    out[0] = s
    out[1], out[2], out[3] = -HALF * o * sxx, -o * sxy, -HALF * o * syy
    v_u, v_dy = -o * TWO * square[0] * su, -o * TWO * square[1] * sy
    out[4], out[5] = v_u, v_u * r + v_dy


@njit(fastmath={"reassoc"})
def absolute_gradients(mean, square, o, px, py, q, out):
    """out[:2] = sum over the pixels of |dL/dmean2d|."""
    mx, my, r = mean[0], mean[1], square[2]
    ax = ay = ZERO
    for p in range(len(q)):
        dy = my - py[p]
        v_u = TWO * o * q[p] * square[0] * (mx - px[p] + r * dy)
        ax += abs(v_u)
        ay += abs(v_u * r + TWO * o * q[p] * square[1] * dy)
    out[0], out[1] = ax, ay


@njit(parallel=True)
def backward(
    means2d,
    squares,
    colors,
    opacities,
    heights,
    offsets,
    flatten_ids,
    keep,
    tile_size,
    tile_width,
    T_final,
    last_ids,
    v_colors,
    v_T,
    absgrad,
    grads,
):
    """grads [n_isects, D + 6 (+ 2)]: colours, opacity, conic (3), mean (2) and, with absgrad, the sums of the mean's
    absolute values."""
    images, H, W, D = v_colors.shape
    per_image = (len(offsets) - 1) // max(images, 1)
    for tile in numba.prange(len(offsets) - 1):
        image, X0, Y0 = (
            tile // per_image,
            tile % per_image % tile_width * tile_size,
            tile % per_image // tile_width * tile_size,
        )
        P = tile_size**2
        px, py = pixel_centres(X0, Y0, tile_size)
        T, last, v = np.ones(P, f32), np.full(P, np.int32(-1)), np.zeros((D, P), f32)
        behind = np.zeros(P, f32)  # what lies behind, times its upstream gradient
        for y in range(min(tile_size, H - Y0)):
            for x in range(min(tile_size, W - X0)):
                p = y * tile_size + x
                T[p] = T_final[image, Y0 + y, X0 + x]
                behind[p] = T[p] * v_T[image, Y0 + y, X0 + x]
                last[p] = last_ids[image, Y0 + y, X0 + x]
                for d in range(D):
                    v[d, p] = v_colors[image, Y0 + y, X0 + x, d]
        w, inverse, e, dot = np.empty(P, f32), np.empty(P, f32), np.empty(P, f32), np.empty(P, f32)
        final = max(last.max(), offsets[tile] - 1) if keep[tile] else offsets[tile] - 1
        grads[final + 1 : offsets[tile + 1]] = ZERO
        for k in range(final, offsets[tile] - 1, -1):
            g = flatten_ids[k]
            mean, square, o = means2d[g], squares[g], opacities[g]
            i, j = pixels_reached(mean[1], heights[g], Y0, tile_size)
            unshade(np.int32(k), mean, square, o, px[i:j], py[i:j], T[i:j], last[i:j], w[i:j], inverse[i:j], e[i:j])
            color_gradients(colors[g], v[:, i:j], w[i:j], dot[i:j], grads[k])
            shape_gradients(
                mean,
                square,
                o,
                px[i:j],
                py[i:j],
                T[i:j],
                inverse[i:j],
                w[i:j],
                dot[i:j],
                behind[i:j],
                e[i:j],
                grads[k, D:],
            )
            if absgrad:
                absolute_gradients(mean, square, o, px[i:j], py[i:j], e[i:j], grads[k, D + 6 :])


@njit(parallel=True)
def sum_by_gaussian(blocks, flatten_ids, grads, out):
    """out [M, K] += grads [n_isects, K], every Gaussian's records in the order of the list: each block of Gaussians
    has one writer, so that the sums do not depend on the number of blocks."""
    for block in numba.prange(blocks):
        first, end = block * len(out) // blocks, (block + 1) * len(out) // blocks
        for k in range(len(flatten_ids)):
            g = flatten_ids[k]
            if first <= g < end:
                for d in range(grads.shape[1]):
                    out[g, d] += grads[k, d]


@njit(parallel=True)
def pair_sides(means2d, squares, opacities, heights, offsets, flatten_ids, tile_size, tile_width, last_ids, sides):
    """The decisions that `forward` took, sides [n_isects, tile_size^2], for the comparison with the reference."""
    images, H, W = last_ids.shape
    per_image = (len(offsets) - 1) // max(images, 1)
    for tile in numba.prange(len(offsets) - 1):
        image, X0, Y0 = (
            tile // per_image,
            tile % per_image % tile_width * tile_size,
            tile % per_image // tile_width * tile_size,
        )
        for k in range(offsets[tile], offsets[tile + 1]):
            g = flatten_ids[k]
            sides[k] = SKIPPED
            i, j = pixels_reached(means2d[g, 1], heights[g], Y0, tile_size)
            for p in range(i, j):
                x, y = X0 + p % tile_size, Y0 + p // tile_size
                if x >= W or y >= H:
                    continue
                dy = means2d[g, 1] - (f32(y) + HALF)
                u = means2d[g, 0] - (f32(x) + HALF) + squares[g, 2] * dy
                sigma = squares[g, 0] * u * u + squares[g, 1] * dy * dy
                raw = opacities[g] * gauss(sigma)
                if is_counted(sigma, min(raw, CAP)) and k <= last_ids[image, y, x]:
                    sides[k, p] = CAPPED if raw > CAP else COUNTED
