"""Adam's step: checks and dispatch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lanewise.errors import InputError
from lanewise.splat._backend import Backend, check_tensor, resolve_backend
from lanewise.train.adam import reference


@torch.no_grad()
def adam_step(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    coefficients: Tensor,
    *,
    betas: tuple[float, float],
    eps: float,
    visible: Tensor | None = None,
    skip: Tensor | None = None,
    backend: Backend = "auto",
) -> None:
    """One step of Adam, in place: torch.optim.Adam's arithmetic, without weight decay or AMSGrad.

    m = beta1 m + (1 - beta1) g and v = beta2 v + (1 - beta2) g^2 are the moments, c the coefficients; the parameter
    becomes p - c0 m / (sqrt(v) c1 + eps). Nothing is read back from a GPU, and what is passed as tensors may change
    between the replays of a CUDA graph.

    Args:
        param: [N, ...], contiguous.
        grad: its gradient, the same shape, any strides.
        exp_avg: first moments, as `param`.
        exp_avg_sq: second moments, as `param`.
        coefficients: [2] of `param`'s dtype, what `adam_coefficients` gives.
        betas: decay rates of the moments, each in 0..1 (1 excluded).
        eps: added to the denominator, at least 0.
        visible: [N] bool; where it is False the row's parameter and moments stay as they are (the selective Adam of
            Taming 3DGS, Mallick et al. 2024). None: all rows take the step.
        skip: [1] int32; where it is not 0 nothing changes. None: it does not ask.
        backend: "auto", "reference" (any dtype and device), "triton" (float32 on a GPU), or "cpu" for the reference in
            float32 on the CPU. auto takes triton where it can.

    Raises:
        InputError: a shape, dtype, device, layout or number that does not fit.
        UnsupportedError: more numbers than one launch can take.
    """
    _check(param, grad, exp_avg, exp_avg_sq, coefficients, betas, eps, visible, skip)
    step = reference.adam_step
    if resolve_backend(backend, param) == "triton":
        from lanewise.train.adam import launch

        step = launch.adam_step
    step(param, grad, exp_avg, exp_avg_sq, coefficients, betas, eps, visible, skip)


def adam_coefficients(lr: float, step: int, betas: tuple[float, float]) -> tuple[float, float]:
    """lr / (1 - beta1^step) and 1 / sqrt(1 - beta2^step): the learning rate and the denominator's factor, with the
    bias of moments that began at 0 taken out.

    Args:
        lr: learning rate.
        step: number of the step, from 1.
        betas: decay rates of the moments, each in 0..1 (1 excluded).

    Raises:
        InputError: `step` is below 1, or a beta is out of range.
    """
    if step < 1:
        raise InputError("step", got=step, expected="a number from 1 on", why="no step has no moments")
    _check_betas(betas)
    return lr / (1 - betas[0] ** step), 1 / math.sqrt(1 - betas[1] ** step)


def _check_betas(betas: tuple[float, float]) -> None:
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise InputError("betas", got=betas, expected="two numbers in 0..1, 1 excluded")


def _check(
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
    if param.dim() == 0:
        raise InputError("param", got="a scalar", expected="[N, ...]")
    check_tensor("param", param, tuple(param.shape))
    for name, tensor in (("grad", grad), ("exp_avg", exp_avg), ("exp_avg_sq", exp_avg_sq)):
        check_tensor(name, tensor, tuple(param.shape), param)
    check_tensor("coefficients", coefficients, (2,), param)
    for name, tensor in (("param", param), ("exp_avg", exp_avg), ("exp_avg_sq", exp_avg_sq)):
        if not tensor.is_contiguous():
            got = f"strides {list(tensor.stride())}"
            raise InputError(name, got=got, expected="a contiguous tensor", why="it is changed in place")
    _check_betas(betas)
    if not eps >= 0:
        raise InputError("eps", got=eps, expected="a number from 0 on")
    for name, tensor, dtype, shape in (
        ("visible", visible, torch.bool, param.shape[:1]),
        ("skip", skip, torch.int32, (1,)),
    ):
        if tensor is not None and (tensor.dtype, tensor.device, tensor.shape) != (dtype, param.device, shape):
            got = f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}"
            raise InputError(name, got=got, expected=f"{dtype} {list(shape)} on {param.device}")
