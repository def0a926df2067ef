"""The wavefront incident's three causes, each planted alone into the backward pass of Lanewise's CPU kernels.

The library of the report was written for wavefronts of 64 lanes and ran on hardware with 32. Which threads that loses
is a matter of counting, and a backward pass is linear in what comes in from above: what the lost lanes would have
contributed is exactly what is missing when their share of the incoming gradient is erased. So the forward pass, the
kernels and float64 stay as they are, and a fault is a hook between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lanewise.splat import project_gaussians, rasterization
from lanewise.splat.projection.reference import Projected
from lanewise.train.render import Rasterizer

HALF_WAVE = 32  # lanes that the hardware has, of the 64 that the code counts on

Plant = Callable[
    [Tensor, Tensor, Tensor], None
]  # into the graph of colors and alphas [C, H, W, ...] and means2d [C, N, 2]


@dataclass(frozen=True)
class Cause:
    """One of the incident's causes.

    Attributes:
        name: short name.
        title: what is wrong, in a line.
        place: the operator whose backward pass has it.
        plant: puts it into the graph of a rendering.
    """

    name: str
    title: str
    place: str
    plant: Plant


def second_halves(height: int, width: int, tile_size: int) -> Tensor:
    """Pixels whose thread is a lane from 32 to 63 of 64, bool [height, width].

    A block of threads renders a tile, one pixel a thread, row by row.
    """
    y, x = torch.arange(height)[:, None] % tile_size, torch.arange(width)[None] % tile_size
    return (y * tile_size + x) // HALF_WAVE % 2 == 1


def _tile_reduction(colors: Tensor, alphas: Tensor, means2d: Tensor) -> None:
    """`tiled_partition<64>`: the sum over a tile's 256 pixels is taken 64 lanes at a time, and 32 take part."""
    _overwrite(colors, alphas, tile_size=16, value=0.0)


def _single_wave_block(colors: Tensor, alphas: Tensor, means2d: Tensor) -> None:
    """The kernel for blocks of 64 threads: made for a single wave, it reads what its second wave has not written."""
    _overwrite(colors, alphas, tile_size=8, value=float("nan"))


def _overwrite(colors: Tensor, alphas: Tensor, tile_size: int, value: float) -> None:
    lost = second_halves(colors.shape[-3], colors.shape[-2], tile_size)[..., None]
    for tensor in (colors, alphas):
        if tensor.requires_grad:
            tensor.register_hook(lambda grad: grad.masked_fill(lost, value))


def _lane_masks(colors: Tensor, alphas: Tensor, means2d: Tensor) -> None:
    """Lane masks of the projection: threads of odd waves find no lane that leads, and return before they add.

    A thread projects one Gaussian into one camera, camera by camera. Its gradients by the Gaussian and by the camera
    are lost; the gradient by the projected centre, which decides about densification, has been taken before.
    """
    node = means2d.grad_fn
    if node is None:
        return
    threads = torch.arange(means2d.shape[:-1].numel()).view(means2d.shape[:-1])  # [C, N]
    lost = threads // HALF_WAVE % 2 == 1

    def erase(grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        # Of the outputs that are there for each Gaussian and camera: means2d, depths, conics, compensations.
        return tuple(
            g if g is None or g.shape[: lost.dim()] != lost.shape else g.masked_fill(_like(lost, g), 0) for g in grads
        )

    node.register_prehook(erase)


def _like(mask: Tensor, grad: Tensor) -> Tensor:
    return mask.reshape(*mask.shape, *[1] * (grad.dim() - mask.dim()))


CAUSES: tuple[Cause, ...] = (
    Cause("tile", "64-lane sums over a tile's pixels", "rasterization", _tile_reduction),
    Cause("lane-mask", "64-lane masks in the projection", "projection", _lane_masks),
    Cause("block-64", "a kernel for blocks of one 64-lane wave", "rasterization", _single_wave_block),
)
_BY_NAME: Mapping[str, Cause] = {cause.name: cause for cause in CAUSES}


@dataclass(frozen=True)
class BrokenRenderer:
    """A renderer for the trainer whose backward pass has a cause; its pictures are the healthy one's.

    Attributes:
        renderer: the healthy one.
        cause: what is planted; None for nothing.
    """

    renderer: Rasterizer
    cause: Cause | None

    def __call__(
        self, params: Mapping[str, Tensor], viewmats: Tensor, Ks: Tensor, width: int, height: int, **options: Any
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """As `lanewise.train.render.Rasterizer` has it."""
        colors, alphas, meta = self.renderer(params, viewmats, Ks, width, height, **options)
        if self.cause is not None and colors.dtype == torch.float32:
            self.cause.plant(colors, alphas, meta["means2d"])
        return colors, alphas, meta


def broken_rasterization(name: str | None, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """`rasterization` with the cause of this name in its float32 backward pass."""
    colors, alphas, meta = rasterization(*args, **kwargs)
    if name is not None and colors.dtype == torch.float32:
        _BY_NAME[name].plant(colors, alphas, meta["means2d"])
    return colors, alphas, meta


def broken_projection(name: str | None, *args: Any, **kwargs: Any) -> Projected:
    """`project_gaussians` with the cause of this name in its float32 backward pass, where it has one."""
    projected = project_gaussians(*args, **kwargs)
    if name is not None and _BY_NAME[name].place == "projection" and projected.means2d.dtype == torch.float32:
        _BY_NAME[name].plant(projected.depths, projected.depths, projected.means2d)
    return projected
