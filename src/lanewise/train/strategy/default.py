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
from lanewise.train.strategy.statistics import observe

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

    def watches(self, index: int) -> bool:
        """Until densification stops."""
        return index < self.config.refine_stop

    def prepare(self, n: int, device: torch.device) -> None:
        """Zeros after a refinement, else what is there."""
        names = ("grad2d", "count", "radii") if self.config.refine_scale2d_stop > 0 else ("grad2d", "count")
        if not self._statistics:
            self._statistics = {name: torch.zeros(n, device=device) for name in names}

    def observe(self, v_means2d: Tensor | None, meta: Mapping[str, Any], skip: Tensor | None = None) -> None:
        """Add the step's gradients in half images, the cameras that see each Gaussian, and the largest radii."""
        if v_means2d is not None:
            grad2d, count, widest = (self._statistics.get(name) for name in ("grad2d", "count", "radii"))
            assert grad2d is not None  # `prepare` saw to that
            assert count is not None
            observe(v_means2d, meta["radii"], meta["width"], meta["height"], grad2d, count, widest, skip=skip)

    def due(self, index: int) -> bool:
        """Where Gaussians or opacities change, and where the statistics are given up."""
        if not self.watches(index):
            return bool(self._statistics)
        return self._refines(index) or self._resets(index)

    @torch.no_grad()
    def refine(self, optimizer: GaussianOptimizer, index: int, generator: torch.Generator) -> Changes:
        """Grow, prune and reset when their steps have come."""
        config, changes = self.config, Changes()
        if not self.watches(index):
            self._statistics = {}
            return changes
        if self._refines(index):
            changes = self._grow(optimizer, index, generator)
            changes.pruned = self._prune(optimizer, index)
            self._statistics = {}
        if self._resets(index):
            most = _logit(2 * config.prune_opa)
            optimizer.overwrite("opacities", optimizer.params["opacities"].detach().clamp(max=most))
        return changes

    def addresses(self) -> tuple[int, ...]:
        """Of the statistics."""
        return tuple(value.data_ptr() for value in self._statistics.values())

    def state(self) -> dict[str, Tensor]:
        """The statistics since the last refinement."""
        return dict(self._statistics)

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from statistics that `state` gave."""
        self._statistics = {name: value.clone() for name, value in state.items()}

    def _refines(self, index: int) -> bool:
        config = self.config
        return (
            index > config.refine_start
            and index % config.refine_every == 0
            and index % config.reset_every >= config.pause_refine_after_reset
        )

    def _resets(self, index: int) -> bool:
        return index > 0 and index % self.config.reset_every == 0

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
