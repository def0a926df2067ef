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
        model: a module that is called as a whole; or one whose parts are (a LightningModule that has no `forward`).
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._given: dict[nn.Module, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self._parts = [child.register_forward_pre_hook(self._keep, with_kwargs=True) for child in model.children()]
        self._whole = model.register_forward_pre_hook(self._keep, with_kwargs=True)

    def remove(self) -> None:
        """Let go."""
        self._whole.remove()
        self._forget_parts()

    def origin(self) -> Passed | None:
        """The first layer whose output is not finite while its input and parameters are; None where there is none.

        Buffers stay as they are, and torch's random generators too; dropout draws anew.
        """
        devices = {x.device for x in tree_flatten(list(self._given.values()))[0] if isinstance(x, Tensor)}
        trace = Trace(self._model)
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[d.index or 0 for d in devices if d.type == "cuda"]):
                for module, (args, kwargs) in self._given.items():
                    buffers = {name: b.clone() for name, b in module.named_buffers()}
                    torch.func.functional_call(module, buffers, args, kwargs)
        except Exception:  # a model that cannot be called again says nothing
            return None
        finally:
            trace.remove()
        return next((layer for layer in trace.read() if layer.sound and not layer.finite), None)

    def _keep(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():  # without gradients: an evaluation in between
            return
        if module is self._model:  # what is kept of its parts would be kept twice
            self._forget_parts()
        self._given[module] = args, kwargs

    def _forget_parts(self) -> None:
        for handle in self._parts:
            handle.remove()
        self._parts = []
        self._given = {}
