"""One operator, two ways in: a registered custom operator for `torch.compile`, a plain autograd function for eager
code.

The custom operator's wrappers cost about 0.1 ms a call, as much as a kernel; eager code, which needs nothing of them,
goes around.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def operator(
    custom: Callable[..., Any],
    forward: Callable[..., Any],
    setup_context: Callable[..., None],
    backward: Callable[..., Any],
    *,
    differentiable: bool = False,
    tensors: int | None = None,
) -> Callable[..., Any]:
    """A callable that runs `custom` under the compiler and `forward` elsewhere, with the same gradient.

    Args:
        custom: the registered operator.
        forward: what it does.
        setup_context: keeps what `backward` needs, as of `torch.library.register_autograd`.
        backward: its gradient, without the registered backward operator; the gradient of an unused output is None.
        differentiable: whether `backward` is made of operators that have gradients themselves.
        tensors: how many of the arguments, the first ones, may be tensors; None for all. Torch handles the others as
            one, which takes a third less time; `backward` gives as many gradients as `ctx.needs_input_grad` is long.
    """

    rule = backward if differentiable else once_differentiable(backward)

    class Eager(torch.autograd.Function):
        # `forward` with the context in it: a separate `setup_context` makes torch inspect the signature at every call.
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            args = args if tensors is None else (*args[:tensors], *args[tensors])
            output = forward(*args)
            outputs = (output,) if isinstance(output, Tensor) else output
            if whole := [x for x in outputs if not x.is_floating_point()]:
                ctx.mark_non_differentiable(*whole)
            ctx.set_materialize_grads(False)  # no zeros for outputs that nobody differentiates
            setup_context(ctx, args, output)
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            return rule(ctx, *grads)

    def call(*args: Any) -> Any:
        if torch.compiler.is_compiling():
            return custom(*args)
        if not torch.is_grad_enabled():
            return forward(*args)
        return Eager.apply(*args) if tensors is None else Eager.apply(*args[:tensors], args[tensors:])

    return call


def zeros_for_none(grad: Tensor | None, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """An upstream gradient, zero where the output was not used."""
    return like.new_zeros(shape) if grad is None else grad
