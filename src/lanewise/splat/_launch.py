"""What all Triton launches share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from lanewise.errors import UnsupportedError

T = TypeVar("T")


def on_its_device(launch: Callable[..., T]) -> Callable[..., T]:
    """Run a launch function with the GPU of its first tensor as the current one, which is where Triton launches."""

    @functools.wraps(launch)
    def run(first: Tensor, *args: Any, **kwargs: Any) -> T:
        with torch.cuda.device_of(first):
            return launch(first, *args, **kwargs)

    return run


def contiguous(*tensors: Tensor | None) -> Any:
    """The tensors as kernels address them: contiguous, None staying None."""
    return tuple(x if x is None or x.is_contiguous() else x.contiguous() for x in tensors)


def check_window(*tensors: Tensor) -> None:
    """Raise unless the rows of every tensor [..., columns] can be numbered with 31 bits.

    Kernels add 64-bit bases; only row numbers (Gaussians of all images, entries of a list) are 32 bits wide.
    """
    for tensor in tensors:
        if tensor.numel() < 2**31:
            continue
        rows = tensor.numel() // max(tensor.shape[-1] if tensor.dim() else 1, 1)
        if rows >= 2**31:
            raise UnsupportedError(
                f"{rows} rows in one launch",
                why="rows are numbered with 32 bits",
                fix="render fewer cameras or Gaussians at a time",
            )
