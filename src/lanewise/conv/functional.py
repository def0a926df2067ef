"""torch.nn.functional's convolutions, with the same arguments, and with gradients that are right at every size."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from lanewise.conv import op
from lanewise.conv.plan import check_window
from lanewise.conv.precision import check_precision
from lanewise.conv.problem import output_extent
from lanewise.conv.sliced import is_channels_last
from lanewise.errors import UnsupportedError
from lanewise.target.table import WINDOW_BYTES

Size = int | Sequence[int]


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

    Differentiable any number of times with respect to input, weight and bias. The gradient of the weight is summed in a
    fixed order and has the same bits every time.

    Args:
        input: [N, C, H, W], or [C, H, W] without a batch; float16, bfloat16, float32 or float64; any strides.
        weight: [K, C / groups, h, w], of the same dtype.
        bias: [K] or None.
        stride: steps of the input for one of the output; a number, or one an axis.
        padding: zeros at both ends; a number, one an axis, "valid" (none) or "same" (as many as keep the extents).
        dilation: steps of the input for one of the weight.
        groups: in how many groups the channels fall that do not mix.
        precision: of float32: "fp32" (relative error of at most 1e-6), "tf32", or None for what torch's flags say.
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
    geometry = (stride, padding, output_padding, groups, dilation)
    return _transposed(1, input, weight, bias, *geometry, precision, window_bytes)


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
    geometry = (stride, padding, output_padding, groups, dilation)
    return _transposed(2, input, weight, bias, *geometry, precision, window_bytes)


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
    geometry = (stride, padding, output_padding, groups, dilation)
    return _transposed(3, input, weight, bias, *geometry, precision, window_bytes)


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
    geometry = _known(_geometry, dims, x.shape, w.shape, stride, padding, dilation, groups)
    if geometry is None:
        return _left_to_torch(*leave)
    steps, zeros, spread, further, spatial_out = geometry
    if further:  # "same" with an odd number of zeros
        x = F.pad(x, further)
    return _called(op.forward, dims, x, w, bias, spatial_out, (steps, zeros, spread, groups, precision, window_bytes))


Geometry = tuple[list[int], list[int], list[int], list[int], list[int]]


def _geometry(
    dims: int, x: Sequence[int], w: Sequence[int], stride: Size, padding: Size | str, dilation: Size, groups: int
) -> Geometry | None:
    """Stride, padding and dilation an axis, what `pad` has to do before, and y's extents; None where torch refuses."""
    steps, spread = _sizes(stride, dims), _sizes(dilation, dims)
    if steps is None or spread is None or x[-dims - 1] != w[1] * groups or w[0] % groups:
        return None
    extents, further = list(x[-dims:]), []
    if padding == "valid":
        padding = 0
    if padding == "same" and max(steps) == 1:
        both = [d * (extent - 1) for d, extent in zip(spread, w[2:], strict=True)]
        if any(total % 2 for total in both):  # one zero more at the far end
            further = [zeros for total in reversed(both) for zeros in (0, total % 2)]
            extents = [extent + total % 2 for extent, total in zip(extents, both, strict=True)]
        padding = [total // 2 for total in both]
    zeros = None if isinstance(padding, str) else _sizes(padding, dims, least=0)
    if zeros is None:
        return None
    spatial_out = [output_extent(*axis) for axis in zip(extents, w[2:], steps, zeros, spread, strict=True)]
    return (steps, zeros, spread, further, spatial_out) if min(spatial_out) >= 1 else None


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
    geometry = _known(_transposed_geometry, *shapes, stride, padding, output_padding, dilation, groups)
    if geometry is None:
        return _left_to_torch(*leave)
    *geometry, extents = geometry
    return _called(op.input_grad, dims, x, w, bias, extents, (*geometry, groups, precision, window_bytes))


def _transposed_geometry(
    dims: int,
    x: Sequence[int],
    w: Sequence[int],
    stride: Size,
    padding: Size,
    output_padding: Size,
    dilation: Size,
    groups: int,
) -> tuple[list[int], list[int], list[int], list[int]] | None:
    """Stride, padding and dilation an axis, and the result's extents; None where torch refuses."""
    steps, spread = _sizes(stride, dims), _sizes(dilation, dims)
    zeros, extra = _sizes(padding, dims, least=0), _sizes(output_padding, dims, least=0)
    if steps is None or spread is None or zeros is None or extra is None or x[-dims - 1] != w[0] or w[0] % groups:
        return None
    axes = zip(x[-dims:], w[2:], steps, zeros, spread, extra, strict=True)
    extents = [(i - 1) * s - 2 * p + d * (t - 1) + e + 1 for i, t, s, p, d, e in axes]
    possible = all(e < max(s, d) for e, s, d in zip(extra, steps, spread, strict=True))
    return (steps, zeros, spread, extents) if possible and min(extents) >= 1 else None


def _known(rule: Callable[..., Any], *sizes: Any) -> Any:
    """`rule` of these sizes, looked up where they are plain numbers: a call of a convolution may take microseconds."""
    if torch.compiler.is_compiling():
        return rule(*sizes)
    try:
        return _remembered(rule, *sizes)
    except TypeError:  # a list, or what is no size at all
        return rule(*sizes)


@functools.lru_cache(maxsize=4096)
def _remembered(rule: Callable[..., Any], *sizes: Any) -> Any:
    return rule(*sizes)


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
    if not isinstance(x, Tensor) or not torch.is_autocast_enabled(x.device.type):
        return x, w, bias
    dtype = torch.get_autocast_dtype(x.device.type)

    def converted(tensor: Any) -> Any:
        wanted = isinstance(tensor, Tensor) and tensor.is_floating_point() and tensor.dtype != torch.float64
        return tensor.to(dtype) if wanted else tensor

    return converted(x), converted(w), converted(bias)


def _sizes(value: Any, dims: int, *, least: int = 1) -> list[int] | None:
    """One number an axis; None where torch would have something to say."""
    values = [value] * dims if isinstance(value, int | torch.SymInt) else value
    if not isinstance(values, Sequence) or not all(isinstance(v, int | torch.SymInt) for v in values):
        return None
    numbers = cast(list[int], list(values) * (dims if len(values) == 1 else 1))
    return numbers if len(numbers) == dims and min(numbers) >= least else None


def _usable(dims: int, x: Any, w: Any, bias: Any, channels: Sequence[int], groups: Any) -> bool:
    """Whether the operands are what the operators are made for; everything else is torch's to judge."""
    tensors = [x, w] if bias is None else [x, w, bias]
    if not all(isinstance(t, Tensor) and t.layout == torch.strided for t in tensors):
        return False
    alike = x.is_floating_point() and all(t.dtype == x.dtype and t.device == x.device for t in tensors)
    shaped = x.dim() in (dims + 1, dims + 2) and w.dim() == dims + 2 and (bias is None or bias.shape == channels)
    return (
        alike and shaped and isinstance(groups, int) and groups > 0 and math.prod(w.shape) > 0 and 0 not in x.shape[1:]
    )


def _left_to_torch(
    function: Callable[..., Tensor], x: Any, w: Any, bias: Any, window_bytes: int | None, geometry: tuple
) -> Tensor:
    """Torch's own answer: its error, or its result for what the operators are not made for (complex numbers, integers,
    no channels), which has no slices and therefore has to fit the window."""
    y = function(x, w, bias, *geometry)
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
