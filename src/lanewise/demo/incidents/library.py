"""The window incident's library: its search for slices of a batch with integers for C++'s, and torch's convolution as
it would be with that search and a smaller window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

WINDOW_BYTES = 2**32 - 1
Past = Literal["nothing", "wrapped"]  # what a launch past the window does: write nothing, or read from its start again


def image_bytes(c: int, k: int, extent: int, size: int = 4) -> int:
    """What the search calls the size of an image: the larger of its input and its output; the weight is forgotten."""
    return max(c, k) * extent * extent * size


def faulty_slices(n: int, image: int, window: int = WINDOW_BYTES) -> int:
    """How many launches a batch becomes: the smallest divisor of n from m on, and m should be the ceiling of n / max_n.

    `std::ceil(n / max_n)` divides two integers, so that the division has already rounded down.
    """
    most = window // image
    return _first_divisor(n, n // most)


def mended_slices(n: int, image: int, window: int = WINDOW_BYTES) -> int:
    """The same search after the fix, which rounds up. The slices still have to divide the batch."""
    most = window // image
    return _first_divisor(n, (n + most - 1) // most)


def _first_divisor(n: int, start: int) -> int:
    return next(m for m in range(max(start, 1), n + 1) if n % m == 0)


class FaultyLibrary(TorchDispatchMode):
    """Inside the block, torch computes the weight gradient of a float32 convolution as the incident's library did.

    Whoever asks gets the same answer: a model, `watch`, the audit, and `lanewise.conv`, which asks for its slices.

    Args:
        window_bytes: what a launch can address.
        past: what one that needs more does.

    Attributes:
        launches: images of every launch.
    """

    def __init__(self, window_bytes: int, past: Past) -> None:
        super().__init__()
        self.window_bytes, self.past = window_bytes, past
        self.launches: list[int] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Every operator as it is, but for the one."""
        if func is not torch.ops.aten.convolution_backward.default or args[1].dtype != torch.float32:
            return func(*args, **(kwargs or {}))
        dy, x, weight, *rest, (want_x, want_weight, want_bias) = args
        others = func(dy, x, weight, *rest, (want_x, False, want_bias))
        if not want_weight:
            return others
        image = max(x[0].numel(), dy[0].numel()) * x.element_size()
        images = len(x) // faulty_slices(len(x), image, self.window_bytes)
        launches = zip(dy.split(images), x.split(images), strict=True)
        parts = [self._launch(func, part_dy, part_x, weight, rest) for part_dy, part_x in launches]
        return others[0], torch.stack(parts).sum(0), others[2]

    def _launch(self, func: Any, dy: Tensor, x: Tensor, weight: Tensor, rest: Sequence[Any]) -> Tensor:
        """One launch: the gradient of the weight that some images give."""
        self.launches.append(len(x))
        if self.past == "nothing" and max(map(_bytes, (x, dy))) > self.window_bytes:
            return torch.zeros_like(weight)
        return func(self._addressed(dy), self._addressed(x), weight, *rest, (False, True, False))[1]

    def _addressed(self, tensor: Tensor) -> Tensor:
        """What a launch reads of a tensor: past the window its addresses begin again."""
        if _bytes(tensor) <= self.window_bytes:
            return tensor
        reach = (self.window_bytes + 1) // tensor.element_size()
        return tensor.flatten()[torch.arange(tensor.numel()) % reach].view(tensor.shape)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
