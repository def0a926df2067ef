"""Gradients as they are before they are clipped: clipping by the norm spreads a single NaN to all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import utils

_OWNERS: tuple[Any, ...] = (utils, utils.clip_grad)  # modules that have `clip_grad_norm_`
_ORIGINAL = utils.clip_grad_norm_
_listening: list[OnClipping] = []


class OnClipping:
    """Has a function called with the parameters that torch is about to clip; `remove` ends that.

    While somebody listens, `torch.nn.utils.clip_grad_norm_` is another function of the same name. A script that has
    imported the name before goes on to call torch's own, of which nobody is told.
    """

    def __init__(self, then: Callable[[Sequence[Tensor]], None]) -> None:
        self.then = then
        _listening.append(self)
        _put(_clip)

    def remove(self) -> None:
        """Listen no more; the last one puts torch's function back."""
        if self in _listening:
            _listening.remove(self)
        if not _listening:
            _put(_ORIGINAL)


@functools.wraps(_ORIGINAL)
def _clip(parameters: Any, *args: Any, **kwargs: Any) -> Tensor:
    if torch.compiler.is_compiling():
        return _ORIGINAL(parameters, *args, **kwargs)
    several = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    for listener in list(_listening):
        listener.then(several)
    return _ORIGINAL(several, *args, **kwargs)


def _put(function: Callable[..., Tensor]) -> None:
    for owner in _OWNERS:
        owner.clip_grad_norm_ = function
