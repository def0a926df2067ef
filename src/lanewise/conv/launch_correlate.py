"""Launching forward and input gradient: dense, pointwise or depthwise."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lanewise.conv import kernels, kernels_depthwise, kernels_pointwise
from lanewise.conv import launch_blocks as blocks
from lanewise.conv.launch_blocks import NARROW, ceil_div, halves
from lanewise.conv.launch_layout import channels_last, copy_from_channels_last, packed, taps_first
from lanewise.conv.launch_operands import (
    NUMBERS,
    ONE,
    VECTOR,
    alignment,
    axis_steps,
    check,
    count_pixels,
    dense,
    depthwise,
    empty,
    flat,
    grid,
    input_precision,
    line,
    multiprocessors,
    ordered,
    pointwise,
    stages,
    strides,
    transposed_steps,
    usable,
    within_window,
)
from lanewise.conv.launch_sum import add_parts
from lanewise.conv.problem import Problem, Triple
from lanewise.splat._launch import launch

RESIDENT = 2  # programs of the narrow kernel that a multiprocessor holds


def correlate(
    x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, problem: Problem, precision: str, transposed: bool
) -> None:
    """y = the correlation of x: forward, or, transposed, dx (called y) of dy (called x)."""
    if not y.numel():
        return
    if not problem.c or not problem.k:
        y.zero_() if bias is None else y.copy_(bias.view(1, -1, 1, 1, 1))
        return
    within_window(x, y)
    made, y = y, usable(y)[0]
    how = input_precision(problem, precision, x.device)
    if depthwise(problem):
        _correlate_depthwise(x, w, bias, y, problem, transposed)
    elif _as_planes(x, y, problem):
        _correlate_pointwise(usable(x)[0], w, bias, y, how, transposed)
    else:
        _correlate_dense(x, w, bias, y, problem, how, transposed)
    if made is not y:
        made.copy_(y)


def _as_planes(x: Tensor, y: Tensor, problem: Problem) -> bool:
    """Whether a product takes x and y as they are, pixels as neighbours: where matrix instructions read them so, which
    are those of 16 bits, or where few channels leave memory as the bound; and pixels have to be whole vectors."""
    if not pointwise(problem) or usable(x)[1] or usable(y)[1] or not flat(x) or not flat(y):
        return False
    if max(problem.c, problem.k) <= NARROW:
        return True
    return x.element_size() == 2 and math.prod(problem.spatial_out) % 2 == 0


def _correlate_dense(
    x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, problem: Problem, how: str, transposed: bool
) -> None:
    x = channels_last(x)
    groups = problem.groups
    inputs, outputs = x.shape[1] // groups, y.shape[1] // groups
    phases, phase, spacing, advance = _phases(problem, transposed)
    made, planes = y, phases == 1 and _whole_planes(y)
    if y.shape[1] > 1 and not (planes or usable(y)[1]):  # number by number takes longer than transposing afterwards
        y = empty(tuple(y.shape), y, True)
    kernel, run = problem.kernel, inputs
    runs = not transposed and has_runs(x, problem)
    if runs:
        kernel, inputs = (*kernel[:2], 1), kernel[2] * inputs
    rows = count_pixels(problem.n, phase)
    count_pixels(problem.n, y.shape[2:])
    met = ceil_div(math.prod(kernel), math.prod(spacing))
    block, splits = blocks.correlation(
        *(rows, phases * groups, inputs, outputs, met, x.element_size() == 2, multiprocessors(x.device)),
        y.numel() if dense(y) else None,
        scattered=runs,
    )
    weights = packed(w, groups, transposed)
    check(weights.numel() < NUMBERS, f"{weights.numel()} weights")
    parts = y if splits == 1 else y.new_empty(splits, y.numel(), dtype=torch.float32)
    y_align = _plane_alignment(y) if planes else alignment(y, 1, outputs)
    (xn, _, *xs), ys = strides(x), strides(y)
    launch(
        kernels.correlate,
        grid(ceil_div(rows, block.m) * ceil_div(outputs, block.n) * groups * phases * splits),
        *(x, weights, bias, parts, rows, groups, inputs, outputs, *x.shape[2:], *phase, *y.shape[2:]),
        *(xn, *xs, *ys, *kernel, *axis_steps(problem)[3:], *spacing, *advance, splits, y.numel(), run),
        TRANSPOSED=transposed,
        VOLUME=max(problem.spatial_in[0], problem.spatial_out[0], problem.kernel[0]) > 1,
        RUNS=runs,
        FLAT=phases == 1 and flat(y),
        PLANES=planes,
        BIAS=bias is not None,
        ALIGN=alignment(x, 1, inputs),
        W_ALIGN=math.gcd(VECTOR // x.element_size(), inputs),
        Y_ALIGN=y_align if splits == 1 else math.gcd(y_align, y.numel()),
        PRECISION=how,
        BM=block.m,
        BN=block.n,
        BK=block.k,
        STAGES=stages(block.stages, x.device),
        options={"num_warps": block.num_warps},
    )
    add_parts(parts, y, splits)
    if made is not y:
        copy_from_channels_last(y, made)


def _whole_planes(y: Tensor) -> bool:
    """Whether the pixels of an image [N, C, D, H, W] are neighbours, and whole vectors of them are stored: 8 bytes at
    least, which are as fast as 16."""
    if usable(y)[1] or not flat(y) or line(y).stride(4) != 1:
        return False
    return _plane_alignment(y) * y.element_size() >= 8


def _plane_alignment(y: Tensor) -> int:
    return alignment(line(y), 4, math.prod(y.shape[2:]))


def _phases(problem: Problem, transposed: bool) -> tuple[int, Triple, Triple, Triple]:
    """Of a correlation as in `kernels`: phases, pixels of each along the axes, and spacing and advance."""
    if not transposed:
        return 1, problem.spatial_out, ONE, problem.dilation
    d, h, w = (ceil_div(size, step) for size, step in zip(problem.spatial_in, problem.stride, strict=True))
    return math.prod(problem.stride), (d, h, w), *transposed_steps(problem.stride, problem.dilation)


def has_runs(x: Tensor, problem: Problem) -> bool:
    """Whether all channels of the weights in a row of the kernel stand one after the other in x, and are few."""
    C, W, kernel_w = problem.c, x.shape[4], problem.kernel[2]
    few = problem.groups == 1 and C < blocks.FEW and kernel_w > 1 and problem.dilation[2] == 1
    return few and (x.stride(4) == C or W == 1)


def _correlate_pointwise(x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, how: str, transposed: bool) -> None:
    x, y = line(x), line(y)
    N, inputs, P, outputs = x.shape[0], x.shape[1], x.shape[4], y.shape[1]
    count_pixels(N, (P,))
    (xn, xc, *_), (yn, yc, *_) = strides(x), strides(y)
    w, sizes = packed(w, 1, transposed), (P, inputs, outputs, xn, xc, yn, yc)
    same = {
        "BIAS": bias is not None,
        "ALIGN": math.gcd(alignment(x, 4, P), alignment(y, 4, P)),
        "W_ALIGN": math.gcd(VECTOR // w.element_size(), inputs),
        "PRECISION": how,
    }
    if max(inputs, outputs) <= NARROW:
        (I1, I2), (O1, O2), block = halves(inputs), halves(outputs), blocks.narrow()
        tiles = N * ceil_div(P, block.m)
        launch(
            kernels_pointwise.narrow,
            grid(min(tiles, RESIDENT * multiprocessors(x.device))),
            *(x, w, bias, y, tiles, *sizes),
            **same,
            I1=I1,
            I2=I2,
            O1=O1,
            O2=O2,
            BP=block.m,
            options={"num_warps": block.num_warps},
        )
        return
    block, _ = blocks.correlation(
        N * P, 1, inputs, outputs, 1, x.element_size() == 2, multiprocessors(x.device), size=None
    )
    launch(
        kernels_pointwise.wide,
        grid(N * ceil_div(P, block.m) * ceil_div(outputs, block.n)),
        *(x, w, bias, y, *sizes),
        **same,
        BM=block.m,
        BN=block.n,
        BK=block.k,
        STAGES=stages(block.stages, x.device),
        options={"num_warps": block.num_warps},
    )


def _correlate_depthwise(
    x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, problem: Problem, transposed: bool
) -> None:
    last = usable(x)[1] and usable(y)[1]
    x, y, made = ordered(x, last), ordered(y, last), y
    phases, phase, spacing, advance = _phases(problem, transposed)
    pixels = count_pixels(problem.n, phase)
    count_pixels(problem.n, y.shape[2:])
    BC = blocks.side(y.shape[1], 64) if last else 1
    BP = 1024 // BC if last else 512
    launch(
        kernels_depthwise.depthwise,
        grid(ceil_div(pixels, BP) * ceil_div(y.shape[1], BC) * phases),
        *(x, taps_first(w), bias, y, pixels, problem.c, problem.k // problem.c, *x.shape[2:], *phase, *y.shape[2:]),
        *(*strides(x), *strides(y), *axis_steps(problem), *spacing, *advance),
        TRANSPOSED=transposed,
        VOLUME=problem.kernel[0] > 1 or problem.spatial_out[0] > 1 or problem.spatial_in[0] > 1,
        SAME=problem.k == problem.c,
        LAST=last,
        BIAS=bias is not None,
        ALIGN=math.gcd(alignment(x, 1, y.shape[1]), alignment(y, 1)) if last else 1,
        BP=BP,
        BC=BC,
        options={"num_warps": 4},
    )
    if made is not y:
        made.copy_(y)
