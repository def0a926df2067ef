"""The Gaussians under optimisation: parameters and Adam moments, kept together when Gaussians come and go."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
from torch.nn import Parameter

from lanewise.io.scene import Gaussians
from lanewise.train.adam import adam_coefficients, adam_step
from lanewise.train.config import TrainConfig

NAMES: tuple[str, ...] = ("means", "quats", "scales", "opacities", "sh0", "shN")
_MOMENTS = ("exp_avg", "exp_avg_sq")


class GaussianOptimizer:
    """Adam over the six tensors of N Gaussians, with a learning rate for each.

    `params` maps the names of `Gaussians` (means, quats, scales, opacities, sh0, shN) to leaf tensors in the stored
    parametrisation. Densification goes through `rearrange` and `overwrite`, so that a moment never meets a foreign
    Gaussian.

    On the CPU `step` is torch's fused Adam. On a GPU, and for selective Adam anywhere, a step has two halves:
    `announce` on the host, which counts the step and tells its coefficients, and `update` on the device, which waits
    for nothing and so can be captured into a graph.

    Args:
        gaussians: the first Gaussians; their tensors are copied.
        config: learning rates and batch size.
        scene_scale: world units that the centres' learning rate is measured in.
    """

    def __init__(self, gaussians: Gaussians, config: TrainConfig, scene_scale: float) -> None:
        self.params = {name: Parameter(tensor.detach().clone()) for name, tensor in gaussians.tensors().items()}
        batch = config.batch_size
        # A batch of B takes B times fewer steps: rates grow with sqrt(B), and the averages forget B times faster.
        rates = {name: getattr(config, f"{name}_lr") * math.sqrt(batch) for name in self.params}
        rates["means"] *= scene_scale
        self._rates, self._betas = rates, (max(0.0, 1 - batch * 0.1), max(0.0, 1 - batch * 0.001))
        self._eps = 1e-15 / math.sqrt(batch)
        self.on_device = self.device.type != "cpu" or config.selective_adam
        self._decay = config.means_lr_final ** (1 / config.means_lr_decay_steps)
        self._adam = torch.optim.Adam(
            [{"params": [parameter], "lr": rates[name], "name": name} for name, parameter in self.params.items()],
            betas=self._betas,
            eps=self._eps,
            fused=True,
        )

    def __len__(self) -> int:
        return self.params["means"].shape[0]

    @property
    def adam(self) -> torch.optim.Optimizer:
        """torch's optimizer, which holds the moments and the rates; on a GPU it takes no steps itself."""
        return self._adam

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.params["means"].device

    def gaussians(self) -> Gaussians:
        """The Gaussians as they are now, detached; they share memory with the parameters."""
        return Gaussians(**{name: parameter.detach() for name, parameter in self.params.items()})

    def step(self, index: int) -> None:
        """Take the step of number `index` (from 0) with the gradients at hand, and drop the gradients.

        A parameter without a gradient stays as it is, its moments and its count of steps included.
        """
        for group in self._adam.param_groups:
            group["lr"] = self._rate(group["name"], index)
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)

    def ready(self) -> None:
        """Have moments for every parameter, of zero where it has not taken a step."""
        for name in NAMES:
            self._ready(name)

    def announce(self, index: int, names: Iterable[str]) -> list[float]:
        """Count the step of number `index` for the parameters `names`, and tell its coefficients.

        Returns:
            lr / (1 - beta1^t) and 1 / sqrt(1 - beta2^t) for each of `NAMES`, [6 * 2]; zeros where it takes no step.
        """
        coefficients = dict.fromkeys(NAMES, (0.0, 0.0))
        for name in names:
            state = self._ready(name)
            state["step"] += 1
            coefficients[name] = adam_coefficients(self._rate(name, index), int(state["step"]), self._betas)
        return [value for name in NAMES for value in coefficients[name]]

    def take_back(self, names: Iterable[str], steps: int = 1) -> None:
        """Count `steps` fewer for the parameters `names`: what was announced was not taken."""
        for name in names:
            self._ready(name)["step"] -= steps

    @torch.no_grad()
    def update(
        self,
        gradients: Mapping[str, Tensor],
        coefficients: Tensor,
        *,
        visible: Tensor | None = None,
        skip: Tensor | None = None,
    ) -> None:
        """Take an announced step, on the device alone.

        Args:
            gradients: by name, of the parameters that were announced.
            coefficients: what `announce` told, float32 [6, 2] on the device.
            visible: bool [N]; Gaussians where it is False stay as they are, their moments included.
            skip: int32 [1]; where it is not 0 nothing changes.
        """
        for row, name in enumerate(NAMES):
            if name in gradients:
                state = self._adam.state[self.params[name]]
                adam_step(
                    self.params[name].detach(),
                    gradients[name],
                    state["exp_avg"],
                    state["exp_avg_sq"],
                    coefficients[row],
                    betas=self._betas,
                    eps=self._eps,
                    visible=visible,
                    skip=skip,
                )

    def addresses(self) -> tuple[int, ...]:
        """Where the tensors are that `update` changes: a captured step can be replayed while they stay there."""
        states = self._adam.state.values() if self.on_device else ()
        moments = [state[key] for state in states for key in _MOMENTS]
        return tuple(tensor.data_ptr() for tensor in (*self.params.values(), *moments))

    @torch.no_grad()
    def rearrange(self, index: Tensor, kept: int) -> None:
        """Let the Gaussians be those of rows `index` [M] of the present ones, int64.

        The first `kept` rows keep their moments; the rest are new Gaussians, whose moments are zero.
        """
        for name in self.params:
            moments = {}
            for key, moment in self._moments(name).items():
                fresh = moment.new_zeros((len(index) - kept, *moment.shape[1:]))
                moments[key] = torch.cat([moment.index_select(0, index[:kept]), fresh])
            self._replace(name, self.params[name].index_select(0, index), moments)

    @torch.no_grad()
    def overwrite(self, name: str, values: Tensor) -> None:
        """Give a parameter new values of the same shape, and set its moments to zero."""
        self.params[name].copy_(values)
        for moment in self._moments(name).values():
            moment.zero_()

    def state(self) -> dict[str, Tensor]:
        """Everything that `load_state` needs, by name; the tensors share memory with the optimizer.

        `params.<name>`, and for parameters that have taken a step `adam.<name>.exp_avg`, `.exp_avg_sq`, `.step`.
        """
        state = {f"params.{name}": parameter.detach() for name, parameter in self.params.items()}
        for name, parameter in self.params.items():
            for key, value in self._adam.state.get(parameter, {}).items():
                state[f"adam.{name}.{key}"] = value
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Become what `state` describes. Its tensors are copied to the present device."""
        device = self.device
        for name in self.params:
            self._replace(name, state[f"params.{name}"].to(device, copy=True), {})
            prefix = f"adam.{name}."
            saved = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
            if saved:
                # Copies, because a tensor read from a file may be aligned otherwise than one of torch's own. The count
                # of steps stays on the host.
                self._adam.state[self.params[name]] = {
                    k: v.to("cpu" if k == "step" else device, copy=True) for k, v in saved.items()
                }

    def _rate(self, name: str, index: int) -> float:
        return self._rates[name] * (self._decay**index if name == "means" else 1)

    def _ready(self, name: str) -> dict[str, Tensor]:
        """The state of a parameter; moments of zero before its first step."""
        state = self._adam.state[self.params[name]]
        if not state:
            state["step"] = torch.tensor(0.0)
            state |= {key: torch.zeros_like(self.params[name]) for key in _MOMENTS}
        return state

    def _moments(self, name: str) -> dict[str, Tensor]:
        state = self._adam.state.get(self.params[name], {})
        return {key: state[key] for key in _MOMENTS if key in state}

    def _replace(self, name: str, values: Tensor, moments: dict[str, Tensor]) -> None:
        old, new = self.params[name], Parameter(values)
        state = self._adam.state.pop(old, None)
        if state and moments:
            self._adam.state[new] = {**state, **moments}
        group = next(group for group in self._adam.param_groups if group["name"] == name)
        group["params"] = [new]
        self.params[name] = new
