"""Launching the convolution kernels for one slice, all of whose tensors lie within the window."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lanewise.conv import launch_correlate, launch_weight
from lanewise.conv.launch_layout import copy_from_channels_last
from lanewise.conv.launch_operands import empty, volume
from lanewise.conv.problem import Problem
from lanewise.conv.recorded import recorded
from lanewise.splat._launch import on_its_device

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def supports(problem: Problem) -> str | None:
    """Why the kernels cannot take a problem; None when they can."""
    if problem.dtype not in DTYPES:
        return f"the kernels take {', '.join(str(dtype) for dtype in DTYPES)}, not {problem.dtype}"
    return None


@on_its_device
def forward(
    x: Tensor, w: Tensor, bias: Tensor | None, problem: Problem, precision: str = "fp32", out: Tensor | None = None
) -> Tensor:
    """The convolution y [N, K, (D,) H, W] of x [N, C, (D,) H, W] with w [K, C / groups, (kd,) kh, kw], plus bias [K].

    Args:
        x: fp32, fp16 or bf16; any strides.
        w: of the same dtype.
        bias: of any dtype, or None.
        problem: the sizes of this slice.
        precision: "fp32" (relative error <= 1e-6) or "tf32", for fp32 tensors; sums are always fp32.
        out: written and returned, when given: any strides.

    Raises:
        UnsupportedError: a tensor of the slice needs more than 32-bit offsets.
    """
    return recorded(_forward, x, w, bias, problem, precision, out)


def _forward(x: Tensor, w: Tensor, bias: Tensor | None, problem: Problem, precision: str, out: Tensor | None) -> Tensor:
    shape = (problem.n, problem.k, *problem.spatial_out)
    y = empty(shape, x, problem.channels_last) if out is None else volume(out)
    launch_correlate.correlate(volume(x), volume(w), bias, y, problem, precision, transposed=False)
    return y.squeeze(2) if x.dim() == 4 else y


@on_its_device
def input_grad(
    dy: Tensor, w: Tensor, bias: Tensor | None, problem: Problem, precision: str = "fp32", out: Tensor | None = None
) -> Tensor:
    """The gradient of the input [N, C, (D,) H, W] from the output's [N, K, (D,) H, W], plus bias [C], that of a
    transposed convolution; arguments as `forward`'s."""
    return recorded(_input_grad, dy, w, bias, problem, precision, out)


def _input_grad(
    dy: Tensor, w: Tensor, bias: Tensor | None, problem: Problem, precision: str, out: Tensor | None
) -> Tensor:
    shape = (problem.n, problem.c, *problem.spatial_in)
    dx = empty(shape, dy, problem.channels_last) if out is None else volume(out)
    launch_correlate.correlate(volume(dy), volume(w), bias, dx, problem, precision, transposed=True)
    return dx.squeeze(2) if dy.dim() == 4 else dx


@on_its_device
def weight_grad(x: Tensor, dy: Tensor, problem: Problem, precision: str = "fp32") -> Tensor:
    """The weights' gradient [K, C / groups, (kd,) kh, kw], fp32, from x [N, C, (D,) H, W] and dy [N, K, (D,) H, W].

    The same bits every time: parts of the sum over pixels are written to a workspace and added in order. It is fp32 for
    tensors of 16 bits too, and rounded by who asks; but its error is then of that dtype's size rather than 1e-6, since
    Hopper's matrix instructions cut off, instead of rounding, what they add to a sum of 16-bit products.
    """
    return recorded(_weight_grad, x, dy, problem, precision)


def _weight_grad(x: Tensor, dy: Tensor, problem: Problem, precision: str) -> Tensor:
    planar = x.dim() == 4
    shape = (problem.k, problem.c // problem.groups, *problem.kernel)
    taps_first = shape[1] > 1 and math.prod(problem.kernel) > 1  # as the kernels write it; else all orders are one
    dw = made = empty(shape, x, taps_first, torch.float32)
    launch_weight.weight_grad(volume(x), volume(dy), made, problem, precision)
    if taps_first and not problem.channels_last:
        dw = torch.empty(shape, dtype=torch.float32, device=x.device)
        copy_from_channels_last(made, dw)
    return dw.squeeze(2) if planar else dw


@on_its_device
def bias_grad(dy: Tensor) -> Tensor:
    """The gradient of the bias [K], fp32: dy [N, K, (D,) H, W] summed over pixels, in pairs and in the same order."""
    return recorded(launch_weight.bias_grad, dy)
