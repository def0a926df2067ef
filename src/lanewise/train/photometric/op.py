"""The photometric loss: checks, dispatch, autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lanewise.errors import InputError, UnsupportedError
from lanewise.splat._backend import check_tensor, resolve_backend
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
        backend: "auto", "reference" (any dtype and device), "cpu" (float32 on the CPU) or "triton" (float32 on a GPU).

    Returns:
        a scalar of the dtype of `render`. The kernels compute its gradient together with it, and read nothing back
        from the GPU.

    Raises:
        InputError: shapes or dtypes do not fit, the picture is smaller than the window, `target` needs a gradient, or
            the backend cannot take this device or dtype.
        UnsupportedError: more pixels than one launch can number.
    """
    _check(render, target, mask, ssim_weight)
    chosen = resolve_backend(backend, render)
    if chosen == "reference":
        return reference.photometric_loss(render, target, mask, ssim_weight)
    with_gradient = render.requires_grad and torch.is_grad_enabled()
    return _photometric_loss(render, target, mask, float(ssim_weight), with_gradient, chosen)[0]


def ssim(render: Tensor, target: Tensor, mask: Tensor | None = None, *, backend: str = "auto") -> Tensor:
    """Structural similarity of pictures [C, H, W, D], a scalar, 1 for equal ones; arguments as `photometric_loss`."""
    return 1 - photometric_loss(render, target, mask, ssim_weight=1.0, backend=backend)


def _check(render: Tensor, target: Tensor, mask: Tensor | None, ssim_weight: float) -> None:
    check_tensor("render", render, ("C", "H", "W", "D"))
    check_tensor("target", target, tuple(render.shape), render)
    if target.requires_grad:
        raise InputError("target", got="a tensor that needs a gradient", expected="photographs", fix="detach it")
    wanted = (torch.bool, render.device, render.shape[:3])
    if mask is not None and (mask.dtype, mask.device, mask.shape) != wanted:
        got = f"{mask.dtype} {list(mask.shape)} on {mask.device}"
        raise InputError("mask", got=got, expected=f"torch.bool {list(render.shape[:3])} on {render.device}")
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


def _forward(
    render: Tensor, target: Tensor, mask: Tensor | None, ssim_weight: float, with_gradient: bool, backend: str
) -> tuple[Tensor, Tensor]:
    """The loss and its gradient ([0] without): both come out of the same sums, and the loss is a scalar."""
    if backend == "triton":
        from lanewise.train.photometric import launch

        return launch.photometric_loss(render, target, mask, ssim_weight, with_gradient)
    if mask is None:
        counted = torch.ones_like(render)
    else:
        counted = mask[..., None].expand_as(render).to(render.dtype)
        render, target = render * counted, target * counted
    x, y, m = (tensor.detach().contiguous().numpy() for tensor in (render, target, counted))
    loss, gradient = cpu.photometric_loss(x, y, m, ssim_weight)
    return torch.tensor(loss, dtype=render.dtype), torch.from_numpy(gradient) if with_gradient else render.new_empty(0)


def _fake_forward(
    render: Tensor, target: Tensor, mask: Tensor | None, ssim_weight: float, with_gradient: bool, backend: str
) -> tuple[Tensor, Tensor]:
    gradient = render.new_empty(render.shape if with_gradient else (0,))
    return render.new_empty(()), gradient


def _scaled(gradient: Tensor, upstream: Tensor, render: Tensor) -> Tensor:
    """The gradient for an upstream one. It takes `render` although it does not look at it: as an operator without a
    derivative, it makes a second differentiation raise instead of being silently zero."""
    return gradient * upstream


def _fake_scaled(gradient: Tensor, upstream: Tensor, render: Tensor) -> Tensor:
    return torch.empty_like(gradient)


def _save_gradient(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1], inputs[0])
    ctx.mark_non_differentiable(output[1])


def _backward_by(scaled: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[..., tuple]:
    """The backward rule, with the registered operator or the plain function that scales the gradient."""

    def backward(ctx: Any, upstream: Tensor, _: Tensor | None) -> tuple:
        gradient, render = ctx.saved_tensors
        return scaled(gradient, upstream, render), None, None, None, None, None

    return backward


_custom = torch.library.custom_op("lanewise::photometric_loss", _forward, mutates_args=())
_custom_scaled = torch.library.custom_op("lanewise::photometric_loss_backward", _scaled, mutates_args=())
_custom.register_fake(_fake_forward)
_custom_scaled.register_fake(_fake_scaled)
_custom.register_autograd(_backward_by(_custom_scaled), setup_context=_save_gradient)


# Eager code needs nothing of the registered operators' wrappers, which cost as much as a kernel. The renderer's way
# around them refuses a second derivative only where the upstream gradient needs one, and a loss's seldom does.
class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: Tensor, upstream: Tensor, render: Tensor) -> Tensor:
        return _scaled(gradient, upstream, render)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        raise UnsupportedError(
            "the photometric loss's second derivative",
            why="the kernels compute the first one only",
            fix="backend='reference'",
        )


class _Eager(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, Tensor]:
        output = _forward(*args)
        _save_gradient(ctx, args, output)
        return output

    backward = staticmethod(_backward_by(_Scaled.apply))


def _photometric_loss(*args: Any) -> tuple[Tensor, Tensor]:
    return _custom(*args) if torch.compiler.is_compiling() else _Eager.apply(*args)
