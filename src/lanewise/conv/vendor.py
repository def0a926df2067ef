"""Torch's own convolution, one launch at a time: cuDNN, MIOpen or oneDNN, whichever torch takes.

Every launch is one of the planner's slices, so that torch never sees a tensor that is larger than the window.
"""

from __future__ import annotations

import functools
import math
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from lanewise.conv.precision import NOTHING, Precision, in_force
from lanewise.conv.problem import Problem
from lanewise.conv.sliced import memory_format

SUM_ELEMENTS = 1 << 22  # of a gradient, that are in memory in fp64 at a time; a single image may be more
# What one element of a weight's gradient sums in one call on a CPU. oneDNN adds in fp32 one after the other: 6.6e-6 off
# after 262,144 products, 5e-7 after these.
CPU_PRODUCTS = 1024
HALF = (torch.float16, torch.bfloat16)
ONLY_X, ONLY_W = [True, False, False], [False, True, False]


def forward(x: Tensor, w: Tensor, bias: Tensor | None, problem: Problem, precision: Precision) -> Tensor:
    """y [n, k, ...] of `x` [n, c, ...], `w` [k, c / groups, ...] and `bias` [k] or None, all of one dtype."""
    if x.is_cpu:
        return _forward_on_cpu(x, w, bias, problem, precision)
    with _as_asked(x, precision):
        return torch.convolution(x, w, bias, *problem.geometry)


def _forward_on_cpu(x: Tensor, w: Tensor, bias: Tensor | None, problem: Problem, precision: Precision) -> Tensor:
    dtype, (stride, padding, *others) = x.dtype, problem.geometry
    if _sees_padding_alone(problem):
        x = pad(x, [zeros for zeros in reversed(padding) for _ in range(2)])
        padding = [0] * problem.dims
    operands = _wide(x), _wide(w), None if bias is None else _wide(bias)
    with _as_asked(x, precision):
        return torch.convolution(*operands, stride, padding, *others).to(dtype)


def _sees_padding_alone(problem: Problem) -> bool:
    """Whether there are outputs that see nothing of the input: oneDNN, as in torch 2.13, follows a null pointer there
    on processors with AVX-512 (brgemm_convolution_fwd_t::perform_outwork)."""
    axes = zip(problem.padding, problem.dilation, problem.kernel, strict=True)
    return any(zeros > dilation * (taps - 1) for zeros, dilation, taps in axes)


def input_grad(dy: Tensor, w: Tensor, problem: Problem, precision: Precision) -> Tensor:
    """The gradient of x [n, c, ...] from that of y [n, k, ...] and `w` [k, c / groups, ...]."""
    if not dy.is_cpu and problem.transposed is not None:
        with _as_asked(dy, precision):
            return torch.convolution(dy, w, None, *problem.transposed)
    wide_dy, wide_w = (_wide(dy), _wide(w)) if dy.is_cpu else (dy, w)
    x = _only_its_shape(wide_dy, problem.x_shape, problem)
    return _backward(wide_dy, x, wide_w, problem, precision, ONLY_X)[0].to(dy.dtype)


def weight_grad(x: Tensor, dy: Tensor, problem: Problem, precision: Precision) -> Tensor:
    """The gradient of w [k, c / groups, ...] from `x` [n, c, ...] and the gradient of y [n, k, ...]; of half precision
    in fp32 on a CPU."""
    if not x.is_cpu:
        return _weight_grad(x, dy, problem, precision)
    images = max(1, CPU_PRODUCTS // math.prod(problem.spatial_out))
    if images >= problem.n:
        return _weight_grad(_wide(x), _wide(dy), problem, precision)
    total = torch.zeros(problem.w_shape, dtype=torch.float64)
    for some_x, some_dy in zip(x.split(images), dy.split(images), strict=True):
        total += _weight_grad(_wide(some_x), _wide(some_dy), problem, precision)
    return total.to(_wide_dtype(x))


def _weight_grad(x: Tensor, dy: Tensor, problem: Problem, precision: Precision) -> Tensor:
    return _backward(dy, x, _only_its_shape(x, problem.w_shape, problem), problem, precision, ONLY_W)[1]


def bias_grad(dy: Tensor) -> Tensor:
    """The gradient of the bias [k] from that of y [n, k, ...], summed in fp64, some images at a time."""
    total = dy.new_zeros(dy.shape[1], dtype=torch.float64)
    images = max(1, SUM_ELEMENTS // max(1, dy[:1].numel()))
    for part in dy.flatten(2).split(images):
        total += part.double().sum((0, 2))
    return total.to(dy.dtype)


def _backward(
    dy: Tensor, x: Tensor, w: Tensor, problem: Problem, precision: Precision, mask: list[bool]
) -> tuple[Any, Any, Any]:
    with _as_asked(dy, precision):
        return torch.ops.aten.convolution_backward.default(dy, x, w, None, *problem.geometry, mask)


def _wide_dtype(tensor: Tensor) -> torch.dtype:
    return torch.float32 if tensor.dtype in HALF else tensor.dtype


def _wide(tensor: Tensor) -> Tensor:
    """A CPU's tensor in fp32, where torch would round its partial sums to half precision: that leaves a third of a bf16
    weight's gradient wrong after 262,144 products."""
    return tensor.to(_wide_dtype(tensor))


def _only_its_shape(like: Tensor, shape: tuple[int, ...], problem: Problem) -> Tensor:
    """For an argument that torch asks for and does not read: a view of some tensor that claims to have its shape. Where
    torch takes the layout from it too, one that has the layout; where no view has room for that, memory that nobody
    writes."""
    if not problem.channels_last:
        return like.as_strided(shape, (0,) * len(shape))
    if math.prod(shape) > like.numel():
        format = memory_format(problem.dims, True)
        return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=format)
    return like.as_strided(shape, _channels_last_strides(shape))


@functools.lru_cache(maxsize=4096)
def _channels_last_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return torch.empty(shape, device="meta", memory_format=memory_format(len(shape) - 2, True)).stride()


def _as_asked(tensor: Tensor, precision: Precision) -> AbstractContextManager[object]:
    """Torch's flags as `precision` says, where it says anything, and no autocast: the operands were cast by whoever
    called."""
    autocast = torch._C._is_any_autocast_enabled()
    if tensor.dtype != torch.float32 and not autocast:
        return NOTHING
    device = "cuda" if tensor.is_cuda else tensor.device.type
    flags = in_force(precision, device) if tensor.dtype == torch.float32 else NOTHING
    if not (autocast and torch.is_autocast_enabled(device)):
        return flags
    both = ExitStack()
    both.enter_context(torch.autocast(device, enabled=False))
    both.enter_context(flags)
    return both
