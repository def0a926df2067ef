"""Which implementation of an operator runs, and the argument checks that all operators share."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from lanewise.errors import InputError, UnsupportedError

Backend = Literal["auto", "reference", "cpu", "triton"]
BACKENDS = ("auto", "reference", "cpu", "triton")


def resolve_backend(backend: str, tensor: Tensor) -> Literal["reference", "cpu"]:
    """The implementation for a tensor: `auto` takes the CPU kernels for fp32 on the CPU, the reference for everything
    else.

    Raises:
        InputError: an unknown name, or CPU kernels for a tensor that is not fp32 on the CPU.
        UnsupportedError: `triton`, whose kernels are not in this version.
    """
    on_cpu = tensor.device.type == "cpu" and tensor.dtype == torch.float32
    if backend == "auto":
        return "cpu" if on_cpu else "reference"
    if backend == "reference":
        return "reference"
    if backend == "cpu":
        if not on_cpu:
            raise InputError(
                "backend",
                got=f"'cpu' with {tensor.dtype} on {tensor.device}",
                expected="float32 tensors on the CPU",
                fix="backend='auto', or 'reference' for other dtypes and devices",
            )
        return "cpu"
    if backend == "triton":
        raise UnsupportedError(
            "backend='triton'", why="the Triton kernels come in a later version", fix="backend='auto'"
        )
    raise InputError("backend", got=repr(backend), expected=f"one of {', '.join(map(repr, BACKENDS))}")


def check_tensor(name: str, tensor: Tensor | None, shape: tuple[int | str, ...], like: Tensor | None = None) -> None:
    """Raise an InputError unless `tensor` has this shape, and the dtype and device of `like` (or a floating dtype).

    Entries of `shape` that are strings stand for any size.
    """
    expected = "[" + ", ".join(map(str, shape)) + "]"
    if tensor is None or not isinstance(tensor, Tensor):
        raise InputError(name, got=type(tensor).__name__, expected=f"a tensor {expected}")
    matches = len(tensor.shape) == len(shape) and all(
        isinstance(want, str) or want == got for want, got in zip(shape, tensor.shape, strict=True)
    )
    if not matches:
        raise InputError(name, got=f"shape {list(tensor.shape)}", expected=expected)
    if like is None:
        if tensor.dtype not in (torch.float32, torch.float64):
            raise InputError(
                name, got=str(tensor.dtype), expected="torch.float32 or torch.float64", fix=f"{name}.float()"
            )
    elif tensor.dtype != like.dtype or tensor.device != like.device:
        raise InputError(
            name,
            got=f"{tensor.dtype} on {tensor.device}",
            expected=f"{like.dtype} on {like.device}, as the other tensors",
            fix=f"{name}.to({str(like.device)!r}, {like.dtype})",
        )


def check_positive(name: str, value: object, *, largest: int = 2**24) -> None:
    """Raise an InputError unless `value` is a whole number in 1..largest (pixel centres must be exact in fp32)."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= largest:
        raise InputError(name, got=repr(value), expected=f"a whole number in 1..{largest}")
