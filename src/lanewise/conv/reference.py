"""The truth: a convolution as one matrix product per tap of its kernel, in fp64, a few images at a time.

Nothing here calls a library's convolution, so that it can judge them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from lanewise.conv.problem import Problem

SLICE_BYTES = 256 << 20  # of the fp64 copies of the images that are in memory at a time


def forward(x: Tensor, w: Tensor, bias: Tensor | None, problem: Problem) -> Tensor:
    """y [n, k, ...] in fp64.

    Args:
        x: [n, c, ...].
        w: [k, c / groups, ...].
        bias: [k] or None.
        problem: what is asked for.
    """
    y = x.new_zeros(problem.y_shape, dtype=torch.float64)
    taps = _grouped_weight(w, problem)
    for images in _images(problem):
        padded, out = _padded(x[images], problem), y[images].unflatten(1, (problem.groups, -1))
        for tap, seen in _taps(problem):
            out += torch.einsum("ngcp,gkc->ngkp", _seen(padded, seen, problem), taps[tap]).unflatten(3, out.shape[3:])
    return y if bias is None else y + bias.double().reshape(-1, *[1] * problem.dims)


def input_grad(dy: Tensor, w: Tensor, problem: Problem) -> Tensor:
    """The gradient of x [n, c, ...] in fp64.

    Args:
        dy: [n, k, ...], the gradient of y.
        w: [k, c / groups, ...].
        problem: what is asked for.
    """
    dx = dy.new_zeros(problem.x_shape, dtype=torch.float64)
    taps = _grouped_weight(w, problem)
    for images in _images(problem):
        grad = dy[images].double().unflatten(1, (problem.groups, -1)).flatten(3)
        padded = _padded(dx[images], problem).zero_()
        for tap, seen in _taps(problem):
            part = torch.einsum("ngkp,gkc->ngcp", grad, taps[tap])
            padded[(..., *seen)] += part.flatten(1, 2).unflatten(2, problem.spatial_out[3 - problem.dims :])
        dx[images] = padded[(..., *_inside(problem))]
    return dx


def weight_grad(x: Tensor, dy: Tensor, problem: Problem) -> Tensor:
    """The gradient of w [k, c / groups, ...] in fp64.

    Args:
        x: [n, c, ...].
        dy: [n, k, ...], the gradient of y.
        problem: what is asked for.
    """
    k, c, *kernel = problem.w_shape
    dw = x.new_zeros(problem.groups, k // problem.groups, c, *kernel, dtype=torch.float64)
    for images in _images(problem):
        padded = _padded(x[images], problem)
        grad = dy[images].double().unflatten(1, (problem.groups, -1)).flatten(3)
        for tap, seen in _taps(problem):
            dw[(..., *tap)] += torch.einsum("ngkp,ngcp->gkc", grad, _seen(padded, seen, problem))
    return dw.flatten(0, 1)


def _images(problem: Problem) -> Iterator[slice]:
    """Pieces of the batch whose fp64 copies are small; at least one image each."""
    image = 8 * max(problem.c * _volume(problem.spatial_in), problem.k * _volume(problem.spatial_out), 1)
    step = max(1, SLICE_BYTES // image)
    for first in range(0, problem.n, step):
        yield slice(first, first + step)


def _volume(extents: tuple[int, int, int]) -> int:
    return extents[0] * extents[1] * extents[2]


def _taps(problem: Problem) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Every position of the kernel, and the positions of the padded x that y sees through it."""
    axes = range(3 - problem.dims, 3)
    for tap in itertools.product(*(range(problem.kernel[axis]) for axis in axes)):
        yield (
            tap,
            tuple(
                slice(
                    t * problem.dilation[axis],
                    t * problem.dilation[axis] + (problem.spatial_out[axis] - 1) * problem.stride[axis] + 1,
                    problem.stride[axis],
                )
                for t, axis in zip(tap, axes, strict=True)
            ),
        )


def _inside(problem: Problem) -> tuple[slice, ...]:
    """Where x is in the padded x."""
    axes = range(3 - problem.dims, 3)
    return tuple(slice(problem.padding[a], problem.padding[a] + problem.spatial_in[a]) for a in axes)


def _padded(x: Tensor, problem: Problem) -> Tensor:
    """x in fp64, with zeros around it as far as y sees and as x reaches."""
    axes = range(3 - problem.dims, 3)
    extents = [
        max(
            problem.padding[a] + problem.spatial_in[a],
            (problem.spatial_out[a] - 1) * problem.stride[a] + problem.dilation[a] * (problem.kernel[a] - 1) + 1,
        )
        for a in axes
    ]
    out = x.new_zeros(*x.shape[:2], *extents, dtype=torch.float64)
    out[(..., *_inside(problem))] = x.double()
    return out


def _seen(padded: Tensor, seen: tuple[slice, ...], problem: Problem) -> Tensor:
    """What y sees through a tap: [n, groups, c / groups, positions of y]."""
    return padded[(..., *seen)].unflatten(1, (problem.groups, -1)).flatten(3)


def _grouped_weight(w: Tensor, problem: Problem) -> dict[tuple[int, ...], Tensor]:
    """The weight's matrix [groups, k / groups, c / groups] of every tap, in fp64."""
    grouped = w.double().unflatten(0, (problem.groups, -1))
    return {tap: grouped[(..., *tap)] for tap, _ in _taps(problem)}
