"""Tensors in the memory order that the dense kernels read.

Their loads are vectors of channels: where columns are neighbours, every tap would shift them against the vectors. So
what is not in that order is copied once, which is cheap beside the products (and what the vendors do too).
"""

from __future__ import annotations

import math

from torch import Tensor

from lanewise.conv import kernels_layout
from lanewise.conv.launch_blocks import ceil_div, power_of_two
from lanewise.conv.launch_operands import VECTOR, alignment, empty, flat, grid, line, strides
from lanewise.splat._launch import launch

BLOCK = 64


def channels_last(tensor: Tensor) -> Tensor:
    """[N, C, D, H, W] with channels as neighbours: itself, or a copy."""
    if tensor.stride(1) == 1 or tensor.shape[1] == 1:
        return tensor
    out = empty(tuple(tensor.shape), tensor, True)
    if not _has_runs(tensor):
        return out.copy_(tensor)
    C, P = tensor.shape[1], math.prod(tensor.shape[2:])
    _transpose(line(tensor)[:, :, 0, 0], out, (C * P, C))
    return out


def copy_from_channels_last(tensor: Tensor, out: Tensor) -> None:
    """out [N, C, D, H, W] = the tensor, a contiguous one with channels as neighbours."""
    if not _has_runs(out):
        out.copy_(tensor)
        return
    n, c, *_ = strides(out)
    _transpose(tensor.permute(0, 2, 3, 4, 1).flatten(1, 3), out, (n, c))


def packed(w: Tensor, groups: int, transposed: bool) -> Tensor:
    """Weights [K, C / groups, kd, kh, kw] as [groups, outputs, taps, inputs]; a view of channels_last weights.

    Transposed, for the input gradient, outputs are the input's channels.
    """
    K, C = w.shape[:2]
    taps = math.prod(w.shape[2:])
    last = w.permute(0, 2, 3, 4, 1)
    if not transposed:
        if taps == 1 or last.is_contiguous() or not w.is_contiguous():
            return last.reshape(groups, K // groups, taps, C).contiguous()
        out = w.new_empty(groups, K // groups, taps, C)
        _transpose(w.flatten(2), out, (taps * C, C))
        return out
    out = w.new_empty(groups, C, taps, K // groups)
    if groups == 1 and w.is_contiguous():
        _transpose(w.reshape(1, K, C * taps), out, (0, K))
    elif groups == 1 and last.is_contiguous():
        _transpose(last.reshape(K, taps, C).transpose(0, 1), out, (K, taps * K))
    else:
        out.copy_(last.reshape(groups, K // groups, taps, C).permute(0, 3, 2, 1))
    return out


def taps_first(w: Tensor) -> Tensor:
    """Depthwise weights [K, 1, kd, kh, kw] as [taps, K], so that channels are neighbours."""
    K, taps = w.shape[0], math.prod(w.shape[2:])
    out = w.new_empty(taps, K)
    _transpose(w.contiguous().view(1, K, taps), out, (0, K))
    return out


def _has_runs(tensor: Tensor) -> bool:
    """Whether the pixels of an image are neighbours in memory."""
    return flat(tensor) and line(tensor).stride(4) == 1


def rows(tensor: Tensor) -> Tensor:
    """[pixels of all images, C] of [N, C, D, H, W], C contiguous."""
    tensor = channels_last(tensor).permute(0, 2, 3, 4, 1)
    return tensor.reshape(-1, tensor.shape[4])


def planes(tensor: Tensor) -> Tensor:
    """[images, C, pixels] of [N, C, D, H, W], pixels contiguous and in whole vectors: the same memory, or a copy in
    which the batch is one image, with zeros at the end."""
    return line(tensor)[:, :, 0, 0] if _has_planes(tensor) else _one_plane(tensor)


def one_order(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """`planes` of two tensors with the same pixels, in the same order."""
    if _has_planes(a) and _has_planes(b):
        return planes(a), planes(b)
    return _one_plane(a), _one_plane(b)


def _has_planes(tensor: Tensor) -> bool:
    if not _has_runs(tensor):
        return False
    whole = line(tensor)
    return alignment(whole, 4, whole.shape[4]) == VECTOR // tensor.element_size()


def _one_plane(tensor: Tensor) -> Tensor:
    N, C, P = tensor.shape[0], tensor.shape[1], math.prod(tensor.shape[2:])
    vector = VECTOR // tensor.element_size()
    out = tensor.new_empty(1, C, ceil_div(N * P, vector) * vector)
    if out.shape[2] > N * P:
        out[:, :, N * P :].zero_()
    pixels = tensor.flatten(2)
    if pixels.stride(1) == 1 and C > 1:
        _transpose(pixels.transpose(1, 2), out, (P, out.stride(1)))
    else:
        out[0, :, : N * P].unflatten(1, (N, P)).copy_(pixels.transpose(0, 1))
    return out


def _transpose(a: Tensor, b: Tensor, to: tuple[int, int]) -> None:
    """a [N, R, C] into b [N, C, R] with strides `to`; both contiguous in the last axis."""
    (N, R, C), (an, ar, _) = a.shape, strides(a)
    strides(b)
    BR, BC = min(power_of_two(R), BLOCK), min(power_of_two(C), BLOCK)
    launch(
        kernels_layout.transpose,
        grid(N * ceil_div(R, BR) * ceil_div(C, BC)),
        *(a, b, R, C, an, ar, *to),
        ALIGN=alignment(a, 2, C),
        B_ALIGN=math.gcd(VECTOR // b.element_size(), R, *to),
        BR=BR,
        BC=BC,
        options={"num_warps": 4},
    )
