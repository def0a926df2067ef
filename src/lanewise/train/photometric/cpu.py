"""L1 + SSIM and its gradient on the CPU, in one pass over the pictures (numba).

A picture [H, W, D] is walked as H rows of W * D numbers: a neighbour in x is then D numbers away, and every inner loop
runs over a row, which the compiler turns into vector instructions. The window is separable (first down the columns,
then along the rows) and symmetric (rows t and 10 - t share a weight). One thread alone computes a row, and the rows'
sums are added in order, so that the number of threads changes no bit.

The gradient of SSIM follows from three derivatives for every window q, with E the weighted mean over the window:
    u = d ssim / d E[x],  v = d ssim / d E[x^2],  w = d ssim / d E[x y]
    d / d x_p = sum_q g(p - q) (u_q + 2 x_p v_q + y_p w_q)
"""

from __future__ import annotations

import numba
import numpy as np

from lanewise._numba import njit
from lanewise.train.photometric.reference import C1, C2, WINDOW, window

_CONTRACT = {"contract"}  # fused multiply-adds; no other liberty


def photometric_loss(
    render: np.ndarray, target: np.ndarray, mask: np.ndarray, ssim_weight: float
) -> tuple[float, np.ndarray]:
    """The loss and its gradient with respect to `render`.

    Args:
        render, target: float32 [C, H, W, D], contiguous, 0 where the mask is 0.
        mask: float32 [C, H, W, D], 1 where a value counts, else 0.
        ssim_weight: w in (1 - w) L1 + w (1 - SSIM).

    Returns:
        the loss, and the gradient, float32 [C, H, W, D].
    """
    cameras, height, width, depth = render.shape
    border = WINDOW // 2
    centres = mask[:, border : height - border, border : width - border]
    l1_scale = (1 - ssim_weight) / max(mask.sum(dtype=np.float64), 1.0)
    counted = centres.sum(dtype=np.float64) if ssim_weight else 0.0
    ssim_scale = ssim_weight / max(counted, 1.0)
    rows = (cameras, height, width * depth)
    x, y, m = render.reshape(rows), target.reshape(rows), mask.reshape(rows)
    gradient = np.empty(rows, np.float32)
    l1 = _l1(x, y, m, np.float32(l1_scale), gradient)
    loss = l1_scale * l1
    if counted:
        weights = window().numpy().astype(np.float32)
        # Derivatives of the windows with a border of zeros, so that the sum over q needs no cases.
        derivatives = np.zeros((cameras, 3, height + 2 * border, width * depth + 2 * border * depth), np.float32)
        similarity = _ssim(x, y, m, weights, depth, np.float32(C1), np.float32(C2), derivatives)
        _ssim_gradient(x, y, m, weights, depth, np.float32(-ssim_scale), derivatives, gradient)
        loss += ssim_weight - ssim_scale * similarity
    return loss, gradient.reshape(render.shape)


@njit(parallel=True)
def _l1(x, y, m, scale, gradient):
    """Sum of |x - y|; writes scale * m * sign(x - y)."""
    cameras, height = x.shape[:2]
    sums = np.empty(cameras * height, np.float64)
    for row in numba.prange(cameras * height):
        c, i = row // height, row % height
        sums[row] = _l1_row(x[c, i], y[c, i], m[c, i], scale, gradient[c, i])
    return sums.sum()


@njit(fastmath={"contract", "reassoc"})
def _l1_row(x, y, m, scale, gradient):
    total = np.float32(0)
    for j in range(len(x)):
        difference = x[j] - y[j]
        total += abs(difference)
        gradient[j] = scale * m[j] * np.sign(difference)
    return total


@njit(parallel=True)
def _ssim(x, y, m, g, step, c1, c2, derivatives):
    """Sum of the similarity where the window's centre counts; writes u, v, w of every such window."""
    cameras, height, length = x.shape
    border = len(g) // 2
    inner_rows, inner = height - 2 * border, length - 2 * border * step
    sums = np.empty(cameras * inner_rows, np.float64)
    for row in numba.prange(cameras * inner_rows):
        c, i = row // inner_rows, row % inner_rows
        columns = np.empty((5, length), np.float32)
        means = np.empty((5, inner), np.float32)
        _down_columns(x[c], y[c], i, g, columns)
        for k in range(5):
            _along_row(columns[k], g, step, means[k])
        first = 2 * border * step
        sums[row] = _similarity_row(
            means,
            m[c, i + border, border * step : border * step + inner],
            c1,
            c2,
            derivatives[c, :, i + 2 * border, first : first + inner],
        )
    return sums.sum()


