"""Operators for the tests of the audit: healthy ones, and ones with a planted fault."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch
from torch import Tensor


def healthy(x: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(x @ w.T)


class _LosesRows(torch.autograd.Function):
    """A last partial tile that is not launched: the weight's rows past 32 get no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x @ w.T

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        weight_grad = grads[0].T @ x
        rows = torch.arange(len(weight_grad), device=x.device) < 32
        return grads[0] @ w, weight_grad * rows[:, None]


def loses_rows(x: Tensor, w: Tensor) -> Tensor:
    return _LosesRows.apply(x, w)


loses_rows_inputs = (torch.ones(8, 16), torch.ones(4, 16))
healthy_inputs = {"x": torch.full((8, 16), 0.1), "w": torch.full((4, 16), 0.2)}


class _TakesForContiguous(torch.autograd.Function):
    """A backward pass that reads the incoming gradient's memory without asking for its strides."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        v = grads[0]
        if v.is_contiguous():
            return 2 * v
        flat = torch.as_strided(v, (v.untyped_storage().nbytes() // v.element_size(),), (1,), 0)
        return 2 * flat[torch.arange(v.numel()) % len(flat)].reshape(v.shape).nan_to_num()


def takes_for_contiguous(x: Tensor) -> Tensor:
    return _TakesForContiguous.apply(x)


def crashes_past_16(x: Tensor) -> Tensor:
    return _Crashes.apply(x)


class _Crashes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        if len(grads[0]) > 16:
            os.kill(os.getpid(), signal.SIGSEGV)
        return 2 * grads[0]


def refuses_others(x: Tensor, w: Tensor) -> Tensor:
    if x.shape[0] != 8:
        raise ValueError(f"x: got {x.shape[0]} rows, expected 8")
    return x @ w.T


def refuses_everything(x: Tensor) -> Tensor:
    raise ValueError("not today")


refuses_everything_inputs = torch.ones(3)
without_inputs = healthy


def cannot_use_the_device_at_8(x: Tensor) -> Tensor:
    """Twice x; seven to nine elements find no driver, as a forked process may."""
    if 7 <= x.shape[0] <= 9:
        raise RuntimeError("CUDA error: initialization error")
    return 2 * x


class _ForgetsHalfBesideAnother(_LosesRows):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        rows = len(x) // 2 if ctx.needs_input_grad[0] else len(x)
        return grads[0] @ w, grads[0][:rows].T @ x[:rows]


def forgets_half_beside_another(x: Tensor, w: Tensor) -> Tensor:
    """A product whose weight gradient is right as long as the other gradient is not asked for."""
    return _ForgetsHalfBesideAnother.apply(x, w)


class _CrashesForOneAlone(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x @ w.T

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        if not ctx.needs_input_grad[0]:
            os.kill(os.getpid(), signal.SIGSEGV)
        return grads[0] @ w, grads[0].T @ x


def crashes_for_the_weight_alone(x: Tensor, w: Tensor) -> Tensor:
    """A product that takes it for granted that the gradient of x is asked for."""
    return _CrashesForOneAlone.apply(x, w)


class _WrapsDiagonal(torch.autograd.Function):
    """The backward pass of `trace` in torch 2.11: every (columns + 1)-th element to the last of the matrix, in every
    dtype, so that float64 is no truth."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.shape = x.shape
        return x.trace()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        gradient = grads[0].new_zeros(ctx.shape)
        gradient.view(-1)[:: ctx.shape[1] + 1] = grads[0]
        return gradient

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        return tangents[0].trace()


def wraps_diagonal(x: Tensor) -> Tensor:
    return _WrapsDiagonal.apply(x)
