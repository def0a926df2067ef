"""Functions whose gradients `watch` probes, because somebody has said what they compute."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from lanewise.errors import InputError


@dataclass(frozen=True)
class Site:
    """Where a function is called from: an attribute that is replaced for the length of a step that is looked at.

    Attributes:
        name: how findings call it.
        owner: a module or a class.
        attribute: of the owner.
        reference: the same function of the same arguments, in differentiable torch that works in float64.
    """

    name: str
    owner: Any
    attribute: str
    reference: Callable[..., Any]


_SITES: dict[tuple[int, str], Site] = {}


def register_reference(function: Any, reference: Callable[..., Any]) -> None:
    """Tell `watch` what a function computes, so that it can probe the function's gradients in a training run.

    Args:
        function: a subclass of `torch.autograd.Function`, called as `function.apply(...)`; or a function, called by its
            name from the module that defines it or as an attribute of that module.
        reference: takes the same arguments, with floating-point tensors in float64, and returns the same outputs in
            differentiable torch.

    Raises:
        InputError: `function` is neither, or cannot be found by its name.
    """
    site = _site(function, reference)
    _SITES[id(site.owner), site.attribute] = site


def sites() -> tuple[Site, ...]:
    """Everything that was registered, and torch's own attention."""
    return tuple(_SITES.values())


def _site(function: Any, reference: Callable[..., Any]) -> Site:
    if isinstance(function, type) and issubclass(function, torch.autograd.Function):
        return Site(function.__name__, function, "apply", reference)
    name, module = getattr(function, "__name__", None), sys.modules.get(getattr(function, "__module__", None) or "")
    if not callable(function) or name is None or getattr(module, name, None) is not function:
        raise InputError(
            "function",
            got=repr(function),
            expected="a subclass of torch.autograd.Function, or a function at the top level of its module",
            why="it is replaced there for the steps that are looked at",
        )
    return Site(name, module, name, reference)
