"""What the convolution kernels are told of their operands: strides, alignments, precision, and that offsets suffice."""

from __future__ import annotations

import functools
import math
from typing import Any, cast

import torch
from torch import Tensor

from lanewise.conv.problem import Problem, Triple
from lanewise.errors import UnsupportedError
from lanewise.target import detect
from lanewise.target.table import WINDOW_BYTES

VECTOR = 16  # bytes of the widest access
ONE = (1, 1, 1)
NUMBERS = 2**31  # offsets, pixels and programs stay below


def volume(tensor: Tensor) -> Tensor:
    """[N, C, D, H, W] of [N, C, H, W] too."""
    return tensor if tensor.dim() == 5 else tensor.unsqueeze(2)


def usable(tensor: Tensor) -> tuple[Tensor, bool]:
    """The tensor [N, C, D, H, W] with channels or columns as neighbours in memory, and whether it is channels.

    It is copied where neither holds (an expanded or transposed gradient).
    """
    last = tensor.stride(1) == 1 or tensor.shape[1] == 1
    first = tensor.stride(4) == 1 or tensor.shape[4] == 1
    if not (last or first):
        return tensor.contiguous(), False
    return tensor, last and not (first and tensor.shape[4] > 1)


def strides(tensor: Tensor) -> tuple[int, ...]:
    """Strides by axis, 0 where an axis has one position and none is needed; checks that 32-bit offsets suffice."""
    result = tuple(stride if size > 1 else 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    if tensor.numel():
        reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, result, strict=True)) + 1
        check(
            reach * tensor.element_size() <= WINDOW_BYTES and reach < NUMBERS, f"a tensor that reaches {reach} numbers"
        )
    return result


def within_window(*tensors: Tensor) -> None:
    """Raise unless every tensor's offsets fit, before anything is copied or launched."""
    for tensor in tensors:
        strides(tensor)


def check(holds: bool, what: str) -> None:
    """Raise unless a launch stays within its bound."""
    if not holds:
        raise UnsupportedError(
            f"{what} in one launch of a convolution",
            why="offsets and programs of a launch are numbered with 32 bits",
            fix="cut it into slices first, as lanewise.conv does",
        )


def alignment(tensor: Tensor, axis: int, *others: int) -> int:
    """The largest power of two, within a vector, that divides all strides but `axis`'s, which is 1, and `others`."""
    apart = [stride for i, stride in enumerate(strides(tensor)) if i != axis]
    return math.gcd(VECTOR // tensor.element_size(), *apart, *others)


def flat(tensor: Tensor) -> bool:
    """Whether the pixels of an image [N, C, D, H, W] lie one after the other at one distance."""
    return tensor.numel() == 0 or _flat(tensor.shape[2:], tensor.stride()[2:])


def _flat(sizes: tuple[int, ...], steps: tuple[int, ...]) -> bool:
    expected = None
    for size, step in zip(reversed(sizes), reversed(steps), strict=True):
        if size > 1:
            if expected not in (None, step):
                return False
            expected = step * size
    return True


def dense(tensor: Tensor) -> bool:
    """Whether the numbers of a tensor fill their memory, in whatever order."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return reach == tensor.numel()


def line(tensor: Tensor) -> Tensor:
    """A flat [N, C, D, H, W] as [N, C, 1, 1, pixels], the same memory."""
    return tensor.flatten(2)[:, :, None, None]


def empty(shape: tuple[int, ...], like: Tensor, channels_last: bool, dtype: torch.dtype | None = None) -> Tensor:
    """An unwritten tensor [N, C, D, H, W] in the memory order asked for."""
    order = torch.channels_last_3d if channels_last else torch.contiguous_format
    return torch.empty(shape, dtype=dtype or like.dtype, device=like.device, memory_format=order)


def input_precision(problem: Problem, precision: str, device: torch.device) -> str:
    """How `tl.dot` multiplies: "fp32" is what the target offers of fp32 class, "tf32" one product of tf32 on NVIDIA.

    Numbers of 16 bits are multiplied exactly whatever is asked for.
    """
    if problem.dtype != torch.float32 or device.type != "cuda":
        return "ieee"  # Triton's interpreter multiplies in fp32
    return _offered(device, precision)


@functools.cache
def _offered(device: torch.device, precision: str) -> str:
    from triton.compiler import make_backend
    from triton.runtime import driver

    target = detect(device)
    if precision == "tf32" and "tf32x3" in target.dot_precisions:
        return "tf32"
    options: Any = make_backend(cast(Any, driver.active.get_current_target())).parse_options({})
    offered = options.allowed_dot_input_precisions
    return next(p for p in target.dot_precisions if p in offered)  # Triton 3.4 has no bf16x6


def stages(wanted: int, device: torch.device) -> int:
    """How many steps' loads a loop has under way: as many as wanted where they go to shared memory by themselves."""
    return wanted if device.type == "cuda" and _async_copies(device) else 1


@functools.cache
def _async_copies(device: torch.device) -> bool:
    return detect(device).async_copies


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """How many programs run at a time, or a few of them each; two on a CPU, where the interpreter runs them in turn."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def transposed_steps(stride: Triple, dilation: Triple) -> tuple[Triple, Triple]:
    """Spacing of weights and advance of the input for each axis of an input gradient (`kernels.correlate`)."""
    shared = [math.gcd(s, d) for s, d in zip(stride, dilation, strict=True)]
    d, h, w = (s // g for s, g in zip(stride, shared, strict=True))
    ad, ah, aw = (-d // g for d, g in zip(dilation, shared, strict=True))
    return (d, h, w), (ad, ah, aw)


def depthwise(problem: Problem) -> bool:
    """Whether every input channel is a group of its own."""
    return problem.groups == problem.c and problem.groups > 1


def pointwise(problem: Problem) -> bool:
    """Whether every output pixel sees one input pixel, at the same place, in all channels."""
    return (problem.kernel, problem.stride, problem.padding, problem.groups) == (ONE, ONE, (0, 0, 0), 1)


def axis_steps(problem: Problem) -> tuple[int, ...]:
    """Kernel, stride, padding and dilation by axis, as kernels take them."""
    return (*problem.kernel, *problem.stride, *problem.padding, *problem.dilation)


def grid(programs: int) -> tuple[int]:
    """A launch's grid: one axis, the only one that takes more than 65535 programs."""
    check(programs < NUMBERS, f"{programs} programs")
    return (programs,)


def count_pixels(n: int, spatial: tuple[int, ...]) -> int:
    """Pixels of a batch, with room for the last block's."""
    count = n * math.prod(spatial)
    check(count + 1024 < NUMBERS, f"{count} pixels")
    return count


def ordered(tensor: Tensor, last: bool) -> Tensor:
    """The tensor [N, C, D, H, W] with channels or columns as neighbours, as asked for."""
    if tensor.stride(1 if last else 4) == 1 or tensor.shape[1 if last else 4] == 1:
        return tensor
    return tensor.contiguous(memory_format=torch.channels_last_3d if last else torch.contiguous_format)
