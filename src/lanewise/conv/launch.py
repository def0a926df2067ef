"""Launching the convolution kernels for one slice, all of whose tensors lie within the window."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lanewise.conv import kernels, kernels_depthwise, kernels_pointwise, kernels_weight
from lanewise.conv import launch_blocks as blocks
from lanewise.conv.launch_blocks import ceil_div, halves, side
from lanewise.conv.launch_operands import (
    NUMBERS,
    alignment,
    check,
    empty,
    flat,
    input_precision,
    line,
    multiprocessors,
    packed,
    strides,
    transposed_steps,
    usable,
    volume,
)
from lanewise.conv.problem import Problem
from lanewise.splat._launch import launch, on_its_device

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ONE = (1, 1, 1)
NARROW = 128  # channels up to which a program of a 1x1 layer holds them all


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
    shape = (problem.n, problem.k, *problem.spatial_out)
    y = empty(shape, x, problem.channels_last) if out is None else volume(out)
    _correlate(volume(x), volume(w), bias, y, problem, precision, transposed=False)
    return y.squeeze(2) if x.dim() == 4 else y


@on_its_device
def input_grad(dy: Tensor, w: Tensor, problem: Problem, precision: str = "fp32", out: Tensor | None = None) -> Tensor:
    """The gradient of the input [N, C, (D,) H, W] from that of the output [N, K, (D,) H, W]; arguments as `forward`'s."""
    shape = (problem.n, problem.c, *problem.spatial_in)
    dx = empty(shape, dy, problem.channels_last) if out is None else volume(out)
    _correlate(volume(dy), volume(w), None, dx, problem, precision, transposed=True)
    return dx.squeeze(2) if dy.dim() == 4 else dx


def _correlate(
    x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, problem: Problem, precision: str, transposed: bool
) -> None:
    """y = the correlation of x: forward, or, transposed, dx (called y) of dy (called x)."""
    if not y.numel():
        return
    if not problem.c or not problem.k:
        y.zero_() if bias is None else y.copy_(bias.view(1, -1, 1, 1, 1))
        return
    made, y = y, usable(y)[0]
    how = input_precision(problem, precision, x.device)
    if _depthwise(problem):
        _correlate_depthwise(x, w, bias, y, problem, transposed)
    elif _pointwise(problem) and not usable(x)[1] and not usable(y)[1] and flat(x) and flat(y):
        _correlate_pointwise(usable(x)[0], w, bias, y, how, transposed)
    else:
        _correlate_dense(x, w, bias, y, problem, how, transposed)
    if made is not y:
        made.copy_(y)


def _depthwise(problem: Problem) -> bool:
    return problem.groups == problem.c and problem.groups > 1


def _pointwise(problem: Problem) -> bool:
    return (problem.kernel, problem.stride, problem.padding, problem.groups) == (ONE, ONE, (0, 0, 0), 1)


def _steps(problem: Problem) -> tuple[int, ...]:
    return (*problem.kernel, *problem.stride, *problem.padding, *problem.dilation)


def _grid(programs: int) -> tuple[int]:
    check(programs < NUMBERS, f"{programs} programs")
    return (programs,)


def _pixels(n: int, spatial: tuple[int, ...]) -> int:
    """Pixels of a batch, with room for the last block's."""
    count = n * math.prod(spatial)
    check(count + 1024 < NUMBERS, f"{count} pixels")
    return count


