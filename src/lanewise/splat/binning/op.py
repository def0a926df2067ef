"""Tile lists: checks and dispatch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lanewise.errors import InputError
from lanewise.splat._backend import Backend, check_positive, check_tensor, resolve_backend
from lanewise.splat.binning import reference
from lanewise.splat.binning.reference import TileLists


def bin_gaussians(
    means2d: Tensor,
    radii: Tensor,
    depths: Tensor,
    conics: Tensor,
    opacities: Tensor,
    *,
    tile_size: int,
    width: int,
    height: int,
    backend: Backend = "auto",
) -> TileLists:
    """Front-to-back lists of the Gaussians that may be seen in every tile of every image. Not differentiable.

    Args:
        means2d: [..., N, 2] pixels; the leading dimensions are the images.
        radii: [..., N, 2] int32; a Gaussian is visible where both are positive.
        depths: [..., N]; equal depths keep the order of the Gaussians.
        conics: [..., N, 3] upper triangle of the inverse 2-D covariance, 1/pixel^2.
        opacities: [..., N] as they are shaded.
        tile_size: edge of a tile in pixels.
        width: of the image in pixels.
        height: of the image in pixels.
        backend: "auto", "reference", "cpu" or "triton".

    Returns:
        `TileLists`: tiles_per_gauss [..., N], flatten_ids [n_isects], isect_offsets [..., tile_height,
        tile_width].

    Raises:
        InputError: a shape, dtype or device that does not fit.
    """
    check_tensor("depths", depths, (*depths.shape[:-1], "N"))
    leading, N = depths.shape[:-1], depths.shape[-1]
    check_tensor("means2d", means2d, (*leading, N, 2), depths)
    check_tensor("conics", conics, (*leading, N, 3), depths)
    check_tensor("opacities", opacities, (*leading, N), depths)
    if radii.shape != (*leading, N, 2) or radii.dtype != torch.int32:
        raise InputError("radii", got=f"{radii.dtype} {list(radii.shape)}", expected=f"torch.int32 {[*leading, N, 2]}")
    check_positive("tile_size", tile_size, largest=1024)
    check_positive("width", width)
    check_positive("height", height)
    tile_width, tile_height = -(-width // tile_size), -(-height // tile_size)
    images = leading.numel()
    arguments = (
        means2d.detach().reshape(images, N, 2),
        radii.reshape(images, N, 2),
        depths.detach().reshape(images, N),
        conics.detach().reshape(images, N, 3),
        opacities.detach().reshape(images, N),
        tile_size,
        tile_width,
        tile_height,
    )
    chosen = resolve_backend(backend, depths)
    in_torch = chosen == "reference"
    lists = reference.tile_lists(*arguments) if in_torch else TileLists(*_tile_lists(*arguments, chosen))
    return lists._replace(
        tiles_per_gauss=lists.tiles_per_gauss.reshape(depths.shape),
        isect_offsets=lists.isect_offsets.reshape(*leading, tile_height, tile_width),
    )


def _forward(
    means2d: Tensor,
    radii: Tensor,
    depths: Tensor,
    conics: Tensor,
    opacities: Tensor,
    tile_size: int,
    tile_width: int,
    tile_height: int,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    sizes = {"tile_size": tile_size, "tile_width": tile_width, "tile_height": tile_height}
    if backend == "triton":
        from lanewise.splat.binning import launch

        return launch.tile_lists(means2d, radii, depths, conics, opacities, **sizes)
    from lanewise.splat.binning import cpu  # numba is loaded when it is first needed

    arrays = [x.contiguous().numpy() for x in (means2d, radii, depths, conics, opacities)]
    a, b, c = map(torch.from_numpy, cpu.tile_lists(*arrays, **sizes))
    return a, b, c


def _fake_forward(
    means2d: Tensor,
    radii: Tensor,
    depths: Tensor,
    conics: Tensor,
    opacities: Tensor,
    tile_size: int,
    tile_width: int,
    tile_height: int,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    images, N = depths.shape
    n_isects = torch.library.get_ctx().new_dynamic_size()
    return (
        depths.new_empty((images, N), dtype=torch.int32),
        depths.new_empty((n_isects,), dtype=torch.int32),
        depths.new_empty((images, tile_height, tile_width), dtype=torch.int32),
    )


_custom = torch.library.custom_op("lanewise::tile_lists", _forward, mutates_args=())
_custom.register_fake(_fake_forward)


def _tile_lists(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _custom(*arguments) if torch.compiler.is_compiling() else _forward(*arguments)