@njit(fastmath=_CONTRACT)
def _down_columns(x, y, top, g, out):
    """out [5, L]: weighted sums of x, y, x^2, y^2, x y over the window's rows, the first of which is `top`."""
    last = len(g) - 1
    middle = last // 2
    for j in range(x.shape[1]):
        a, b = x[top + middle, j], y[top + middle, j]
        out[0, j] = g[middle] * a
        out[1, j] = g[middle] * b
        out[2, j] = g[middle] * (a * a)
        out[3, j] = g[middle] * (b * b)
        out[4, j] = g[middle] * (a * b)
    for t in range(middle):
        xa, xb, ya, yb = x[top + t], x[top + last - t], y[top + t], y[top + last - t]
        for j in range(x.shape[1]):
            out[0, j] += g[t] * (xa[j] + xb[j])
            out[1, j] += g[t] * (ya[j] + yb[j])
            out[2, j] += g[t] * (xa[j] * xa[j] + xb[j] * xb[j])
            out[3, j] += g[t] * (ya[j] * ya[j] + yb[j] * yb[j])
            out[4, j] += g[t] * (xa[j] * ya[j] + xb[j] * yb[j])


@njit(fastmath=_CONTRACT)
def _along_row(row, g, step, out):
    """out[j] = sum over t of g[t] row[j + t step]."""
    last = len(g) - 1
    middle = last // 2
    for j in range(len(out)):
        out[j] = g[middle] * row[j + middle * step]
    for t in range(middle):
        left, right = row[t * step :], row[(last - t) * step :]
        for j in range(len(out)):
            out[j] += g[t] * (left[j] + right[j])


@njit(fastmath={"contract", "reassoc"})
def _similarity_row(means, m, c1, c2, derivatives):
    total = np.float32(0)
    one, two = np.float32(1), np.float32(2)
    for j in range(means.shape[1]):
        mx, my = means[0, j], means[1, j]
        a1 = two * mx * my + c1
        a2 = two * (means[4, j] - mx * my) + c2
        b1 = mx * mx + my * my + c1
        b2 = means[2, j] - mx * mx + means[3, j] - my * my + c2
        inverse = one / (b1 * b2)
        similarity = a1 * a2 * inverse
        v = -similarity / b2
        w = two * a1 * inverse
        u = two * my * a2 * inverse - two * mx * similarity / b1 - two * mx * v - my * w
        total += m[j] * similarity
        derivatives[0, j] = m[j] * u
        derivatives[1, j] = m[j] * v
        derivatives[2, j] = m[j] * w
    return total


@njit(parallel=True)
def _ssim_gradient(x, y, m, g, step, scale, derivatives, gradient):
    """Adds scale times the gradient of the sum of similarities."""
    cameras, height, length = x.shape
    for row in numba.prange(cameras * height):
        c, i = row // height, row % height
        columns = np.empty(derivatives.shape[3], np.float32)
        sums = np.empty((3, length), np.float32)
        for k in range(3):
            _down_column(derivatives[c, k], i, g, columns)
            _along_row(columns, g, step, sums[k])
        _gradient_row(x[c, i], y[c, i], m[c, i], scale, sums, gradient[c, i])


@njit(fastmath=_CONTRACT)
def _down_column(x, top, g, out):
    """out [L]: weighted sum over the window's rows, the first of which is `top`."""
    last = len(g) - 1
    middle = last // 2
    for j in range(x.shape[1]):
        out[j] = g[middle] * x[top + middle, j]
    for t in range(middle):
        above, below = x[top + t], x[top + last - t]
        for j in range(x.shape[1]):
            out[j] += g[t] * (above[j] + below[j])


@njit(fastmath=_CONTRACT)
def _gradient_row(x, y, m, scale, sums, gradient):
    two = np.float32(2)
    for j in range(len(x)):
        gradient[j] += scale * m[j] * (sums[0, j] + two * x[j] * sums[1, j] + y[j] * sums[2, j])
