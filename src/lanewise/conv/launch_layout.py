"""Tensors in the memory order that the dense kernels read.

Their loads are vectors of channels: where columns are neighbours, every tap would shift them against the vectors. So
what is not in that order is copied once, which is cheap beside the products (and what the vendors do too).
"""

from __future__ import annotations

import math

from torch import Tensor

from lanewise.conv import kernels_layout
from lanewise.conv.launch_blocks import ceil_div
from lanewise.conv.launch_operands import VECTOR, alignment, empty, flat, grid, line, strides
from lanewise.splat._launch import launch

BLOCK = 64


def channels_last(tensor: Tensor) -> Tensor:
    """[N, C, D, H, W] with channels as neighbours: itself, or a copy."""
    if tensor.stride(1) == 1 or tensor.shape[1] == 1:
        return tensor
    out = empty(tuple(tensor.shape), tensor, True)
    if not flat(tensor) or line(tensor).stride(4) != 1:
        return out.copy_(tensor)
    C, P = tensor.shape[1], math.prod(tensor.shape[2:])
    _transpose(line(tensor)[:, :, 0, 0], out, (C * P, C))
    return out


def rows(tensor: Tensor) -> Tensor:
    """[pixels of all images, C] of [N, C, D, H, W], C contiguous."""
    tensor = channels_last(tensor).permute(0, 2, 3, 4, 1)
    return tensor.reshape(-1, tensor.shape[4])


def planes(tensor: Tensor) -> Tensor:
    """[C, pixels of all images] of [N, C, D, H, W], pixels contiguous. Rows are whole vectors, zeros at the end."""
    N, C, P = tensor.shape[0], tensor.shape[1], math.prod(tensor.shape[2:])
    vector = VECTOR // tensor.element_size()
    out = tensor.new_empty(C, ceil_div(N * P, vector) * vector)
    out[:, N * P :].zero_()
    out = out[:, : N * P]
    pixels = tensor.flatten(2)
    if pixels.stride(1) == 1 and C > 1:
        _transpose(pixels.transpose(1, 2), out, (P, out.stride(0)))
    else:
        out.unflatten(1, (N, P)).copy_(pixels.transpose(0, 1))
    return out


def _transpose(a: Tensor, b: Tensor, to: tuple[int, int]) -> None:
    """a [N, R, C] into b [N, C, R] with strides `to`; both contiguous in the last axis."""
    (N, R, C), (an, ar, _) = a.shape, strides(a)
    strides(b)
    launch(
        kernels_layout.transpose,
        grid(N * ceil_div(R, BLOCK) * ceil_div(C, BLOCK)),
        *(a, b, R, C, an, ar, *to),
        ALIGN=alignment(a, 2, C),
        B_ALIGN=math.gcd(VECTOR // b.element_size(), R, *to),
        BLOCK=BLOCK,
        options={"num_warps": 4},
    )
