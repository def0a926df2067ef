"""The gate for the convolution kernels: three directions and the bias, against the fp64 reference."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from lanewise.audit.gate import GateResult, gate
from lanewise.conv import reference
from lanewise.conv.problem import Problem, output_extent
from lanewise.conv.sliced import memory_format
from lanewise.prove.launches import BEST

# fp32's is 3.5 times the worst of all targets: a number whose third bfloat16 is another one's shows at 4e-7.
LIMITS = {torch.float32: 2.5e-7, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


@dataclass(frozen=True)
class Layer:
    """A convolution of n images, c to k channels, and how fp32 is multiplied.

    Attributes:
        dot: what `tl.dot` is asked for: `BEST`, which stands for the best that the target offers, or "ieee".
        apart: numbers from one image of x, y and their gradients to the next; None: they lie together.
        windows: whether the weight gradient may copy x once for every weight along W; not so of large images.
        largest: whether blocks are the largest, as for large layers.
    """

    n: int
    c: int
    k: int
    extent: tuple[int, int]
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    dtype: torch.dtype = torch.float32
    channels_last: bool = False
    dot: str = BEST
    apart: int | None = None
    windows: bool = True
    largest: bool = False

    @property
    def problem(self) -> Problem:
        """The same, as the kernels' launches take it."""
        axes = zip(self.extent, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        height, width = (output_extent(*axis) for axis in axes)
        geometry = ((1, *self.extent), (1, height, width), (1, *self.kernel), (1, *self.stride), (0, *self.padding))
        return Problem(
            self.n, self.c, self.k, *geometry, (1, *self.dilation), self.groups, self.dtype, self.channels_last
        )


def gate_convolution(layer: Layer) -> list[GateResult]:
    """y, the gradients of x, w and the bias."""
    from lanewise.conv import launch
    from lanewise.conv import launch_blocks as blocks

    problem, (x, w, bias, dy), truth = layer.problem, operands(layer), _truth(layer)
    with as_launched_with(layer.dot), contextlib.ExitStack() as stack:
        if not layer.windows:
            stack.enter_context(mock.patch("lanewise.conv.launch_weight.takes", return_value=False))
        for table in (blocks.CORRELATION, blocks.WEIGHT) if layer.largest else ():
            stack.enter_context(mock.patch.dict(table, {half: several[:1] for half, several in table.items()}))
        y, dx = placed(layer, torch.full_like(dy, torch.nan)), placed(layer, torch.full_like(x, torch.nan))
        far_x, far_dy = placed(layer, x), placed(layer, dy)
        launch.forward(far_x, w, bias, problem, out=y)
        launch.input_grad(far_dy, w, None, problem, out=dx)
        got = y, dx, launch.weight_grad(far_x, far_dy, problem), launch.bias_grad(far_dy)
    return [
        gate(name, a, b, floor=LIMITS[torch.float32 if name == "db" else layer.dtype])
        for name, a, b in zip(("y", "dx", "dw", "db"), got, truth, strict=True)
    ]


@contextlib.contextmanager
def as_launched_with(dot: str) -> Iterator[None]:
    """In the block launches are those of a GPU that offers `dot` for fp32 and copies asynchronously: what a target has
    of both, `compile.as_launched` knows."""
    with contextlib.ExitStack() as stack:
        for module in ("launch_correlate", "launch_weight", "launch_windows"):
            name = f"lanewise.conv.{module}.input_precision"
            stack.enter_context(mock.patch(name, lambda problem, *_: dot if problem.dtype == torch.float32 else "ieee"))
            stack.enter_context(mock.patch(f"lanewise.conv.{module}.stages", lambda wanted, device: wanted))
        yield


def operands(layer: Layer) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, w, bias and dy; of means that are not 0, so that nothing that is left out cancels."""
    g, problem = torch.Generator().manual_seed(0), layer.problem
    order = memory_format(2, layer.channels_last)
    x, w, dy = (
        (torch.randn(shape, generator=g) + 0.5).to(layer.dtype).contiguous(memory_format=order)
        for shape in (problem.x_shape, problem.w_shape, problem.y_shape)
    )
    return x, w, torch.randn(layer.k, generator=g).to(layer.dtype), dy


@functools.cache
def _truth(layer: Layer) -> tuple[Tensor, ...]:
    x, w, bias, dy = operands(layer)
    problem = layer.problem
    y, dx = reference.forward(x, w, bias, problem), reference.input_grad(dy, w, problem)
    return y, dx, reference.weight_grad(x, dy, problem), dy.double().sum((0, 2, 3))


def placed(layer: Layer, tensor: Tensor) -> Tensor:
    """The tensor in memory that is `apart` from image to image: a mapping that holds only the pages in use."""
    if layer.apart is None:
        return tensor
    inner = tensor[0].numel()
    memory = torch.from_numpy(np.zeros((len(tensor) - 1) * layer.apart + inner, np.float32))
    far = memory.as_strided(tensor.shape, (layer.apart, *tensor.stride()[1:]))
    return far.copy_(tensor)
