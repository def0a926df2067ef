"""What the kernels decide about every pair of a pixel and a Gaussian, for replaying it in the reference."""

from __future__ import annotations

import torch
from torch import Tensor

from lanewise.splat._backend import Backend, resolve_backend
from lanewise.splat.rasterize.composite import composite
from lanewise.splat.rasterize.lists import KernelLists, list_bounds


def pair_sides(
    means2d: Tensor,
    conics: Tensor,
    opacities: Tensor,
    width: int,
    height: int,
    tile_size: int,
    isect_offsets: Tensor,
    flatten_ids: Tensor,
    masks: Tensor | None = None,
    *,
    backend: Backend = "auto",
) -> Tensor:
    """What the kernels decide about every pair: `reference.SKIPPED`, `COUNTED` or `CAPPED`, [n_isects, tile_size^2]
    int8.

    For replaying a kernel's decisions in the reference, when the two are compared. Arguments as in
    `rasterize_to_pixels`.
    """
    chosen = resolve_backend(backend, means2d)
    images, N = means2d.shape[:-2].numel(), means2d.shape[-2]
    operands = (
        means2d.detach().reshape(1, images, N, 2),
        conics.detach().reshape(1, images, N, 3),
        means2d.new_empty(1, images, N, 0),
        opacities.detach().reshape(1, images, N),
    )
    bounds = list_bounds(isect_offsets, flatten_ids)
    flat_masks = None if masks is None else masks.flatten()
    lists = (width, height, tile_size, bounds, flatten_ids, flat_masks)
    last = composite(*operands, None, None, *lists, False, False, chosen)[3]
    if chosen == "triton":
        from lanewise.splat.rasterize import launch

        return launch.pair_sides(operands[0], operands[1], operands[3], launch.Lists(*lists), last)
    from lanewise.splat.rasterize import cpu

    flat = (operands[1].reshape(-1, 3), operands[3].reshape(-1))
    kernel = KernelLists(operands[0], *flat, *lists[2:], -(-width // tile_size))
    sides = flatten_ids.new_empty((flatten_ids.numel(), tile_size**2), dtype=torch.int8)
    cpu.pair_sides(
        kernel.means2d,
        kernel.squares,
        kernel.opacities,
        kernel.heights,
        kernel.offsets.numpy(),
        kernel.flatten_ids,
        tile_size,
        kernel.tile_width,
        last.numpy(),
        sides.numpy(),
    )
    return sides
