"""Launching the weight gradient of 32-bit numbers, with x copied once for every weight along W."""

from __future__ import annotations

import math

from torch import Tensor

from lanewise.conv import kernels_layout, kernels_windows
from lanewise.conv import launch_blocks as blocks
from lanewise.conv.launch_blocks import ceil_div, power_of_two
from lanewise.conv.launch_layout import planes
from lanewise.conv.launch_operands import (
    NUMBERS,
    ONE,
    VECTOR,
    alignment,
    check,
    count_pixels,
    grid,
    input_precision,
    multiprocessors,
    stages,
    strides,
    usable,
)
from lanewise.conv.launch_sum import add_parts, empty_parts
from lanewise.conv.problem import Problem, Triple
from lanewise.splat._launch import launch

MOST = 2**29  # numbers that the copies may have: 2 GiB
COPIES = 8  # times x that they may be, where x is not small
SMALL = 2**20
BLOCK = 4096  # numbers of a copy that a program makes


def takes(problem: Problem) -> bool:
    """Whether the copies are worth their memory, and matrix instructions want them."""
    size = math.prod(windows_shape(problem)[0])
    return problem.dtype.itemsize == 4 and size <= min(MOST, COPIES * max(math.prod(problem.x_shape), SMALL))


def windows_shape(problem: Problem) -> tuple[tuple[int, ...], Triple]:
    """[KW, C, N, D, H, width] of the copies, and how many steps of x one of theirs is along D, H and W: along an axis
    with one weight only what it meets is copied."""
    (kd, kh, kw), (sd, sh, sw), vector = problem.kernel, problem.stride, VECTOR // problem.dtype.itemsize
    axes = zip(problem.spatial_out[:2], (kd, kh), (sd, sh), problem.dilation[:2], strict=True)
    depth, height = (out if k == 1 else (out - 1) * s + (k - 1) * d + 1 for out, k, s, d in axes)
    width = ceil_div(problem.spatial_out[2], vector) * vector
    return (kw, problem.c, problem.n, depth, height, width), (sd if kd == 1 else 1, sh if kh == 1 else 1, sw)


def weight_windows(x: Tensor, dy: Tensor, dw: Tensor, problem: Problem, precision: str) -> None:
    """dw [K, C / groups, kd, kh, kw], taps before input channels in memory, from x [N, C, D, H, W] and dy."""
    shape, rows = windows_shape(problem)
    windows, width = x.new_empty(shape), shape[5]
    copy_windows(x, windows, problem.spatial_out[2], rows, problem.padding, problem.dilation[2])
    matrix, yn, y = _pixels_last(dy, width)
    groups, taps = problem.groups, math.prod(problem.kernel)
    inputs, outputs = problem.c // groups, problem.k // groups
    pixels = count_pixels(problem.n, (*problem.spatial_out[:2], width))
    block = blocks.windows_weight(inputs * taps, outputs)
    tiles = ceil_div(taps * inputs, block.n) * ceil_div(outputs, block.m) * groups
    splits, _ = blocks.splits(pixels, block, tiles, dw.numel(), multiprocessors(x.device), half=False)
    parts = empty_parts(dw, splits)
    (sd, sh, _), (rd, rh, _), (xj, xc, xn, xd, xh, _) = problem.stride, rows, windows.stride()
    launch(
        kernels_windows.windows_weight,
        grid(tiles * splits),
        *(windows, matrix, parts, pixels, splits, groups, inputs, outputs, *problem.spatial_out[:2], width),
        *(xj, xc, xn, xd, xh, yn, y, *problem.kernel, sd // rd, sh // rh, *problem.dilation[:2], dw.numel()),
        VOLUME=problem.spatial_out[0] > 1 or problem.kernel[0] > 1,
        ALIGN=VECTOR // x.element_size(),
        W_ALIGN=math.gcd(VECTOR // dw.element_size(), inputs * taps),
        PRECISION=input_precision(problem, precision, x.device),
        BM=block.m,
        BN=block.n,
        BP=block.k,
        STAGES=stages(block.stages, x.device),
        options={"num_warps": block.num_warps},
    )
    add_parts(parts, dw, splits)


def copy_windows(x: Tensor, out: Tensor, columns: int, rows: Triple, padding: Triple, dilation: int) -> None:
    """out [KW, C, N, D, H, width] = what the weights along W see of x [N, C, ...], as `kernels_layout.windows` says;
    zeros from `columns` on."""
    x, last = usable(x)
    KW, C, _, D, H, width = out.shape
    Q = out.stride(1)
    check(out.numel() < NUMBERS, f"{out.numel()} numbers of copies")
    BC = min(power_of_two(C), 64 if last else 4)
    BQ = min(BLOCK // BC, power_of_two(Q))
    launch(
        kernels_layout.windows,
        grid(ceil_div(C, BC) * ceil_div(Q, BQ)),
        *(x, out, C, Q, *x.shape[2:], D, H, columns, width, *strides(x), KW, *rows, *padding, dilation),
        VOLUME=x.shape[2] > 1 or D > 1,
        LAST=last,
        ALIGN=alignment(x, 1, C) if last else 1,
        VECTOR=VECTOR // x.element_size(),
        BQ=BQ,
        BC=BC,
        options={"num_warps": 4},
    )


def _pixels_last(dy: Tensor, width: int) -> tuple[Tensor, int, int]:
    """dy with pixels as neighbours and `width` numbers a row, itself or a copy, and how far apart its images and its
    channels are."""
    N, K, D, H, W = dy.shape
    if width == W:
        matrix = planes(dy)
        own = matrix.shape[2] == D * H * W
        return matrix, matrix.stride(0) if own else D * H * W, matrix.stride(1)
    matrix = dy.new_empty(1, K, N, D, H, width)
    copy_windows(dy, matrix, W, ONE, (0, 0, 0), 1)
    return matrix, matrix.stride(2), matrix.stride(1)
