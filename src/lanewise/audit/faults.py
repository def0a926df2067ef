"""Planted faults: gradients broken the way real kernels break them, for showing that a check would notice.

Each fault changes a gradient and raises nothing, like the incidents that it is modelled on. `planted` puts one
between an operator and whoever asks for its gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lanewise.errors import InputError


@dataclass(frozen=True)
class Fault:
    """One way in which a gradient goes wrong.

    Attributes:
        name: short name.
        code: the finding it should be reported as (`lanewise explain CODE`).
        story: what breaks in the kernel.
        apply: from the right gradient [rows, ...] to the wrong one.
    """

    name: str
    code: str
    story: str
    apply: Callable[[Tensor], Tensor]


def _zero(grad: Tensor) -> Tensor:
    return torch.zeros_like(grad)


def _nan(grad: Tensor) -> Tensor:
    out = grad.clone()
    out.flatten()[grad.numel() // 2] = float("nan")
    return out


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


FAULTS: tuple[Fault, ...] = (
    Fault("zero", "LW101", "a launch past the address window writes nothing: every element is zero", _zero),
    Fault("nan", "LW102", "one lane reads what nobody wrote", _nan),
    Fault("odd-waves", "LW103", "a 64-lane reduction on 32 lanes: every second wave's rows are lost", _odd_waves),
    Fault("one-row", "LW103", "the last block of a launch is missing: one row is lost", _one_row),
    Fault("shifted", "LW104", "a stride that is off by one: right values in the wrong places", _shifted),
    Fault("scaled", "LW105", "a factor that is almost one: 0.1% too large", _scaled),
)


def find_fault(name: str) -> Fault:
    """The fault of this name.

    Raises:
        InputError: there is none.
    """
    for fault in FAULTS:
        if fault.name == name:
            return fault
    raise InputError("fault", got=repr(name), expected=f"one of {', '.join(fault.name for fault in FAULTS)}")


def planted(tensor: Tensor, fault: Fault | None) -> Tensor:
    """The same values [rows, ...], whose gradient passes through `fault` on its way back; the tensor itself when
    `fault` is None."""
    if fault is None:
        return tensor
    out = tensor * 1  # a node of its own, so that the tensor's other uses keep their gradient
    if out.requires_grad:
        out.register_hook(lambda grad: fault.apply(grad) if grad.numel() else grad)
    return out
