"""Adam's step (Kingma and Ba 2015, algorithm 1), as torch.optim.Adam has it: any dtype, any device."""

from __future__ import annotations

import torch
from torch import Tensor


def adam_step(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    coefficients: Tensor,
    betas: tuple[float, float],
    eps: float,
    visible: Tensor | None,
    skip: Tensor | None,
) -> None:
    """One step in place; see `lanewise.train.adam.adam_step` for the arguments."""
    beta1, beta2 = betas
    first = beta1 * exp_avg + (1 - beta1) * grad
    second = beta2 * exp_avg_sq + (1 - beta2) * grad * grad
    rate, correction = coefficients.to(param.dtype)
    new = (param - rate * first / (second.sqrt() * correction + eps), first, second)
    kept = torch.zeros(len(param), dtype=torch.bool, device=param.device) if visible is None else ~visible  # [N]
    if skip is not None:
        kept = kept | (skip != 0)
    rows = kept.reshape(-1, *[1] * (param.dim() - 1))
    for old, value in zip((param, exp_avg, exp_avg_sq), new, strict=True):
        old.copy_(torch.where(rows, old, value))
