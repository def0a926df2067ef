"""Planted faults: gradients broken the way real kernels break them, for showing that a check would notice.

Each fault changes a gradient and raises nothing, like the incidents that it is modelled on. `planted` puts one
between an operator and whoever asks for its gradient; `planted_call` gives any operator a backward that has it, also
where the fault is in what is summed and not in the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lanewise.audit.call import Call
from lanewise.errors import InputError

Cotangents = tuple[Tensor, ...]
PullBack = Callable[[Cotangents], Tensor]  # from upstream gradients to the right gradient


def _in_the_sum(grad: Tensor) -> Tensor:
    raise InputError("fault", got="one of a sum", expected="a fault of a gradient", fix="plant it with planted_call")


@dataclass(frozen=True)
class Fault:
    """One way in which a gradient goes wrong.

    Attributes:
        name: short name.
        code: the finding it should be reported as (`lanewise explain CODE`).
        story: what breaks in the kernel.
        apply: from the right gradient [rows, ...] to the wrong one; it raises where the fault is in the sum.
        backward: from the right backward pass and upstream gradients to the wrong gradient; None for `apply`'s.
        start: makes a `backward` that remembers, for each operator that it is planted in; None for the others.
    """

    name: str
    code: str
    story: str
    apply: Callable[[Tensor], Tensor] = _in_the_sum
    backward: Callable[[PullBack, Cotangents], Tensor] | None = None
    start: Callable[[], Callable[[PullBack, Cotangents], Tensor]] | None = None

    def began(self) -> Callable[[PullBack, Cotangents], Tensor]:
        """A wrong backward pass: from the right one and the upstream gradients to the wrong gradient."""
        if self.start is not None:
            return self.start()
        if self.backward is not None:
            return self.backward
        return lambda pull, cotangents: self.apply(pull(cotangents))


def _zero(grad: Tensor) -> Tensor:
    return torch.zeros_like(grad)


def _nan(grad: Tensor) -> Tensor:
    flat = grad.flatten().clone()
    flat[grad.numel() // 2] = float("nan")
    return flat.reshape(grad.shape)


def _odd_waves(grad: Tensor) -> Tensor:
    if grad.shape[0] == 1:  # the row's own upper half
        return _odd_waves(grad.reshape(-1, 1)).reshape(grad.shape) if grad.numel() > 1 else torch.zeros_like(grad)
    if grad.shape[0] <= 32:  # a single wave: the lanes of its upper half are the ones that are lost
        return torch.cat([grad[: (len(grad) + 1) // 2], torch.zeros_like(grad[(len(grad) + 1) // 2 :])])
    keep = torch.arange(grad.shape[0], device=grad.device) // 32 % 2 == 0
    return grad * keep.reshape(-1, *[1] * (grad.dim() - 1))


def _scaled(grad: Tensor) -> Tensor:
    return grad * 1.001


def _shifted(grad: Tensor) -> Tensor:
    flat = grad.flatten()
    return torch.roll(flat, 1).reshape(grad.shape) if flat.numel() > 1 else -grad


def _one_row(grad: Tensor) -> Tensor:
    largest = grad.reshape(grad.shape[0], -1).abs().sum(1).argmax()
    return grad.index_fill(0, largest, 0)


def _one_entry(grad: Tensor) -> Tensor:
    flat = grad.flatten()
    return flat.index_fill(0, flat.abs().argmax(), 0).reshape(grad.shape)


def _last_tile(grad: Tensor) -> Tensor:
    rows = grad.shape[0]
    return torch.cat([grad[: (rows - 1) // TILE * TILE], torch.zeros_like(grad[(rows - 1) // TILE * TILE :])])


def _past_window_zero(grad: Tensor) -> Tensor:
    flat = grad.flatten()
    return torch.cat([flat[: _window(flat)], torch.zeros_like(flat[_window(flat) :])]).reshape(grad.shape)


def _past_window_wrapped(grad: Tensor) -> Tensor:
    flat, window = grad.flatten(), _window(grad)
    if window == 0:
        return torch.zeros_like(grad)
    out = torch.cat([flat[:window], torch.zeros_like(flat[window:])])
    out[: len(flat) - window] = flat[window:]
    return out.reshape(grad.shape)


def _window(grad: Tensor) -> int:
    """Elements before the end of the window: as the 4 GB of real ones stand to 7 GB."""
    return grad.numel() * 4 // 7


def _wrong_stride(grad: Tensor) -> Tensor:
    flat = grad.flatten()
    at = torch.arange(len(flat), device=grad.device) * 2 % len(flat)
    return flat[at].reshape(grad.shape) if len(flat) > 1 else -grad


def _half_the_terms(pull: PullBack, cotangents: Cotangents) -> Tensor:
    return pull(tuple(_entries(v, 0, (_rows(v) + 1) // 2) for v in cotangents))


def _bf16_accumulator(pull: PullBack, cotangents: Cotangents) -> Tensor:
    """Each block of terms is right, and their sum is kept in bf16."""
    count = max(_rows(v) for v in cotangents)
    total, step = None, max(1, count // BLOCKS)
    for start in range(0, count, step):
        part = pull(tuple(_entries(v, start, start + step) for v in cotangents))
        total = (part if total is None else total + part).bfloat16().to(part.dtype)
    return pull(cotangents) if total is None else total


def _stale() -> Callable[[PullBack, Cotangents], Tensor]:
    left: list[Tensor] = []

    def backward(pull: PullBack, cotangents: Cotangents) -> Tensor:
        left.append(pull(cotangents))
        earlier = left.pop(0) if len(left) > 1 else torch.zeros_like(left[0])
        return earlier if earlier.shape == left[0].shape else torch.zeros_like(left[0])

    return backward


def _race() -> Callable[[PullBack, Cotangents], Tensor]:
    generator = torch.Generator().manual_seed(0)

    def backward(pull: PullBack, cotangents: Cotangents) -> Tensor:
        grad = pull(cotangents)
        flat, tile = grad.flatten().clone(), max(1, grad.numel() // BLOCKS)
        lost = int(torch.randint(-(-flat.numel() // tile), (), generator=generator))
        flat[lost * tile : (lost + 1) * tile] = 0
        return flat.reshape(grad.shape)

    return backward


def _rows(v: Tensor) -> int:
    return v.shape[0] if v.dim() else 1


def _entries(v: Tensor, start: int, stop: int) -> Tensor:
    """The upstream gradient with all but some of its first dimension's entries erased."""
    if v.dim() == 0:
        return v if start == 0 else torch.zeros_like(v)
    out = torch.zeros_like(v)
    out[start:stop] = v[start:stop]
    return out


