"""Operands of a convolution problem, and torch's own answer in fp64."""

from __future__ import annotations

import torch
from torch import Tensor

from lanewise.conv import reference
from lanewise.conv.problem import Problem


def operands(problem: Problem, seed: int = 0, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """x, w and dy, in the problem's dtype or another."""
    generator = torch.Generator().manual_seed(seed)
    shapes = problem.x_shape, problem.w_shape, problem.y_shape
    x, w, dy = (torch.randn(shape, generator=generator).to(dtype or problem.dtype) for shape in shapes)
    return x, w, dy


def of_direction(problem: Problem, x: Tensor, w: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """The two operands that the problem's direction takes."""
    return {"forward": (x, w), "input_grad": (dy, w), "weight_grad": (x, dy)}[problem.direction]


def truth(problem: Problem, x: Tensor, w: Tensor, dy: Tensor) -> Tensor:
    """The result in fp64."""
    if problem.direction == "forward":
        return reference.forward(x, w, None, problem)
    return getattr(reference, problem.direction)(*of_direction(problem, x, w, dy), problem)
