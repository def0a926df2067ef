"""Adaptive density control of the 3DGS paper (Kerbl et al. 2023, section 5), as gsplat's default strategy has it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lanewise.train.config import TrainConfig
from lanewise.train.optimizer import GaussianOptimizer
from lanewise.train.strategy.base import Changes

_SPLIT_SHRINK = 1.6  # a child's standard deviations are the parent's divided by this (the paper's phi)


class DefaultStrategy:
    """Duplicates small and splits large Gaussians whose image-plane gradient is high; prunes faint and huge ones.

    The gradient of a projected centre is taken in half images and averaged over the cameras that saw the Gaussian
    since the last refinement. Opacities are lowered every `reset_every` steps, so that what the photographs do not
    ask for fades and is pruned. (gsplat 1.5.3 means to do so and never does: in `step % reset_every == 0 & step > 0`
    the `&` binds first. Later versions reset, as here.)

    Args:
        config: thresholds and schedule.
        scene_scale: world units that sizes are compared in.
    """

    def __init__(self, config: TrainConfig, scene_scale: float) -> None:
        self.config = config
        self.scene_scale = scene_scale
        self._statistics: dict[str, Tensor] = {}  # grad2d, count and, where the size rules need it, radii: [N] each

    def before_backward(self, meta: dict[str, Any], index: int) -> None:
        """Keep the gradient of the projected centres."""
        if index < self.config.refine_stop and meta["means2d"].requires_grad:
            meta["means2d"].retain_grad()

    @torch.no_grad()
    def after_step(
        self, optimizer: GaussianOptimizer, meta: dict[str, Any], index: int, generator: torch.Generator
    ) -> Changes:
        """Add the step to the statistics; refine and reset when their steps have come."""
        config, changes = self.config, Changes()
        if index >= config.refine_stop:
            self._statistics = {}
            return changes
        self._observe(meta, len(optimizer), optimizer.device)
        if (
            index > config.refine_start
            and index % config.refine_every == 0
            and index % config.reset_every >= config.pause_refine_after_reset
        ):
            changes = self._grow(optimizer, index, generator)
            changes.pruned = self._prune(optimizer, index)
            self._statistics = {}
        if index > 0 and index % config.reset_every == 0:
            most = _logit(2 * config.prune_opa)
            optimizer.overwrite("opacities", optimizer.params["opacities"].detach().clamp(max=most))
        return changes

    def state(self) -> dict[str, Tensor]:
        """The statistics since the last refinement."""
        return dict(self._statistics)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from statistics that `state` gave."""
        self._statistics = {name: value.clone() for name, value in state.items()}

    def _observe(self, meta: dict[str, Any], n: int, device: torch.device) -> None:
        names = ("grad2d", "count", "radii") if self.config.refine_scale2d_stop > 0 else ("grad2d", "count")
        if not self._statistics:
            self._statistics = {name: torch.zeros(n, device=device) for name in names}
        means2d = meta["means2d"]  # [C, N, 2]
        if means2d.grad is None:  # there is nothing, or nothing that reaches the loss
            return
        grad = means2d.absgrad if self.config.absgrad else means2d.grad
        width, height, cameras = meta["width"], meta["height"], meta["n_cameras"]
        half_image = grad.new_tensor([width / 2 * cameras, height / 2 * cameras])
        visible = (meta["radii"] > 0).all(-1)  # [C, N]
        norm = torch.linalg.vector_norm(grad * half_image, dim=-1)  # [C, N]
        self._statistics["grad2d"] += torch.where(visible, norm, 0.0).sum(0)
        self._statistics["count"] += visible.sum(0)
        if "radii" in self._statistics:
            widest = torch.where(visible, meta["radii"].amax(-1), 0).amax(0) / max(width, height)  # [N], in images
            self._statistics["radii"] = torch.maximum(self._statistics["radii"], widest)

    def _grow(self, optimizer: GaussianOptimizer, index: int, generator: torch.Generator) -> Changes:
        config, statistics = self.config, self._statistics
        grad = statistics["grad2d"] / statistics["count"].clamp_min(1)  # [N]
        high = grad > config.grow_grad2d
        small = _largest_scale(optimizer) <= config.grow_scale3d * self.scene_scale
        duplicate, split = high & small, high & ~small
        if index < config.refine_scale2d_stop:
            split |= statistics["radii"] > config.grow_scale2d
        if config.max_gaussians is not None:
            growth = duplicate.long() + split.long()  # a Gaussian that is both leaves three
            allowed = _affordable(grad, growth, config.max_gaussians - len(optimizer))
            duplicate, split = duplicate & allowed, split & allowed

        (rest,), (twins,), (parents,) = torch.where(~split), torch.where(duplicate), torch.where(split)
        if len(twins) or len(parents):
            order = torch.cat([rest, twins, parents, parents])
            optimizer.rearrange(order, kept=len(rest))
            self._statistics = {name: value[order] for name, value in statistics.items()}
            self._move_apart(optimizer, len(parents), generator)
        return Changes(split=len(parents), duplicated=len(twins))

    def _move_apart(self, optimizer: GaussianOptimizer, pairs: int, generator: torch.Generator) -> None:
        """Draw the last 2 * pairs Gaussians from their parents' distributions and shrink them."""
        first = len(optimizer) - 2 * pairs
        means, quats, scales = (optimizer.params[name].data[first:] for name in ("means", "quats", "scales"))
        draws = torch.randn(2 * pairs, 3, generator=generator).to(means.device)
        means += _rotate(quats, scales.exp() * draws)
        scales -= math.log(_SPLIT_SHRINK)
        if self.config.revised_opacity:
            opacities = optimizer.params["opacities"].data[first:]
            opacities.copy_(torch.logit(1 - torch.sqrt(1 - torch.sigmoid(opacities))))

    def _prune(self, optimizer: GaussianOptimizer, index: int) -> int:
        config = self.config
        unwanted = torch.sigmoid(optimizer.params["opacities"].detach()) < config.prune_opa  # [N]
        if index > config.reset_every:
            unwanted |= _largest_scale(optimizer) > config.prune_scale3d * self.scene_scale
            if index < config.refine_scale2d_stop:
                unwanted |= self._statistics["radii"] > config.prune_scale2d
        (kept,) = torch.where(~unwanted)
        pruned = len(unwanted) - len(kept)
        if pruned:
            optimizer.rearrange(kept, kept=len(kept))
        return pruned


def _largest_scale(optimizer: GaussianOptimizer) -> Tensor:
    """The largest standard deviation of each Gaussian in world units, [N]."""
    return optimizer.params["scales"].detach().amax(-1).exp()


def _affordable(priority: Tensor, cost: Tensor, budget: int) -> Tensor:
    """Mask [N] of the items whose costs [N] fit into the budget when they are taken by falling priority [N]."""
    taken_first = torch.sort(torch.where(cost > 0, priority, -math.inf), descending=True, stable=True).indices
    mask = torch.zeros_like(cost, dtype=torch.bool)
    mask[taken_first] = cost[taken_first].cumsum(0) <= budget
    return mask


def _rotate(quats: Tensor, vectors: Tensor) -> Tensor:
    """Vectors [M, 3] rotated by quaternions wxyz [M, 4], which need not be unit."""
    unit = torch.nn.functional.normalize(quats, dim=-1)
    w, axis = unit[:, :1], unit[:, 1:]
    twice = 2 * torch.linalg.cross(axis, vectors)
    return vectors + w * twice + torch.linalg.cross(axis, twice)


def _logit(probability: float) -> float:
    return math.log(probability / (1 - probability))
