"""The forward pass of a step whose values became infinite, run once more before the update spoils the parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from lanewise.audit.watching.trace import Passed, Trace


class Replay:
    """Keeps hold of a model's latest inputs, so that its forward pass can be looked at afterwards.

    Args:
        model: a module, called as a whole.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._given: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self._handle = model.register_forward_pre_hook(self._keep, with_kwargs=True)

    def remove(self) -> None:
        """Let go."""
        self._handle.remove()
        self._given = None

    def origin(self) -> Passed | None:
        """The first layer whose output is not finite while its input and parameters are; None where there is none.

        Buffers stay as they are, and torch's random generators too; dropout draws anew.
        """
        if self._given is None:
            return None
        args, kwargs = self._given
        buffers = {name: b.clone() for name, b in self._model.named_buffers()}
        devices = {x.device for x in tree_flatten(self._given)[0] if isinstance(x, Tensor) and x.device.type == "cuda"}
        trace = Trace(self._model)
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[d.index or 0 for d in devices]):
                torch.func.functional_call(self._model, buffers, args, kwargs)
        except Exception:  # a model that cannot be called again says nothing
            return None
        finally:
            trace.remove()
        return next((layer for layer in trace.read() if layer.sound and not layer.finite), None)

    def _keep(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not torch.compiler.is_compiling():
            self._given = args, kwargs
