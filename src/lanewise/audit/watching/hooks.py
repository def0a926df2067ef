"""Noticing the steps of an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from lanewise.errors import InputError


def on_steps(
    optimizer: Optimizer | Sequence[Optimizer] | None,
    mine: Callable[[], Sequence[Tensor]],
    before: Callable[[Optimizer], None],
    after: Callable[[], None],
) -> list[Any]:
    """Have `before` and `after` called around every step; the handles take the hooks away again.

    Args:
        optimizer: one, several, none (an empty sequence), or None for every optimizer that holds one of `mine`.
        mine: the parameters of the model.
        before, after: what to call.

    Raises:
        InputError: something else is given.
    """

    def holds(stepping: Optimizer) -> bool:
        own = {id(p) for p in mine()}
        return any(id(p) in own for group in stepping.param_groups for p in group["params"])

    def early(stepping: Optimizer, *_: Any) -> None:
        if optimizer is not None or holds(stepping):
            before(stepping)

    def late(stepping: Optimizer, *_: Any) -> None:
        if optimizer is not None or holds(stepping):
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
