"""Which arithmetic an fp32 convolution has: torch's flags, and how to overrule them for a call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Literal

import torch

from lanewise.errors import InputError

Precision = Literal["fp32", "tf32"]
NOTHING = contextlib.nullcontext()


def check_precision(precision: str | None) -> None:
    """Raise an InputError unless `precision` is "fp32", "tf32" or None."""
    if precision not in (None, "fp32", "tf32"):
        raise InputError(
            "precision",
            got=repr(precision),
            expected="'fp32', 'tf32' or None",
            why="None follows torch's flags; torch.backends.cudnn.allow_tf32 is True by default",
        )


def resolve(precision: str | None, device_type: str) -> Precision:
    """The arithmetic of an fp32 convolution: what was asked for, or what torch's flags say for the device."""
    if precision is not None:
        return "tf32" if precision == "tf32" else "fp32"
    return "tf32" if device_type == "cuda" and _get(torch.backends.cudnn) in ("tf32", True) else "fp32"


def in_force(precision: Precision, device_type: str) -> contextlib.AbstractContextManager[None]:
    """Torch's flags for its own convolutions, as `precision` says, for the length of a block."""
    backend = torch.backends.cudnn if device_type == "cuda" else torch.backends.mkldnn
    before = _get(backend)
    wanted = precision == "tf32"
    # What a CPU does for "tf32" is its user's choice, and anything is allowed.
    if before is None or (before in ("tf32", True)) == wanted or (wanted and device_type != "cuda"):
        return NOTHING
    return _changed(backend, before, wanted if isinstance(before, bool) else "tf32" if wanted else "ieee")


@contextlib.contextmanager
def _changed(backend: Any, before: str | bool, value: str | bool) -> Iterator[None]:
    _set(backend, value)
    try:
        yield
    finally:
        _set(backend, before)


def _get(backend: Any) -> str | bool | None:
    """The flag: since torch 2.9 a word of `backend.conv`, before it a truth value that cuDNN alone has."""
    if name := _named.get(id(backend)):  # what the word's attribute calls, in a fifth of the time
        return torch._C._get_fp32_precision_getter(name, "conv")
    if hasattr(backend, "conv"):
        return backend.conv.fp32_precision
    return getattr(backend, "allow_tf32", None)


_named: dict[int, str] = {
    id(backend): backend.conv.backend
    for backend in (torch.backends.cudnn, torch.backends.mkldnn)
    if hasattr(torch._C, "_get_fp32_precision_getter") and hasattr(getattr(backend, "conv", None), "backend")
}


def _set(backend: Any, value: str | bool) -> None:
    if isinstance(value, bool):
        backend.allow_tf32 = value
    else:
        backend.conv.fp32_precision = value
