"""Convolutions of all kinds, small, and the gate of their kernels against fp64."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lanewise.audit.gate import GateResult, gate
from lanewise.conv import launch
from lanewise.conv.problem import Problem

LIMITS = {torch.float32: 1e-6, torch.float16: 2**-11, torch.bfloat16: 2**-8}  # relative errors
TF32 = 2e-3


@dataclass(frozen=True)
class Layer:
    """A convolution: input [N, C, *size], weights [K, C / groups, *kernel]; numbers stand for every axis."""

    N: int
    C: int
    K: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: int | tuple[int, ...] = 1
    padding: int | tuple[int, ...] = 0
    dilation: int | tuple[int, ...] = 1
    groups: int = 1
    dtype: torch.dtype = torch.float32
    channels_last: bool = False

    def steps(self, name: str) -> tuple[int, ...]:
        value = getattr(self, name)
        return (value,) * len(self.size) if isinstance(value, int) else value

    def problem(self) -> Problem:
        axes = [self.size, self.kernel, *map(self.steps, ("stride", "padding", "dilation"))]
        size, kernel, stride, padding, dilation = ((*(1, 1)[: 3 - len(a)], *a) for a in axes)
        padding = (*(0, 0)[: 3 - len(self.size)], *padding[3 - len(self.size) :])
        sizes = zip(size, kernel, stride, padding, dilation, strict=True)
        out = tuple((i + 2 * p - d * (k - 1) - 1) // s + 1 for i, k, s, p, d in sizes)
        steps = (kernel, stride, padding, dilation, self.groups)
        return Problem(self.N, self.C, self.K, size, out, *steps, self.dtype, self.channels_last)

    def order(self) -> torch.memory_format:
        if not self.channels_last:
            return torch.contiguous_format
        return torch.channels_last if len(self.size) == 2 else torch.channels_last_3d


def operands(
    layer: Layer, seed: int = 0, device: str = "cpu", shift: float = 0.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, w, bias and dy; `shift` moves their means away from 0, where errors of rounding do not cancel."""
    random = torch.Generator().manual_seed(seed)
    out = layer.problem().spatial_out[3 - len(layer.size) :]
    shapes = ((layer.N, layer.C, *layer.size), (layer.K, layer.C // layer.groups, *layer.kernel), (layer.K,))
    x, w, bias, dy = (torch.randn(s, generator=random) + shift for s in (*shapes, (layer.N, layer.K, *out)))
    x, w, dy = (t.to(device, layer.dtype).contiguous(memory_format=layer.order()) for t in (x, w, dy))
    return x, w, bias.to(device, layer.dtype), dy


def truth(layer: Layer, x: Tensor, w: Tensor, bias: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
    """y, dx, dw and db in fp64, by torch."""
    leaves = x, w, bias = tuple(t.double().contiguous().requires_grad_() for t in (x, w, bias))
    convolve = torch.conv2d if len(layer.size) == 2 else torch.conv3d
    steps = map(layer.steps, ("stride", "padding", "dilation"))
    y = convolve(x, w, bias, *steps, layer.groups)
    return y.detach(), *torch.autograd.grad(y, leaves, dy.double().contiguous())


def run(layer: Layer, x: Tensor, w: Tensor, bias: Tensor, dy: Tensor, precision: str = "fp32") -> tuple[Tensor, ...]:
    """y, dx, dw and db by the kernels."""
    problem = layer.problem()
    y = launch.forward(x, w, bias, problem, precision)
    dx = launch.input_grad(dy, w, None, problem, precision)
    return y, dx, launch.weight_grad(x, dy, problem, precision), launch.bias_grad(dy)


def compared(
    layer: Layer, got: tuple[Tensor, ...], want: tuple[Tensor, ...], precision: str = "fp32"
) -> list[GateResult]:
    """y, dx, dw and db against fp64: limits of 1e-6 in fp32, of one rounding for tensors of 16 bits."""
    limit = LIMITS[layer.dtype] if precision == "fp32" or layer.dtype != torch.float32 else TF32
    results = []
    for name, a, b in zip(("y", "dx", "dw", "db"), got, want, strict=True):
        exact = name == "db"  # summed in fp32; tensor cores sum products of 16 bits as they like
        assert a.shape == b.shape, (name, a.shape, b.shape)
        if b.numel():
            results.append(gate(f"{layer} {name}", a, b, floor=LIMITS[torch.float32] if exact else limit))
    return results


def gates(layer: Layer, device: str = "cpu", precision: str = "fp32", shift: float = 0.0) -> list[GateResult]:
    """Every direction of the kernels against fp64."""
    given = operands(layer, device=device, shift=shift)
    return compared(layer, run(layer, *given, precision), truth(layer, *given), precision)


def variants(layer: Layer) -> list[Layer]:
    """The layer in both memory orders."""
    return [replace(layer, channels_last=last) for last in (False, True)]
