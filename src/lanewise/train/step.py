"""One training step, on the device alone: nothing in it waits for a number, so that it can be captured into a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lanewise.train.config import TrainConfig
from lanewise.train.lists import Capacity
from lanewise.train.optimizer import NAMES, GaussianOptimizer
from lanewise.train.photometric import photometric_loss
from lanewise.train.photos import Photos, Size
from lanewise.train.probe import Shot
from lanewise.train.render import Rasterizer
from lanewise.train.strategy import Strategy
from lanewise.train.watching import TrainingWatch

OVERFLOW, DIVERGED, WARM_UP = 1, 2, 3  # why steps are skipped
_PADDED = 4  # words a parameter's two coefficients take: addresses are then multiples of 16 bytes


@dataclass(frozen=True)
class Kind:
    """What steps of one kind have in common: all that decides which kernels run on which sizes.

    Attributes:
        size: height and width of the photographs.
        sh_degree: of the harmonics.
        watched: whether the strategy gathers statistics.
        capacity: of the lists of Gaussians, and of the coarse lists that they are made from; None: as long as they
            need to be.
    """

    size: Size
    sh_degree: int
    watched: bool
    capacity: Capacity | None = None


@dataclass(frozen=True)
class Picture:
    """What a step saw: its rendering and its photographs [B, H, W, 3], and the mask [B, H, W] or None."""

    render: Tensor
    target: Tensor
    mask: Tensor | None


@dataclass(frozen=True)
class Orders:
    """What differs between the steps of a kind: one row of the table.

    Attributes:
        coefficients: Adam's, [6, 2] float32.
        backgrounds: [B, 3] float32.
        views, slots: numbers of the photographs and where they are, [B] int32.
    """

    coefficients: Tensor
    backgrounds: Tensor
    views: Tensor
    slots: Tensor


class Controls:
    """Device memory that steers the steps, so that a graph can be replayed without a word from the host.

    The host writes the orders of a flight as a table; every step takes the next row. A step that must not count (its
    lists did not fit, its loss is not finite) raises `skip`, and from then on no step changes anything until the host
    has taken notice: `done` says how far the run has come.

    Args:
        batch: photographs a step.
        rows: most steps of a flight.
        device: where the steps run.

    Attributes:
        skip: int32 [1], 0 or why steps are skipped.
        done: int64 [1], steps completed.
        needed: int64 [2], most entries of the lists and of the coarse lists that a step has needed since this was 0.
        loss: float32 [1], of the last step.
    """

    def __init__(self, batch: int, rows: int, device: torch.device) -> None:
        self.batch = batch
        self._words = _PADDED * len(NAMES) + 5 * batch
        self._table = torch.zeros(rows, self._words, dtype=torch.int32, device=device)
        self._row = torch.zeros(1, dtype=torch.int64, device=device)
        self.skip = torch.zeros(1, dtype=torch.int32, device=device)
        self.done = torch.zeros(1, dtype=torch.int64, device=device)
        self.needed = torch.zeros(2, dtype=torch.int64, device=device)
        self.loss = torch.zeros(1, device=device)
        self._fine = torch.zeros(1, dtype=torch.int32, device=device)
        # The host writes one while the other may be on its way: two flights are in the air at most.
        pinned = device.type == "cuda"
        self._host = [torch.zeros(rows, self._words, dtype=torch.int32, pin_memory=pinned) for _ in range(2)]

    def write(self, rows: Sequence[tuple[Sequence[float], Tensor, Sequence[int], Sequence[int]]]) -> None:
        """Give the orders of the steps to come: coefficients [12], backgrounds [B, 3], views [B], slots [B] each."""
        self._host.reverse()
        table = self._host[0][: len(rows)]
        orders = self._parts(table)
        orders.coefficients.copy_(
            torch.tensor([row[0] for row in rows], dtype=torch.float64).reshape(-1, len(NAMES), 2)
        )
        orders.backgrounds.copy_(torch.stack([row[1] for row in rows]))
        orders.views.copy_(torch.tensor([row[2] for row in rows]))
        orders.slots.copy_(torch.tensor([row[3] for row in rows]))
        self._table[: len(rows)].copy_(table, non_blocking=True)
        self._row.zero_()

    def next(self) -> Orders:
        """The orders of the present step; every step calls it once."""
        row = self._table.index_select(0, self._row)
        self._row += 1
        parts = self._parts(row)
        return Orders(parts.coefficients[0], parts.backgrounds[0], parts.views[0], parts.slots[0])

    def judge(self, loss: Tensor, meta: dict[str, Any]) -> None:
        """Raise `skip` where the step must not count."""
        verdict = self._fine.masked_fill(torch.isfinite(loss).logical_not(), DIVERGED)
        if "overflow" in meta:
            verdict = verdict.masked_fill(meta["overflow"], OVERFLOW)
            torch.maximum(self.needed, torch.stack([meta["n_isects"], meta["n_coarse"]]), out=self.needed)
        self.skip.copy_(torch.where(self.skip == 0, verdict, self.skip))
        self.loss.copy_(loss)

    def count(self) -> None:
        """The step is complete."""
        self.done += self.skip == 0

    def _parts(self, table: Tensor) -> Orders:
        """Views of rows [R, words] of the table, by their meaning."""
        B, split = self.batch, _PADDED * len(NAMES)
        floats = table.view(torch.float32)
        return Orders(
            floats[:, :split].unflatten(1, (len(NAMES), _PADDED))[..., :2],
            floats[:, split : split + 3 * B].unflatten(1, (B, 3)),
            table[:, split + 3 * B : split + 4 * B],
            table[:, split + 4 * B :],
        )


class TrainingStep:
    """Render, compare, differentiate, update, and gather statistics.

    What it returns and changes depends on the kind of step and on device memory alone (but for the CPU's optimizer,
    which takes the number of the step from the host).
    """

    def __init__(
        self,
        config: TrainConfig,
        photos: Photos,
        optimizer: GaussianOptimizer,
        strategy: Strategy,
        renderer: Rasterizer,
        controls: Controls,
    ) -> None:
        self.config, self.photos, self.optimizer, self.strategy = config, photos, optimizer, strategy
        self.renderer, self.controls = renderer, controls

    def __call__(self, index: int, kind: Kind, watch: TrainingWatch | None = None) -> Picture:
        """Take a step of this kind, which is number `index`; under the eyes of `watch`, not to be captured."""
        config, controls = self.config, self.controls
        orders = controls.next()
        batch = self.photos.batch(kind.size, orders.views, orders.slots)
        height, width = kind.size
        lists = {} if kind.capacity is None else {"isect_capacity": kind.capacity}
        colors, _, meta = self.renderer(
            self.optimizer.params,
            batch.viewmats,
            batch.Ks,
            width,
            height,
            sh_degree=kind.sh_degree,
            backgrounds=orders.backgrounds,
            **lists,
        )
        loss = photometric_loss(colors, batch.rgb, batch.mask, ssim_weight=config.ssim_weight, backend=config.backend)
        controls.judge(loss.detach(), meta)
        gradients = self._gradients(loss, meta, kind.watched)
        if watch is not None:
            camera = batch.viewmats[:1], batch.Ks[:1], orders.backgrounds[:1]
            fits = controls.skip[0] != OVERFLOW
            watch.before(index, gradients, fits, lambda: Shot(*camera, width, height, kind.sh_degree))
        self._update(index, gradients, orders, meta)
        if watch is not None:
            watch.after()
        if kind.watched:
            v_means2d = gradients.get("means2d")
            if v_means2d is not None and config.absgrad:
                v_means2d = meta["means2d"].absgrad
            self.strategy.observe(v_means2d, meta, controls.skip)
        controls.count()
        return Picture(colors.detach(), batch.rgb, batch.mask)

    def _gradients(self, loss: Tensor, meta: dict[str, Any], watched: bool) -> dict[str, Tensor]:
        """Of the parameters and of means2d, by name, where the loss depends on them."""
        if not loss.requires_grad:  # no Gaussian is left
            return {}
        inputs = {**self.optimizer.params, **({"means2d": meta["means2d"]} if watched else {})}
        found = torch.autograd.grad(loss, list(inputs.values()), allow_unused=True)
        return {name: gradient for name, gradient in zip(inputs, found, strict=True) if gradient is not None}

    def _update(self, index: int, gradients: dict[str, Tensor], orders: Orders, meta: dict[str, Any]) -> None:
        optimizer, skip = self.optimizer, self.controls.skip
        if optimizer.on_device:
            visible = (meta["radii"] > 0).all(-1).any(0) if self.config.selective_adam else None  # [N]
            optimizer.update(gradients, orders.coefficients, visible=visible, skip=skip)
        elif not skip.item():  # on the CPU looking costs nothing
            for name, gradient in gradients.items():
                if name in optimizer.params:
                    optimizer.params[name].grad = gradient.contiguous()  # torch's kernel takes no other layout
            optimizer.step(index)
