"""The parameters that are watched, by name, and the modules that own them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from lanewise.errors import InputError

Model = nn.Module | Mapping[str, Tensor] | Callable[[], Mapping[str, Tensor]]
Named = dict[str, Tensor]


class Parameters:
    """What a model learns, asked for anew whenever it may have been replaced (densification replaces Gaussians).

    Args:
        model: a module, a mapping from names to leaf tensors, or a function that returns one.

    Raises:
        InputError: it is none of these, or has nothing to learn.
    """

    def __init__(self, model: Model) -> None:
        self.module = model if isinstance(model, nn.Module) else None
        self._source = _source(model)
        self._named: Named = {}
        self._changed: dict[tuple[Optimizer, int], Named] = {}
        self.refresh()
        if not self._named:
            raise InputError("model", got="no parameter that requires a gradient", expected="something that learns")

    def refresh(self) -> Named:
        """Ask the model again."""
        self._named = {name: p for name, p in self._source().items() if p.requires_grad and p.is_floating_point()}
        self._changed = {}
        return self._named

    def changed_by(self, optimizer: Optimizer) -> Named:
        """Those of `current` that an optimizer changes."""
        groups = optimizer.param_groups
        key = optimizer, sum(len(group["params"]) for group in groups)  # groups may be added
        if key not in self._changed:
            own = {id(p) for group in groups for p in group["params"]}
            self._changed[key] = {name: p for name, p in self._named.items() if id(p) in own}
        return self._changed[key]

    def current(self) -> Named:
        """The parameters by name; those of a module as of the last `refresh`, because asking takes a while."""
        return self._named if self.module is not None else self.refresh()

    def owner(self, name: str) -> tuple[str, nn.Module | None]:
        """The name of the module that a parameter belongs to, and the module; ("", None) for a mapping's."""
        if self.module is None:
            return "", None
        path = name.rpartition(".")[0]
        return path, self.module.get_submodule(path)

    def described(self, name: str) -> str:
        """How findings call the place of a parameter: "layers.0 (Linear)", or "parameters"."""
        path, module = self.owner(name)
        return "parameters" if module is None else described(path, module)


def described(path: str, module: nn.Module) -> str:
    """How findings call a module."""
    return f"{path or 'model'} ({type(module).__name__})"


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that is on this device (sharded parameters), with the values of a sparse one alone."""
    if type(tensor) is Tensor and not tensor.requires_grad and not tensor.is_sparse:
        return tensor  # as nearly all are: every gradient of every step comes by
    tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor  # pyright: ignore[reportAttributeAccessIssue]
    tensor = tensor.detach() if tensor.requires_grad else tensor
    return tensor._values() if tensor.is_sparse else tensor


def _source(model: Any) -> Callable[[], Mapping[str, Tensor]]:
    if isinstance(model, nn.Module):
        return lambda: dict(model.named_parameters())
    if isinstance(model, Mapping):
        return lambda: model
    if callable(model):
        return model  # pyright: ignore[reportReturnType]
    raise InputError(
        "model",
        got=type(model).__name__,
        expected="a module, a mapping from names to tensors, or a function that returns one",
    )
