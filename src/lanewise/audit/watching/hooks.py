"""Noticing the steps of an optimizer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from lanewise.errors import InputError

_OPTIMIZER = Optimizer.profile_hook_step.__code__.co_filename  # where torch wraps the step of every optimizer
_Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def on_steps(
    optimizer: Optimizer | Sequence[Optimizer] | None,
    mine: Callable[[], Sequence[Tensor]],
    before: Callable[[Optimizer], None],
    after: Callable[[], None],
) -> list[Any]:
    """Have `before` and `after` called around every step; the handles take the hooks away again.

    A step that is given a closure (LBFGS, every step of Lightning) makes its gradients itself: there `before` is called
    when the closure has run for the first time.

    Args:
        optimizer: one, several, none (an empty sequence), or None for every optimizer that holds one of `mine`.
        mine: the parameters of the model.
        before, after: what to call.

    Raises:
        InputError: something else is given.
    """

    def counts(stepping: Optimizer) -> bool:
        if _recorded() or _inside(stepping):
            return False
        own = {id(p) for p in mine()} if optimizer is None else set()
        return optimizer is not None or any(id(p) in own for group in stepping.param_groups for p in group["params"])

    def early(stepping: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Arguments | None:
        return _with_gradients(args, kwargs, lambda: before(stepping)) if counts(stepping) else None

    def late(stepping: Optimizer, *_: Any) -> None:
        if counts(stepping):
            after()

    if optimizer is None:
        return [register_optimizer_step_pre_hook(early), register_optimizer_step_post_hook(late)]
    several = [optimizer] if isinstance(optimizer, Optimizer) else optimizer
    handles: list[Any] = []
    for each in several:
        if not isinstance(each, Optimizer):
            raise InputError(
                "optimizer",
                got=type(each).__name__,
                expected="a torch.optim.Optimizer, several of them, or None",
                fix="without one, call before_step(gradients) and after_step() of the watch around every update",
            )
        handles += [each.register_step_pre_hook(early), each.register_step_post_hook(late)]
    return handles


def _with_gradients(args: tuple[Any, ...], kwargs: dict[str, Any], then: Callable[[], None]) -> _Arguments | None:
    """Call `then` when the gradients of a step are there: now, or from its closure; that step's arguments instead."""
    stepping, *rest = args
    closure = kwargs.get("closure", rest[0] if rest else None)
    if not callable(closure):
        then()
        return None
    waiting = [then]

    def evaluate() -> Any:
        loss = closure()
        while waiting:
            waiting.pop()()
        return loss

    if "closure" in kwargs:
        return args, kwargs | {"closure": evaluate}
    return (stepping, evaluate, *rest[1:]), kwargs


def _inside(stepping: Optimizer) -> bool:
    """Whether this step is a part of another one of the same optimizer: a subclass that calls `super().step()`."""
    calls, frame = 0, sys._getframe(1)
    while frame is not None and calls < 2:
        code = frame.f_code
        if code.co_name == "wrapper" and code.co_filename == _OPTIMIZER and frame.f_locals["args"][0] is stepping:
            calls += 1
        frame = frame.f_back
    return calls == 2


def _recorded() -> bool:
    """Whether the step is compiled or captured into a CUDA graph, where nothing may be asked."""
    return torch.compiler.is_compiling() or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())