def _correlate_dense(
    x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, problem: Problem, how: str, transposed: bool
) -> None:
    x, x_last = usable(x)
    y_last = usable(y)[1]
    groups, stride = problem.groups, problem.stride
    inputs, outputs = x.shape[1] // groups, y.shape[1] // groups
    if transposed:
        spacing, advance = transposed_steps(problem.kernel, stride, problem.dilation)
        phases = math.prod(stride)
        phase = tuple(ceil_div(size, s) for size, s in zip(problem.spatial_in, stride, strict=True))
    else:
        spacing, advance, phases, phase = ONE, problem.dilation, 1, problem.spatial_out
    rows = _pixels(problem.n, phase)
    _pixels(problem.n, y.shape[2:])
    block = blocks.correlation(rows, inputs, outputs, x.element_size() == 2, multiprocessors(x.device))
    weights = packed(w, groups, transposed)
    check(weights.numel() < NUMBERS, f"{weights.numel()} weights")
    launch(
        kernels.correlate,
        _grid(ceil_div(rows, block.m) * ceil_div(outputs, block.n) * groups * phases),
        *(x, weights, bias, y, rows, groups, inputs, outputs, *x.shape[2:], *phase, *y.shape[2:]),
        *(*strides(x), *strides(y), *_steps(problem), *spacing, *advance),
        TRANSPOSED=transposed,
        VOLUME=max(problem.spatial_in[0], problem.spatial_out[0], problem.kernel[0]) > 1,
        X_LAST=x_last,
        Y_LAST=y_last,
        BIAS=bias is not None,
        ALIGN=alignment(x, 1, inputs) if x_last else 1,
        W_ALIGN=math.gcd(16 // x.element_size(), inputs),
        Y_ALIGN=alignment(y, 1, outputs) if y_last else 1,
        PRECISION=how,
        BM=block.m,
        BN=block.n,
        BK=block.k,
        STAGES=block.stages,
        options={"num_warps": block.num_warps},
    )


def _correlate_pointwise(x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, how: str, transposed: bool) -> None:
    x, y = line(x), line(y)
    N, inputs, P, outputs = x.shape[0], x.shape[1], x.shape[4], y.shape[1]
    _pixels(N, (P,))
    (xn, xc, *_), (yn, yc, *_) = strides(x), strides(y)
    wo, wi = w.stride(0), w.stride(1)
    sizes = (P, inputs, outputs, xn, xc, yn, yc, *((wi, wo) if transposed else (wo, wi)))
    same = {"BIAS": bias is not None, "ALIGN": math.gcd(alignment(x, 4, P), alignment(y, 4, P)), "PRECISION": how}
    if max(inputs, outputs) <= NARROW:
        (I1, I2), (O1, O2), BP = halves(inputs), halves(outputs), 64
        tiles = N * ceil_div(P, BP)
        launch(
            kernels_pointwise.narrow,
            _grid(min(tiles, 3 * multiprocessors(x.device))),
            *(x, w, bias, y, tiles, *sizes),
            **same,
            **{"I1": I1, "I2": I2, "O1": O1, "O2": O2, "BP": BP, "STAGES": 3},
            options={"num_warps": 4},
        )
        return
    block = blocks.correlation(N * P, inputs, outputs, x.element_size() == 2, multiprocessors(x.device))
    launch(
        kernels_pointwise.wide,
        _grid(N * ceil_div(P, block.m) * ceil_div(outputs, block.n)),
        *(x, w, bias, y, *sizes),
        **same,
        **{"BM": block.m, "BN": block.n, "BK": block.k, "STAGES": block.stages},
        options={"num_warps": block.num_warps},
    )


def _correlate_depthwise(
    x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, problem: Problem, transposed: bool
) -> None:
    last = usable(x)[1] and usable(y)[1]
    x, y, made = _ordered(x, last), _ordered(y, last), y
    pixels = _pixels(problem.n, y.shape[2:])
    BP, BC = (16, 64) if last else (512, 1)
    launch(
        kernels_depthwise.correlate,
        _grid(ceil_div(pixels, BP) * ceil_div(y.shape[1], BC)),
        *(x, w.contiguous(), bias, y, pixels, problem.c, problem.k // problem.c, *x.shape[2:], *y.shape[2:]),
        *(*strides(x), *strides(y), *_steps(problem)),
        TRANSPOSED=transposed,
        VOLUME=problem.kernel[0] > 1 or problem.spatial_out[0] > 1 or problem.spatial_in[0] > 1,
        LAST=last,
        BIAS=bias is not None,
        ALIGN=math.gcd(alignment(x, 1, y.shape[1]), alignment(y, 1)) if last else 1,
        BP=BP,
        BC=BC,
        options={"num_warps": 4},
    )
    if made is not y:
        made.copy_(y)


def _ordered(tensor: Tensor, last: bool) -> Tensor:
    """The tensor [N, C, D, H, W] with channels or columns as neighbours, as asked for."""
    if tensor.stride(1 if last else 4) == 1 or tensor.shape[1 if last else 4] == 1:
        return tensor
    return tensor.contiguous(memory_format=torch.channels_last_3d if last else torch.contiguous_format)


@on_its_device
def weight_grad(x: Tensor, dy: Tensor, problem: Problem, precision: str = "fp32") -> Tensor:
    """The gradient of the weights [K, C / groups, (kd,) kh, kw], fp32, from x [N, C, (D,) H, W] and dy [N, K, (D,) H, W].

    The same bits every time: parts of the sum over pixels are written to a workspace and added in order.
    """
    planar = x.dim() == 4
    x, dy = volume(x), volume(dy)
    shape = (problem.k, problem.c // problem.groups, *problem.kernel)
    dw = torch.empty(shape, dtype=torch.float32, device=x.device)
    if not dw.numel():
        pass
    elif not dy.numel() or not x.numel():
        dw.zero_()
    elif _depthwise(problem):
        _weight_depthwise(x, dy, dw, problem)
    else:
        how = input_precision(problem, precision, x.device)
        (x, x_last), (dy, y_last) = usable(x), usable(dy)
        if _pointwise(problem) and not x_last and not y_last and flat(x) and flat(dy):
            _weight_pointwise(x, dy, dw, how)
        else:
            _weight_dense(x, dy, dw, problem, how, (x_last, y_last))
    return dw.squeeze(2) if planar else dw


def _weight_dense(x: Tensor, dy: Tensor, dw: Tensor, problem: Problem, how: str, last: tuple[bool, bool]) -> None:
    groups, taps = problem.groups, math.prod(problem.kernel)
    inputs, outputs = problem.c // groups, problem.k // groups
    block, one_tap = blocks.weight_gradient(inputs, outputs, taps, x.element_size() == 2)
    columns = taps * ceil_div(inputs, block.n) if one_tap else ceil_div(taps * inputs, block.n)
    tiles = columns * ceil_div(outputs, block.m) * groups
    pixels = _pixels(problem.n, problem.spatial_out)
    parts, count, steps = _parts(dw, pixels, block.k, tiles, 2 * multiprocessors(x.device))
    launch(
        kernels_weight.weight_grad,
        _grid(tiles * count),
        *(x, dy, parts, problem.n, groups, steps, inputs, outputs, *x.shape[2:], *dy.shape[2:]),
        *(*strides(x), *strides(dy), *_steps(problem), dw.numel()),
        *((inputs, 1) if count > 1 else (1, taps)),
        VOLUME=max(problem.spatial_in[0], problem.spatial_out[0], problem.kernel[0]) > 1,
        X_LAST=last[0],
        Y_LAST=last[1],
        ONE_TAP=one_tap,
        ALIGN=alignment(x, 1, inputs) if last[0] else 1,
        Y_ALIGN=alignment(dy, 1, outputs) if last[1] else 1,
        PRECISION=how,
        BM=block.m,
        BN=block.n,
        BP=block.k,
        STAGES=block.stages,
        options={"num_warps": block.num_warps},
    )
    _add_parts(parts, dw, count, inputs, taps)


def _parts(dw: Tensor, pixels: int, block: int, tiles: int, wanted: int) -> tuple[Tensor, int, int]:
    """Memory for the parts of dw, which is dw itself for one; how many; blocks of pixels of each."""
    check(dw.numel() < NUMBERS, f"{dw.numel()} weights")
    count, steps = blocks.splits(pixels, block, tiles, dw.numel(), wanted)
    return dw if count == 1 else dw.new_empty(count, dw.numel()), count, steps


def _add_parts(parts: Tensor, dw: Tensor, count: int, inputs: int, taps: int) -> None:
    """dw = the sum of the parts, whose weights stand as [K, taps, C / groups]; many are added in two or more rounds."""
    if count == 1 and parts is dw:
        return
    size = dw.numel()
    BLOCK, ROWS = (32, 32) if size < 2**16 else (256, 4)
    while count > 1024:
        rounds = ceil_div(count, 1024)
        fewer = dw.new_empty(rounds, size)
        _launch_sum(parts, fewer, (count, 1024, size, size, 1), BLOCK, ROWS)
        parts, count = fewer, rounds
    _launch_sum(parts, dw, (count, 1024, size, inputs, taps), BLOCK, ROWS)


def _launch_sum(parts: Tensor, out: Tensor, sizes: tuple[int, ...], BLOCK: int, ROWS: int) -> None:
    count, share, size = sizes[:3]
    grid = _grid(ceil_div(count, share) * ceil_div(size, BLOCK))
    launch(kernels_weight.add_parts, grid, parts, out, *sizes, BLOCK=BLOCK, ROWS=ROWS, options={"num_warps": 4})


def _weight_pointwise(x: Tensor, dy: Tensor, dw: Tensor, how: str) -> None:
    x, dy = line(x), line(dy)
    (outputs, inputs), N, P = dw.shape[:2], x.shape[0], x.shape[4]
    _pixels(N, (P,))
    (N1, N2), BM, BP = halves(inputs) if inputs <= NARROW else (NARROW, 0), side(outputs, 128), 32
    tiles = ceil_div(inputs, N1 + N2) * ceil_div(outputs, BM)
    count = N * ceil_div(P, BP)
    parts, splits, _ = _parts(dw, count * BP, BP, tiles, 3 * multiprocessors(x.device))
    (xn, xc, *_), (yn, yc, *_) = strides(x), strides(dy)
    launch(
        kernels_pointwise.weight_grad,
        _grid(tiles * splits),
        *(x, dy, parts, splits, count, P, inputs, outputs, xn, xc, yn, yc, dw.numel()),
        ALIGN=math.gcd(alignment(x, 4, P), alignment(dy, 4, P)),
        PRECISION=how,
        BM=BM,
        N1=N1,
        N2=N2,
        BP=BP,
        STAGES=3,
        options={"num_warps": 8 if BM * N1 >= 128 * 128 else 4},
    )
    _add_parts(parts, dw, splits, inputs, 1)


def _weight_depthwise(x: Tensor, dy: Tensor, dw: Tensor, problem: Problem) -> None:
    last = usable(x)[1] and usable(dy)[1]
    x, dy = _ordered(x, last), _ordered(dy, last)
    taps = math.prod(problem.kernel)
    BT = min(blocks.power_of_two(taps), 8)
    BP, BC = (16, 32) if last else (512, 1)
    tiles = ceil_div(taps, BT) * ceil_div(problem.k, BC)
    parts, count, steps = _parts(dw, _pixels(problem.n, problem.spatial_out), BP, tiles, 8 * multiprocessors(x.device))
    launch(
        kernels_depthwise.weight_grad,
        _grid(tiles * count),
        *(x, dy, parts, problem.n, steps, problem.c, problem.k // problem.c, *x.shape[2:], *dy.shape[2:]),
        *(*strides(x), *strides(dy), *_steps(problem)),
        VOLUME=max(problem.spatial_in[0], problem.spatial_out[0], problem.kernel[0]) > 1,
        LAST=last,
        ALIGN=math.gcd(alignment(x, 1, problem.c), alignment(dy, 1)) if last else 1,
        BT=BT,
        BP=BP,
        BC=BC,
        options={"num_warps": 4},
    )
    _add_parts(parts, dw, count, taps, 1)


@on_its_device
def bias_grad(dy: Tensor) -> Tensor:
    """The gradient of the bias [K], fp32: dy [N, K, (D,) H, W] summed over pixels, in pairs and in the same order."""
    dy, last = usable(volume(dy))
    db = torch.empty(dy.shape[1], dtype=torch.float32, device=dy.device)
    if not dy.numel():
        return db.zero_()
    dy = line(dy)  # a copy where pixels are not flat
    N, K, P = dy.shape[0], dy.shape[1], dy.shape[4]
    last = last and dy.stride(1) == 1
    BP, BC = (64, side(K, 64)) if last else (1024, 1)
    steps = min(ceil_div(P, BP), 16)
    chunks = ceil_div(P, BP * steps)
    parts = db.new_empty(N * chunks, K)
    yn, yc, *_, yp = strides(dy)
    _pixels(N, (P,))
    launch(
        kernels_weight.bias_grad,
        _grid(N * chunks * ceil_div(K, BC)),
        *(dy, parts, N, K, P, steps, chunks, yn, yc, yp),
        LAST=last,
        ALIGN=alignment(dy, 1 if last else 4, K if last else P),
        BP=BP,
        BC=BC,
        options={"num_warps": 4},
    )
    _add_parts(parts, db, N * chunks, K, 1)
    return db
