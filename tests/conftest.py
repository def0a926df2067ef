"""For all tests: memory that torch hands out unwritten holds poison, so that an output nobody wrote fails its test."""

from collections.abc import Callable

import lanewise  # noqa: F401  (before torch: idle OpenMP threads then sleep instead of spinning)

# isort: split
import pytest
import torch
from torch import Tensor


def _poisoned(allocate: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`allocate`, with NaN in floating and the smallest value in integer tensors."""

    def allocate_and_fill(*args: object, **kwargs: object) -> Tensor:
        out = allocate(*args, **kwargs)
        if out.is_floating_point():
            return out.fill_(torch.nan)
        return out.fill_(torch.iinfo(out.dtype).min) if out.dtype in _INTEGERS else out

    return allocate_and_fill


_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)


@pytest.fixture(autouse=True)
def unwritten_memory_is_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "empty", _poisoned(torch.empty))
    monkeypatch.setattr(torch, "empty_like", _poisoned(torch.empty_like))
    monkeypatch.setattr(Tensor, "new_empty", _poisoned(Tensor.new_empty))
