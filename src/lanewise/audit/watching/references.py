"""Functions whose gradients `watch` probes, because somebody has said what they compute."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lanewise.errors import InputError


@dataclass(frozen=True)
class Site:
    """Where a function is called from: an attribute that is replaced for the length of a step that is looked at.

    Attributes:
        name: how findings call it.
        owner: a module or a class.
        attribute: of the owner.
        reference: the same function of the same arguments, in differentiable torch that works in float64.
        signature: the function whose arguments have names.
        batch: the dimension of each tensor, and of the "output", along which the function acts independently.
        work: multiplications that the reference takes, from the tensors by name.
        asked_for: whether somebody registered it, who is told when it is never called.
    """

    name: str
    owner: Any
    attribute: str
    reference: Callable[..., Any]
    signature: Callable[..., Any]
    batch: Mapping[str, int] | None = None
    work: Callable[[Mapping[str, Tensor]], int] = lambda tensors: 64 * sum(x.numel() for x in tensors.values())
    asked_for: bool = True


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """torch's attention, by the formula of its documentation."""
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, float("-inf"))
    if attn_mask is not None:
        whole = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, float("-inf")) if whole else scores + attn_mask
    return scores.softmax(-1) @ value


_SITES: dict[tuple[int, str], Site] = {}


def register_reference(function: Any, reference: Callable[..., Any], *, batch: Mapping[str, int] | None = None) -> None:
    """Tell `watch` what a function computes, so that it can probe the function's gradients in a training run.

    Args:
        function: a subclass of `torch.autograd.Function`, called as `function.apply(...)`; or a function, called by its
            name from the module that defines it or as an attribute of that module.
        reference: takes the same arguments, with floating-point tensors in float64, and returns the same outputs in
            differentiable torch.
        batch: by the name of every tensor argument, and under "output", the dimension along which the function acts
            independently on each entry: large calls are then compared in part. None: there is none.

    Raises:
        InputError: `function` is neither, or cannot be found by its name.
    """
    site = replace(_site(function, reference), batch=batch)
    _SITES[id(site.owner), site.attribute] = site


def sites() -> tuple[Site, ...]:
    """Everything that was registered, and torch's own attention."""
    return tuple(_SITES.values())


def _site(function: Any, reference: Callable[..., Any]) -> Site:
    if isinstance(function, type) and issubclass(function, torch.autograd.Function):
        return Site(function.__name__, function, "apply", reference, _after_context(function))
    name, module = getattr(function, "__name__", None), sys.modules.get(getattr(function, "__module__", None) or "")
    if not callable(function) or name is None or getattr(module, name, None) is not function:
        raise InputError(
            "function",
            got=repr(function),
            expected="a subclass of torch.autograd.Function, or a function at the top level of its module",
            why="it is replaced there for the steps that are looked at",
        )
    return Site(name, module, name, reference, function)


def _after_context(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """The forward of an autograd function, called as `apply` is: without its context, where it takes one."""
    apart = function.setup_context is not torch.autograd.Function.setup_context
    return function.forward if apart else functools.partial(function.forward, None)


def _scores(tensors: Mapping[str, Tensor]) -> int:
    """Multiplications of attention: [..., T, C] with [..., S, C]."""
    return 2 * tensors["query"].numel() * tensors["key"].shape[-2]


_SITES[id(F), "scaled_dot_product_attention"] = Site(
    "scaled_dot_product_attention",
    F,
    "scaled_dot_product_attention",
    _attention,
    _attention,
    {"query": 0, "key": 0, "value": 0, "output": 0},
    _scores,
    asked_for=False,
)
