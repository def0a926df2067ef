"""Which implementation of an operator runs, and the argument checks that all operators share."""

from __future__ import annotations

import functools
import importlib.util
import os
from typing import Literal

import torch
from torch import Tensor

from lanewise.errors import InputError, MissingDependencyError

Backend = Literal["auto", "reference", "cpu", "triton"]
BACKENDS = ("auto", "reference", "cpu", "triton")

emulated = False  # while `lanewise.prove` takes CPU tensors for those of a GPU, which it emulates


def resolve_backend(backend: str, tensor: Tensor) -> Literal["reference", "cpu", "triton"]:
    """The implementation for a tensor.

    `auto` takes Triton for fp32 on a GPU, the CPU kernels for fp32 on the CPU, and the reference for everything else.

    Raises:
        InputError: an unknown name, or kernels for a tensor that they cannot take.
        MissingDependencyError: Triton was asked for and is not installed.
    """
    single, device = tensor.dtype == torch.float32, tensor.device.type
    if backend == "auto":
        if not single:
            return "reference"
        if device == "cpu" and not emulated:
            return "cpu"
        return "triton" if (device == "cuda" or emulated) and has_triton() else "reference"
    if backend == "reference":
        return "reference"
    got = f"{backend!r} with {tensor.dtype} on {tensor.device}"
    fix = "backend='auto', or 'reference' for other dtypes and devices"
    if backend == "cpu":
        if not single or device != "cpu":
            raise InputError("backend", got=got, expected="float32 tensors on the CPU", fix=fix)
        return "cpu"
    if backend == "triton":
        if not has_triton():
            raise MissingDependencyError(
                "triton", needed_for="backend='triton'", install="pip install triton (it comes with torch on Linux)"
            )
        if not single or not (device == "cuda" or emulated or os.environ.get("TRITON_INTERPRET") == "1"):
            why = "on a CPU only Triton's interpreter runs them (TRITON_INTERPRET=1 before the import)"
            raise InputError("backend", got=got, expected="float32 tensors on a GPU", why=why, fix=fix)
        return "triton"
    raise InputError("backend", got=repr(backend), expected=f"one of {', '.join(map(repr, BACKENDS))}")


@functools.cache
def has_triton() -> bool:
    """Whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


def check_tensor(name: str, tensor: Tensor | None, shape: tuple[int | str, ...], like: Tensor | None = None) -> None:
    """Raise an InputError unless `tensor` has this shape, and the dtype and device of `like` (or a floating dtype).

    Entries of `shape` that are strings stand for any size.
    """
    if not isinstance(tensor, Tensor):
        raise InputError(name, got=type(tensor).__name__, expected=f"a tensor {_shown(shape)}")
    got = tensor.shape
    if got != shape and (  # equal tuples are soon compared, and mostly nothing stands for any size
        len(got) != len(shape) or any(a != b and not isinstance(b, str) for a, b in zip(got, shape, strict=True))
    ):
        raise InputError(name, got=f"shape {list(got)}", expected=_shown(shape))
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


def _shown(shape: tuple[int | str, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def check_positive(name: str, value: object, *, largest: int = 2**24) -> None:
    """Raise an InputError unless `value` is a whole number in 1..largest (pixel centres must be exact in fp32)."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= largest:
        raise InputError(name, got=repr(value), expected=f"a whole number in 1..{largest}")
