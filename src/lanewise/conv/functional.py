"""torch.nn.functional's convolutions, with the same arguments, and with gradients that are right at every size."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lanewise.conv import geometry, op
from lanewise.conv.geometry import Size
from lanewise.conv.plan import check_window
from lanewise.conv.precision import check_precision
from lanewise.conv.sliced import is_channels_last
from lanewise.errors import UnsupportedError
from lanewise.target.table import WINDOW_BYTES


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
    window_bytes: int | None = None,
) -> Tensor:
    """As `conv2d`, for input [N, C, L] or [C, L] and weight [K, C / groups, l]."""
    return _convolution(1, input, weight, bias, stride, padding, dilation, groups, precision, window_bytes)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
    window_bytes: int | None = None,
) -> Tensor:
    """`torch.nn.functional.conv2d`, in launches of which none touches a tensor larger than a window of bytes.

    Differentiable any number of times with respect to input, weight and bias. Partial results of slices are added in a
    fixed order; on a CPU, and by our own kernels, the gradient of the weight has the same bits every time.

    Args:
        input: [N, C, H, W], or [C, H, W] without a batch; float16, bfloat16, float32 or float64; any strides.
        weight: [K, C / groups, h, w], of the same dtype.
        bias: [K] or None.
        stride: steps of the input for one of the output; a number, or one an axis.
        padding: zeros at both ends; a number, one an axis, "valid" (none) or "same" (as many as keep the extents).
        dilation: steps of the input for one of the weight.
        groups: in how many groups the channels fall that do not mix.
        precision: of float32: "fp32" (a relative error of 1e-6 by our kernels; cuDNN's weight gradient of 16.8 million
            products has 3.2e-6), "tf32", or None for what torch's flags say.
            `torch.backends.cudnn.allow_tf32` is True unless you change it, so that on an NVIDIA GPU None is TF32, with
            an error of about 7e-4.
        window_bytes: the largest tensor that a launch may touch; None for the device's, 2^32 - 1.

    Returns:
        [N, K, H', W'] or [K, H', W'], channels innermost where the input's or the weight's are.

    Raises:
        InputError: a precision or a window that is none.
        UnsupportedError: a single row with one channel is larger than the window.
        RuntimeError: and whatever else torch raises where it refuses, with its own message.
    """
    return _convolution(2, input, weight, bias, stride, padding, dilation, groups, precision, window_bytes)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
    window_bytes: int | None = None,
) -> Tensor:
    """As `conv2d`, for input [N, C, D, H, W] or [C, D, H, W] and weight [K, C / groups, d, h, w]."""
    return _convolution(3, input, weight, bias, stride, padding, dilation, groups, precision, window_bytes)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
    *,
    precision: str | None = None,
    window_bytes: int | None = None,
) -> Tensor:
    """As `conv_transpose2d`, for input [N, K, L] or [K, L] and weight [K, C / groups, l]."""
    how = (stride, padding, output_padding, groups, dilation)
    return _transposed(1, input, weight, bias, *how, precision, window_bytes)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
    *,
    precision: str | None = None,
    window_bytes: int | None = None,
) -> Tensor:
    """`torch.nn.functional.conv_transpose2d`: the gradient of a convolution's input, as an operator of its own.

    Args:
        input: [N, K, H, W] or [K, H, W].
        weight: [K, C / groups, h, w], of the same dtype.
        bias: [C] or None.
        stride: steps of the output for one of the input.
        padding: positions that are left out at both ends of the output.
        output_padding: further positions at the far end of the output.
        groups: in how many groups the channels fall that do not mix.
        dilation: steps of the output for one of the weight.
        precision: as of `conv2d`.
        window_bytes: as of `conv2d`.

    Returns:
        [N, C, H', W'] or [C, H', W'].

    Raises:
        InputError: a precision or a window that is none.
        UnsupportedError: a single row with one channel is larger than the window.
        RuntimeError: and whatever else torch raises where it refuses, with its own message.
    """
    how = (stride, padding, output_padding, groups, dilation)
    return _transposed(2, input, weight, bias, *how, precision, window_bytes)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
    *,
    precision: str | None = None,
    window_bytes: int | None = None,
) -> Tensor:
    """As `conv_transpose2d`, for input [N, K, D, H, W] or [K, D, H, W] and weight [K, C / groups, d, h, w]."""
    how = (stride, padding, output_padding, groups, dilation)
    return _transposed(3, input, weight, bias, *how, precision, window_bytes)


TORCH = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TORCH_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def _convolution(
    dims: int,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Size,
    padding: Size | str,
    dilation: Size,
    groups: int,
    precision: str | None,
    window_bytes: int | None,
) -> Tensor:
    check_options(precision, window_bytes)
    x, w, bias = _autocast(x, w, bias)
    leave = (TORCH[dims], x, w, bias, window_bytes, (stride, padding, dilation, groups))
    if not _usable(dims, x, w, bias, w.shape[:1], groups):
        return _left_to_torch(*leave)
    numbers = geometry.known(geometry.of_convolution, dims, x.shape, w.shape, stride, padding, dilation, groups)
    if numbers is None:
        return _left_to_torch(*leave)
    steps, zeros, spread, further, spatial_out = numbers
    if further:  # "same" with an odd number of zeros
        x = F.pad(x, further)
    return _called(op.forward, dims, x, w, bias, spatial_out, (steps, zeros, spread, groups, precision, window_bytes))


def _transposed(
    dims: int,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Size,
    padding: Size,
    output_padding: Size,
    groups: int,
    dilation: Size,
    precision: str | None,
    window_bytes: int | None,
) -> Tensor:
    check_options(precision, window_bytes)
    x, w, bias = _autocast(x, w, bias)
    leave = (TORCH_TRANSPOSED[dims], x, w, bias, window_bytes, (stride, padding, output_padding, groups, dilation))
    if not _usable(dims, x, w, bias, (w.shape[1] * groups,) if w.dim() > 1 else (), groups):
        return _left_to_torch(*leave)
    shapes = (dims, x.shape, w.shape)
    numbers = geometry.known(geometry.of_transposed, *shapes, stride, padding, output_padding, dilation, groups)
    if numbers is None:
        return _left_to_torch(*leave)
    *numbers, extents = numbers
    return _called(op.input_grad, dims, x, w, bias, extents, (*numbers, groups, precision, window_bytes))


def check_options(precision: str | None, window_bytes: int | None) -> None:
    """Raise an InputError unless the options that torch does not have are usable."""
    check_precision(precision)
    if window_bytes is not None:
        check_window(window_bytes)


def _called(
    operator: Callable[..., Tensor],
    dims: int,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    spatial: list[int],
    how: tuple,
) -> Tensor:
    """The operator's result, with the batch that it wants, and with two dimensions for one."""
    alone = x.dim() == dims + 1
    if alone:
        x = x.unsqueeze(0)
    if dims == 1:
        steps, zeros, spread, *rest = how
        x, w, spatial, how = (
            x.unsqueeze(2),
            w.unsqueeze(2),
            [1, *spatial],
            ([1, *steps], [0, *zeros], [1, *spread], *rest),
        )
    channels_last = is_channels_last(x) or is_channels_last(w)
    y = operator(x, w, bias, spatial, channels_last, *how)
    if dims == 1:
        y = y.squeeze(2)
    return y.squeeze(0) if alone else y


