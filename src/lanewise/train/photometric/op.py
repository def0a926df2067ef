"""The photometric loss: checks, dispatch, autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lanewise.errors import InputError
from lanewise.splat._backend import resolve_backend
from lanewise.train.photometric import cpu, reference
from lanewise.train.photometric.reference import WINDOW


def photometric_loss(
    render: Tensor, target: Tensor, mask: Tensor | None = None, *, ssim_weight: float = 0.2, backend: str = "auto"
) -> Tensor:
    """(1 - w) L1 + w (1 - SSIM) between rendered and true pictures.

    SSIM has an 11 x 11 Gaussian window of standard deviation 1.5 and is averaged over the places where the window
    lies inside the picture (fused-ssim's padding="valid", which gsplat trains with). Where `mask` is False both
    pictures count as black; L1 is averaged over the pixels that count, and SSIM over the windows whose centre counts.

    Args:
        render: pictures [C, H, W, D], values about 0..1; the gradient flows here.
        target: the same shape and dtype, without gradient.
        mask: bool [C, H, W], False for pixels that do not count; None when all do.
        ssim_weight: w, 0..1. Above 0 needs H, W >= 11.
        backend: auto, reference (any dtype and device), cpu (float32 on the CPU). auto takes cpu where it can; triton,
            the renderer's kernels, takes the reference, since the loss has no kernels of its own.

    Returns:
        a scalar of the dtype of `render`.

    Raises:
        InputError: shapes or dtypes do not fit, the picture is smaller than the window, `target` needs a gradient, or
            the backend cannot take this device or dtype.
    """
    _check(render, target, mask, ssim_weight)
    if resolve_backend(backend, render) == "cpu":
        return _forward(render.contiguous(), target.contiguous(), mask, float(ssim_weight))[0]
    return reference.photometric_loss(render, target, mask, ssim_weight)


def ssim(render: Tensor, target: Tensor, mask: Tensor | None = None, *, backend: str = "auto") -> Tensor:
    """Structural similarity of pictures [C, H, W, D], a scalar, 1 for equal ones; arguments as `photometric_loss`."""
    return 1 - photometric_loss(render, target, mask, ssim_weight=1.0, backend=backend)


def _check(render: Tensor, target: Tensor, mask: Tensor | None, ssim_weight: float) -> None:
    if render.ndim != 4:
        raise InputError("render", got=f"shape {tuple(render.shape)}", expected="[C, H, W, D]")
    if target.shape != render.shape or target.dtype != render.dtype:
        raise InputError(
            "target",
            got=f"{target.dtype} {tuple(target.shape)}",
            expected=f"dtype and shape of render, {render.dtype} {tuple(render.shape)}",
        )
    if target.requires_grad:
        raise InputError("target", got="a tensor that needs a gradient", expected="photographs", fix="detach it")
    if mask is not None and (mask.shape != render.shape[:3] or mask.dtype != torch.bool):
        raise InputError(
            "mask", got=f"{mask.dtype} {tuple(mask.shape)}", expected=f"bool of shape {tuple(render.shape[:3])}"
        )
    if not 0 <= ssim_weight <= 1:
        raise InputError("ssim_weight", got=ssim_weight, expected="a number, 0..1")
    height, width = render.shape[1:3]
    if ssim_weight > 0 and min(height, width) < WINDOW:
        raise InputError(
            "render",
            got=f"{width} x {height} pixels",
            expected=f"at least {WINDOW} x {WINDOW}",
            why="SSIM is taken over windows of that size",
            fix="use larger pictures or ssim_weight=0",
        )


@torch.library.custom_op("lanewise::photometric_loss", mutates_args=(), device_types="cpu")
def _forward(render: Tensor, target: Tensor, mask: Tensor | None, ssim_weight: float) -> tuple[Tensor, Tensor]:
    """The loss and its gradient: both come out of the same sums, and the loss is a scalar."""
    if mask is None:
        counted = torch.ones_like(render)
    else:
        counted = mask[..., None].expand_as(render).to(render.dtype)
        render, target = render * counted, target * counted
    loss, gradient = cpu.photometric_loss(render.numpy(), target.numpy(), counted.contiguous().numpy(), ssim_weight)
    return torch.tensor(loss, dtype=render.dtype), torch.from_numpy(gradient)


@_forward.register_fake
def _(render: Tensor, target: Tensor, mask: Tensor | None, ssim_weight: float) -> tuple[Tensor, Tensor]:
    return render.new_empty(()), torch.empty_like(render)


# An operator of its own, without a derivative, that takes `render` although it does not look at it: a second
# differentiation then raises instead of being silently zero.
@torch.library.custom_op("lanewise::photometric_loss_backward", mutates_args=(), device_types="cpu")
def _backward(gradient: Tensor, upstream: Tensor, render: Tensor) -> Tensor:
    return gradient * upstream


@_backward.register_fake
def _(gradient: Tensor, upstream: Tensor, render: Tensor) -> Tensor:
    return torch.empty_like(gradient)


def _save_gradient(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1], inputs[0])
    ctx.mark_non_differentiable(output[1])


def _apply_gradient(ctx: Any, upstream: Tensor, _: Tensor | None) -> tuple[Tensor, None, None, None]:
    gradient, render = ctx.saved_tensors
    return _backward(gradient, upstream, render), None, None, None


_forward.register_autograd(_apply_gradient, setup_context=_save_gradient)
