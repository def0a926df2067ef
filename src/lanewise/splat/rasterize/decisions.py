"""What the kernels decide about every pair of a pixel and a Gaussian, for replaying it in the reference."""

from __future__ import annotations

import torch
from torch import Tensor

from lanewise.splat._backend import Backend, resolve_backend
from lanewise.splat.rasterize.lists import KernelLists
from lanewise.splat.rasterize.op import composite


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
    flat_conics, flat_opacities = conics.reshape(images * N, 3), opacities.reshape(images * N)
    offsets = isect_offsets.reshape(images, *isect_offsets.shape[-2:])
    flat_masks = None if masks is None else masks.reshape(offsets.shape)
    no_colors = means2d.new_empty(images * N, 0)
    lists = (tile_size, offsets, flatten_ids, flat_masks)
    _, _, last_ids, _ = composite(
        means2d, flat_conics, no_colors, flat_opacities, width, height, *lists, False, False, chosen
    )
    if chosen == "triton":
        from lanewise.splat.rasterize import launch

        return launch.pair_sides(means2d, flat_conics, no_colors, flat_opacities, *lists[:3], last_ids)
    from lanewise.splat.rasterize import cpu

    kernel = KernelLists(means2d, flat_conics, flat_opacities, *lists)
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
        last_ids.numpy(),
        sides.numpy(),
    )
    return sides
