"""Launching the weight and bias gradients: sums over pixels in parts, and the sums of the parts."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lanewise.conv import kernels_depthwise, kernels_pointwise, kernels_weight
from lanewise.conv import launch_blocks as blocks
from lanewise.conv.launch_blocks import Blocks, ceil_div, halves, side
from lanewise.conv.launch_layout import channels_last, one_order, planes, rows
from lanewise.conv.launch_operands import (
    VECTOR,
    alignment,
    axis_steps,
    count_pixels,
    depthwise,
    flat,
    grid,
    input_precision,
    line,
    multiprocessors,
    ordered,
    pointwise,
    stages,
    strides,
    usable,
    volume,
    within_window,
)
from lanewise.conv.launch_sum import add_parts, empty_parts
from lanewise.conv.launch_windows import takes, weight_windows
from lanewise.conv.problem import Problem
from lanewise.splat._launch import launch

FILL = 6  # programs a multiprocessor, where memory is what is waited for: two rounds of three, or three of two


def weight_grad(x: Tensor, dy: Tensor, dw: Tensor, problem: Problem, precision: str) -> None:
    """dw [K, C / groups, kd, kh, kw], fp32, from x [N, C, D, H, W] and dy [N, K, D, H, W]."""
    within_window(x, dy)
    if not dw.numel():
        pass
    elif not dy.numel() or not x.numel():
        dw.zero_()
    elif depthwise(problem):
        _weight_depthwise(x, dy, dw, problem)
    else:
        how = input_precision(problem, precision, x.device)
        if pointwise(problem) and (both := _as_planes(x, dy, problem)):
            _weight_pointwise(*both, dw, how)
        elif takes(problem):
            weight_windows(x, dy, dw, problem, precision)
        else:
            _weight_dense(channels_last(x), dy, dw, problem, how)


def _as_planes(x: Tensor, dy: Tensor, problem: Problem) -> tuple[Tensor, Tensor] | None:
    """Both operands of a 1x1 layer as [images, channels, pixels] with pixels as neighbours, copied where they are not;
    None for such of 16 bits, which matrix instructions take as they are."""
    if x.element_size() == 4:
        return one_order(x, dy)
    planar = not usable(x)[1] and not usable(dy)[1] and flat(x) and flat(dy)
    if not planar or math.prod(problem.spatial_out) % 2:  # pixels are no whole vectors
        return None
    return line(usable(x)[0])[:, :, 0, 0], line(usable(dy)[0])[:, :, 0, 0]


def _weight_dense(x: Tensor, dy: Tensor, dw: Tensor, problem: Problem, how: str) -> None:
    groups, taps = problem.groups, math.prod(problem.kernel)
    inputs, outputs = problem.c // groups, problem.k // groups
    half = x.element_size() == 2
    matrix = rows(dy) if half else planes(dy)  # [pixels, K], or [images, K, pixels]
    pixels = count_pixels(problem.n, problem.spatial_out)
    block, count, steps = blocks.weight_gradient(inputs, outputs, taps, groups, pixels, half, multiprocessors(x.device))
    one_tap = blocks.one_tap(inputs, taps)
    columns = taps * ceil_div(inputs, block.n) if one_tap else ceil_div(taps * inputs, block.n)
    parts = empty_parts(dw, count)
    xn, _, *xs = strides(x)
    launch(
        kernels_weight.weight_grad,
        grid(columns * ceil_div(outputs, block.m) * groups * count),
        *(x, matrix, parts, problem.n, groups, steps, inputs, outputs, *x.shape[2:], *dy.shape[2:]),
        *(xn, *xs, *_image_steps(matrix), *axis_steps(problem), dw.numel()),
        VOLUME=max(problem.spatial_in[0], problem.spatial_out[0], problem.kernel[0]) > 1,
        ROWS=half,
        ONE_TAP=one_tap,
        ALIGN=alignment(x, 1, inputs),
        Y_ALIGN=alignment(matrix, 1, outputs) if half else alignment(matrix, 2, matrix.shape[2]),
        PRECISION=how,
        BM=block.m,
        BN=block.n,
        BP=block.k,
        STAGES=stages(block.stages, x.device),
        options={"num_warps": block.num_warps},
    )
    add_parts(parts, dw, count)


def _image_steps(matrix: Tensor) -> tuple[int, int, int]:
    """How far apart rows and images of dy are, and pixels of an image: as the kernel takes [pixels, K], which has no
    images, and [images, K, pixels]."""
    if matrix.dim() == 2:
        return strides(matrix)[0], 0, 1
    image, row, _ = strides(matrix)
    return row, image, matrix.shape[2]


def _weight_pointwise(x: Tensor, dy: Tensor, dw: Tensor, how: str) -> None:
    (outputs, inputs), (N, _, P) = dw.shape[:2], x.shape
    count_pixels(N, (P,))
    block = blocks.pointwise_weight(inputs, outputs)
    N1, N2 = halves(block.n)
    tiles = ceil_div(inputs, block.n) * ceil_div(outputs, block.m)
    count = N * ceil_div(P, block.k)
    half, processors = x.element_size() == 2, multiprocessors(x.device)
    splits, _ = blocks.splits(count * block.k, block, tiles, dw.numel(), processors, half, FILL)
    parts = empty_parts(dw, splits)
    (xn, xc, _), (yn, yc, _) = strides(x), strides(dy)
    launch(
        kernels_pointwise.pointwise_weight,
        grid(tiles * splits),
        *(x, dy, parts, splits, count, P, inputs, outputs, xn, xc, yn, yc, dw.numel()),
        ALIGN=math.gcd(alignment(x, 2, P), alignment(dy, 2, P)),
        W_ALIGN=math.gcd(inputs, VECTOR // dw.element_size()),
        WHOLE=P % block.k == outputs % block.m == inputs % block.n == 0,
        PRECISION=how,
        BM=block.m,
        N1=N1,
        N2=N2,
        BP=block.k,
        STAGES=stages(block.stages, x.device),
        options={"num_warps": block.num_warps},
    )
    add_parts(parts, dw, splits)


def _weight_depthwise(x: Tensor, dy: Tensor, dw: Tensor, problem: Problem) -> None:
    last = usable(x)[1] and usable(dy)[1]
    x, dy = ordered(x, last), ordered(dy, last)
    taps = math.prod(problem.kernel)
    BT = min(blocks.power_of_two(taps), 8)
    BP, BC = (16, 32) if last else (256, 1)
    tiles = ceil_div(taps, BT) * ceil_div(problem.k, BC)
    pixels = count_pixels(problem.n, problem.spatial_out)
    block, processors = Blocks(BT, BC, BP, num_warps=4, stages=1), multiprocessors(x.device)
    count, steps = blocks.splits(pixels, block, tiles, dw.numel(), processors, False, FILL)
    parts = empty_parts(dw, count)
    launch(
        kernels_depthwise.depthwise_weight,
        grid(tiles * count),
        *(x, dy, parts, problem.n, steps, problem.c, problem.k // problem.c, *x.shape[2:], *dy.shape[2:]),
        *(*strides(x), *strides(dy), *axis_steps(problem)),
        VOLUME=max(problem.spatial_in[0], problem.spatial_out[0], problem.kernel[0]) > 1,
        SAME=problem.k == problem.c,
        LAST=last,
        ALIGN=math.gcd(alignment(x, 1, problem.c), alignment(dy, 1)) if last else 1,
        BT=BT,
        BP=BP,
        BC=BC,
        options={"num_warps": 4},
    )
    add_parts(parts, dw, count)


def bias_grad(dy: Tensor) -> Tensor:
    """The gradient of the bias [K], fp32: dy [N, K, (D,) H, W] summed over pixels, in pairs and in the same order."""
    dy, last = usable(volume(dy))
    db = torch.empty(dy.shape[1], dtype=torch.float32, device=dy.device)
    if not dy.numel():
        return db.zero_()
    dy = line(dy)  # a copy where pixels are not flat
    N, K, P = dy.shape[0], dy.shape[1], dy.shape[4]
    last = last and dy.stride(1) == 1
    BP = 64 if last else min(blocks.power_of_two(P), 1024)
    BC = side(K, 64) if last else min(blocks.power_of_two(K), 1024 // BP)
    steps = min(ceil_div(P, BP), 16)
    chunks = ceil_div(P, BP * steps)
    parts = db.new_empty(N * chunks, K)
    yn, yc, *_, yp = strides(dy)
    count_pixels(N, (P,))
    launch(
        kernels_weight.bias_grad,
        grid(N * chunks * ceil_div(K, BC)),
        *(dy, parts, N, K, P, steps, chunks, yn, yc, yp),
        LAST=last,
        ALIGN=alignment(dy, 1 if last else 4, K if last else P),
        BP=BP,
        BC=BC,
        options={"num_warps": 4},
    )
    add_parts(parts, db, N * chunks)
    return db
