"""The statistics of adaptive density control in Triton: a block of Gaussians, one camera after the other."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["N", "cameras", "camera_stride", "row_stride", "column_stride"])
def observe(
    v_means2d, radii, grad2d, count, widest, skip, N, cameras, camera_stride, row_stride, column_stride,
    half_width, half_height, longest, WIDEST: tl.constexpr, GUARD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """grad2d, count and with WIDEST widest [N] of v_means2d [C, N, 2], strided, and radii [C, N, 2], contiguous.

    half_width and half_height turn gradients by pixels into gradients by half images, `longest` is the longer side.
    GUARD: nothing changes where `skip` [1] is not 0.
    """
    n = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    rows = N
    if GUARD:
        rows = tl.where(tl.load(skip) == 0, N, 0)
    inside = n < rows
    total, seen, largest = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.int32)
    v = v_means2d + n * row_stride
    r = radii + 2 * n
    for _ in range(cameras):
        rx, ry = tl.load(r, inside, 0), tl.load(r + 1, inside, 0)
        visible = (rx > 0) & (ry > 0)
        x = tl.load(v, visible, 0.0) * half_width
        y = tl.load(v + column_stride, visible, 0.0) * half_height
        total += tl.sqrt_rn(x * x + y * y)
        seen += tl.where(visible, 1.0, 0.0)
        largest = tl.maximum(largest, tl.where(visible, tl.maximum(rx, ry), 0))
        v += camera_stride
        r += 2 * tl.cast(N, tl.int64)
    tl.store(grad2d + n, tl.load(grad2d + n, inside, 0.0) + total, inside)
    tl.store(count + n, tl.load(count + n, inside, 0.0) + seen, inside)
    if WIDEST:
        tl.store(
            widest + n, tl.maximum(tl.load(widest + n, inside, 0.0), tl.div_rn(largest.to(tl.float32), longest)), inside
        )
