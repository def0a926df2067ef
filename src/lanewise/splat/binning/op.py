"""Tile lists: checks and dispatch."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from lanewise.errors import InputError
from lanewise.splat._backend import Backend, check_positive, check_tensor, resolve_backend
from lanewise.splat.binning import reference
from lanewise.splat.binning.reference import TileLists

DEFAULT_TILE_SIZE = 16  # the CPU's long vectors like it


def bin_gaussians(
    means2d: Tensor,
    radii: Tensor,
    depths: Tensor,
    conics: Tensor,
    opacities: Tensor,
    *,
    tile_size: int | None = None,
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
        tile_size: edge of a tile in pixels; None: 16 on the CPU, 8 on a GPU.
        width: of the image in pixels.
        height: of the image in pixels.
        backend: "auto", "reference", "cpu" or "triton".

    Returns:
        `TileLists`: tiles_per_gauss [..., N], flatten_ids [n_isects], isect_offsets [..., tile_height, tile_width],
        tile_size.

    Raises:
        InputError: a shape, dtype or device that does not fit.
    """
    check_tensor("depths", depths, (*depths.shape[:-1], "N"))
    leading, N = depths.shape[:-1], depths.shape[-1]
    check_tensor("means2d", means2d, (*leading, N, 2), depths)
    check_tensor("conics", conics, (*leading, N, 3), depths)
    check_tensor("opacities", opacities, (*leading, N), depths)
    if radii.shape != (*leading, N, 2) or radii.dtype != torch.int32 or radii.device != depths.device:
        got = f"{radii.dtype} {list(radii.shape)} on {radii.device}"
        raise InputError("radii", got=got, expected=f"torch.int32 {[*leading, N, 2]} on {depths.device}")
    if tile_size is not None:
        check_positive("tile_size", tile_size, largest=1024)
    check_positive("width", width)
    check_positive("height", height)
    pairs = (1, leading.numel(), N)
    lists = lists_of(
        means2d.detach().reshape(*pairs, 2),
        radii.reshape(*pairs, 2),
        depths.detach().reshape(pairs),
        conics.detach().reshape(*pairs, 3),
        opacities.detach().reshape(pairs),
        tile_size,
        width,
        height,
        resolve_backend(backend, depths),
    )
    return lists._replace(
        tiles_per_gauss=lists.tiles_per_gauss.view(depths.shape),
        isect_offsets=lists.isect_offsets.view(*leading, *lists.isect_offsets.shape[-2:]),
    )


def lists_of(
    means2d: Tensor,
    radii: Tensor,
    depths: Tensor,
    conics: Tensor,
    opacities: Tensor,
    tile_size: int | None,
    width: int,
    height: int,
    backend: Literal["reference", "cpu", "triton"],
    capacity: tuple[int, int] | None = None,
) -> TileLists:
    """`bin_gaussians` with arguments that have been checked: means2d and radii [..., C, N, 2], depths [..., C, N],
    conics [..., C, N, 3], opacities [..., C or 1, N]; capacity as of `launch.tile_lists`."""
    if backend == "triton" and not torch.compiler.is_compiling():
        from lanewise.splat.binning import launch

        tile_size = tile_size or launch.TILE_SIZE
        return launch.tile_lists(means2d, radii, depths, conics, opacities, tile_size, width, height, capacity)
    tile_size = tile_size or DEFAULT_TILE_SIZE
    *leading, N = depths.shape
    images = math.prod(leading)
    means2d, conics, depths = means2d.detach(), conics.detach(), depths.detach()
    opacities = opacities.detach().expand(depths.shape).reshape(images, N)
    gaussians = (
        means2d.reshape(images, N, 2),
        radii.reshape(images, N, 2),
        depths.reshape(images, N),
        conics.reshape(images, N, 3),
    )
    make = _lists if backend == "reference" else _custom if torch.compiler.is_compiling() else _forward
    tiles_per_gauss, flatten_ids, offsets = make(*gaussians, opacities, tile_size, width, height, backend)
    offsets = offsets.view(*leading, *offsets.shape[1:])
    return TileLists(tiles_per_gauss.view(*leading, N), flatten_ids, offsets, tile_size)


def _lists(
    means2d: Tensor,
    radii: Tensor,
    depths: Tensor,
    conics: Tensor,
    opacities: Tensor,
    tile_size: int,
    width: int,
    height: int,
    _backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    tiles = (-(-width // tile_size), -(-height // tile_size))
    return reference.tile_lists(means2d, radii, depths, conics, opacities, tile_size, *tiles)[:3]


def _forward(
    means2d: Tensor,
    radii: Tensor,
    depths: Tensor,
    conics: Tensor,
    opacities: Tensor,
    tile_size: int,
    width: int,
    height: int,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    if backend == "triton":
        from lanewise.splat.binning import launch

        gaussians = (x[None] for x in (means2d, radii, depths, conics, opacities))
        lists = launch.tile_lists(*gaussians, tile_size, width, height)
        return lists.tiles_per_gauss[0], lists.flatten_ids, lists.isect_offsets[0].clone()
    from lanewise.splat.binning import cpu  # numba is loaded when it is first needed

    arrays = [x.contiguous().numpy() for x in (means2d, radii, depths, conics, opacities)]
    sizes = {"tile_width": -(-width // tile_size), "tile_height": -(-height // tile_size)}
    a, b, c = map(torch.from_numpy, cpu.tile_lists(*arrays, tile_size=tile_size, **sizes))
    return a, b, c


def _fake_forward(
    means2d: Tensor,
    radii: Tensor,
    depths: Tensor,
    conics: Tensor,
    opacities: Tensor,
    tile_size: int,
    width: int,
    height: int,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    images, N = depths.shape
    n_isects = torch.library.get_ctx().new_dynamic_size()
    return (
        depths.new_empty((images, N), dtype=torch.int32),
        depths.new_empty((n_isects,), dtype=torch.int32),
        depths.new_empty((images, -(-height // tile_size), -(-width // tile_size)), dtype=torch.int32),
    )


_custom = torch.library.custom_op("lanewise::tile_lists", _forward, mutates_args=())
_custom.register_fake(_fake_forward)
