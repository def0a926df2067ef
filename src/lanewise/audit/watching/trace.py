"""One step seen from every layer: in which order they run, and where values become infinite or gradients vanish."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from lanewise.audit.watching.parameters import described, local


@dataclass(frozen=True)
class Passed:
    """What one layer saw.

    Attributes:
        path, module: the layer.
        given: whether something in its input is not zero.
        sound: whether its input and its parameters are finite.
        finite: whether its output is.
        positive: whether something in its output is above zero.
        reached: whether the gradient that arrived at its output is not all zero; False where none did.
    """

    path: str
    module: nn.Module
    given: bool
    sound: bool
    finite: bool
    positive: bool
    reached: bool

    @property
    def place(self) -> str:
        """How findings call it."""
        return described(self.path, self.module)


class Trace:
    """Hooks on every layer without layers inside, for one step; their facts stay on the device until they are read.

    Args:
        model: whose layers.
    """

    def __init__(self, model: nn.Module) -> None:
        self._facts: dict[str, list[Tensor]] = {}
        self._arrived: dict[str, Tensor] = {}
        self._modules = dict(leaves(model))
        self._like = next(model.parameters()).new_zeros((), dtype=torch.bool)
        self._handles = [
            module.register_forward_hook(self._hook(path), with_kwargs=True) for path, module in self._modules.items()
        ]

    def remove(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    @property
    def order(self) -> tuple[str, ...]:
        """The layers that ran, in the order in which they were first called."""
        return tuple(self._facts)

    def read(self) -> list[Passed]:
        """The facts in the order of execution; waits for the device."""
        found = []
        for path, facts in self._facts.items():
            given, sound, finite, positive = torch.stack(facts).tolist()
            arrived = self._arrived.get(path)
            reached = arrived is not None and bool(arrived)
            found.append(Passed(path, self._modules[path], given, sound, finite, positive, reached))
        return found

    def _hook(self, path: str) -> Any:
        def note(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            if torch.compiler.is_compiling():
                return
            with torch.no_grad():
                if path not in self._facts:
                    self._facts[path] = _facts(module, _tensors((args, kwargs)), _tensors(output), self._like)
            for y in _tensors(output):
                if y.requires_grad:
                    y.register_hook(lambda gradient: self._arrive(path, gradient))

        return note

    def _arrive(self, path: str, gradient: Tensor) -> None:
        if self._handles:
            some = (gradient != 0).any()
            self._arrived[path] = self._arrived[path] | some if path in self._arrived else some


def leaves(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The layers without layers inside that are not part of a compiled module, by path."""
    closed = [path for path, module in model.named_modules() if compiled(module)]
    for path, module in model.named_modules():
        if not list(module.children()) and not any(_inside(path, whole) for whole in closed):
            yield path, module


def compiled(module: nn.Module) -> bool:
    """Whether a module runs through `torch.compile`: hooks of what is inside are not called there."""
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def _inside(path: str, whole: str) -> bool:
    return not whole or path == whole or path.startswith(f"{whole}.")


def _facts(module: nn.Module, inputs: list[Tensor], outputs: list[Tensor], no: Tensor) -> list[Tensor]:
    """given, sound, finite and positive of `Passed`; `no` is False on the device."""
    parameters = [local(p) for p in module.parameters(recurse=False)]
    return [
        _any(inputs, lambda x: x != 0, no) if inputs else ~no,  # indices are something
        ~_any([*inputs, *parameters], lambda x: ~x.isfinite(), no),
        ~_any(outputs, lambda x: ~x.isfinite(), no),
        _any(outputs, lambda x: x > 0, no),
    ]


def _any(tensors: list[Tensor], mark: Any, no: Tensor) -> Tensor:
    return torch.stack([no, *(mark(x).any().to(no.device) for x in tensors)]).any()


def _tensors(tree: Any) -> list[Tensor]:
    return [x for x in tree_flatten(tree)[0] if isinstance(x, Tensor) and x.is_floating_point()]