def _autocast(x: Tensor, w: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """The operands as autocast wants them for a convolution: in its dtype, those of fp64 excepted."""
    if not torch._C._is_any_autocast_enabled() or not isinstance(x, Tensor):
        return x, w, bias
    if not torch.is_autocast_enabled(x.device.type):
        return x, w, bias
    dtype = torch.get_autocast_dtype(x.device.type)

    def converted(tensor: Any) -> Any:
        wanted = isinstance(tensor, Tensor) and tensor.is_floating_point() and tensor.dtype != torch.float64
        return tensor.to(dtype) if wanted else tensor

    return converted(x), converted(w), converted(bias)


def _usable(dims: int, x: Any, w: Any, bias: Any, channels: Sequence[int], groups: Any) -> bool:
    """Whether the operands are what the operators are made for; everything else is torch's to judge."""
    if not (isinstance(x, Tensor) and x.is_floating_point() and x.layout == torch.strided and not x.is_meta):
        return False
    if not _alike(w, x) or not (bias is None or (_alike(bias, x) and bias.shape == channels)):
        return False
    shaped = x.dim() in (dims + 1, dims + 2) and w.dim() == dims + 2
    return shaped and isinstance(groups, int) and groups > 0 and w.numel() > 0 and 0 not in x.shape[1:]


def _alike(t: Any, x: Tensor) -> bool:
    return isinstance(t, Tensor) and t.layout == torch.strided and t.dtype == x.dtype and t.device == x.device


def _left_to_torch(
    function: Callable[..., Tensor], x: Any, w: Any, bias: Any, window_bytes: int | None, geometry: tuple
) -> Tensor:
    """Torch's own answer: its error, or its result for what the operators are not made for (complex numbers, integers,
    no channels), which has no slices and therefore has to fit the window; of tensors without memory ("meta") whatever
    their size."""
    y = function(x, w, bias, *geometry)
    if y.is_meta:
        return y
    window = WINDOW_BYTES if window_bytes is None else window_bytes
    for name, tensor in zip(("input", "weight", "output"), itertools.chain((x, w), (y,)), strict=True):
        size = tensor.numel() * tensor.element_size()
        if size > window:
            raise UnsupportedError(
                f"{name} of {tensor.dtype} {list(tensor.shape)}, {size:,} bytes,",
                why=f"only real floating-point convolutions are cut to fit a window of {window:,} bytes",
                fix="convolve the real and the imaginary part, or a smaller batch",
            )
    return y