TILE = 16  # rows of a tile, of which the last may be partial
BLOCKS = 16  # blocks of a launch

FAULTS: tuple[Fault, ...] = (
    Fault("zero", "LW101", "a launch past the address window writes nothing: every element is zero", _zero),
    Fault("nan", "LW102", "one lane reads what nobody wrote", _nan),
    Fault("odd-waves", "LW103", "a 64-lane reduction on 32 lanes: every second wave's rows are lost", _odd_waves),
    Fault("one-row", "LW103", "the last block of a launch is missing: one row is lost", _one_row),
    Fault("shifted", "LW104", "a stride that is off by one: right values in the wrong places", _shifted),
    Fault("scaled", "LW105", "a factor that is almost one: 0.1% too large", _scaled),
)  # of one gradient, and visible in any: what the tests of a kernel's gate plant


ALL_FAULTS: tuple[Fault, ...] = (
    *FAULTS,
    Fault("half-the-terms", "LW103", "half of what is summed is never read", backward=_half_the_terms),
    Fault("window-zero", "LW202", "past the byte window of an address everything is zero", _past_window_zero),
    Fault("window-wrapped", "LW202", "addresses past the byte window begin again at its start", _past_window_wrapped),
    Fault("one-entry", "LW103", "a mask that is off by one: one element is lost", _one_entry),
    Fault("last-tile", "LW103", "the last tile, a partial one, is not launched", _last_tile),
    Fault("wrong-stride", "LW104", "the stride of another tensor: every second value, twice over", _wrong_stride),
    Fault("stale", "LW303", "nothing is written: what an earlier launch left is returned", start=_stale),
    Fault("race", "LW106", "two blocks write at once: a random tile is lost, another one each time", start=_race),
    Fault("bf16-sum", "LW105", "blocks are summed in bf16", backward=_bf16_accumulator),
)


def find_fault(name: str) -> Fault:
    """The fault of this name.

    Raises:
        InputError: there is none.
    """
    for fault in ALL_FAULTS:
        if fault.name == name:
            return fault
    raise InputError("fault", got=repr(name), expected=f"one of {', '.join(fault.name for fault in ALL_FAULTS)}")


def planted(tensor: Tensor, fault: Fault | None) -> Tensor:
    """The same values [rows, ...], whose gradient passes through `fault` on its way back; the tensor itself when
    `fault` is None.

    Raises:
        InputError: the fault is in the sum that makes the gradient, not in a gradient (`planted_call` plants it).
    """
    if fault is None:
        return tensor
    if fault.apply is _in_the_sum:
        fault.apply(tensor)
    out = tensor * 1  # a node of its own, so that the tensor's other uses keep their gradient
    if out.requires_grad:
        out.register_hook(lambda grad: fault.apply(grad) if grad.numel() else grad)
    return out


def planted_call(call: Call, argument: str, fault: Fault) -> Call:
    """The same call with `fault` in the backward pass of one argument. Forward, other arguments and float64 are right.

    Raises:
        InputError: the argument is a module's parameter.
    """
    if argument not in replace(call, fn=_nothing).tensors():
        raise InputError("argument", got=repr(argument), expected="an argument of the call", fix="pass a function")
    dtype, backward = call.value(argument).dtype, fault.began()

    def faulty(*args: Any, **kwargs: Any) -> Any:
        inner = replace(call, args=args, kwargs=kwargs)
        x = inner.value(argument)
        if x.dtype != dtype or not x.requires_grad:
            return call.fn(*args, **kwargs)
        leaves, own = inner.graph(names=(argument,))

        def pull(cotangents: Cotangents) -> Tensor:
            (grad,) = torch.autograd.grad(own, leaves[argument], cotangents, retain_graph=True)
            return grad.to_dense() if grad.is_sparse else grad

        out = _Faulty.apply(lambda v: backward(pull, v), x, *inner.replaced({argument: x.detach()}).output())
        return out if len(own) > 1 else out[0]

    return replace(call, fn=faulty, reference=call.reference or call.fn)


class _Faulty(torch.autograd.Function):
    """The outputs as they are; the gradient of x from a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, backward: Callable[[Cotangents], Tensor], x: Tensor, *outputs: Tensor) -> Any:
        ctx.pull = backward
        return tuple(y.view_as(y) for y in outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        return None, ctx.pull(cotangents), *cotangents


def _nothing(*_: Any, **__: Any) -> None:
    return None
