"""Rasterization of projected Gaussians: checks and dispatch."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from lanewise.errors import InputError, UnsupportedError
from lanewise.splat._backend import Backend, check_positive, check_tensor, resolve_backend
from lanewise.splat.rasterize import reference
from lanewise.splat.rasterize.composite import composite
from lanewise.splat.rasterize.lists import list_bounds


def rasterize_to_pixels(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
    width: int,
    height: int,
    tile_size: int,
    isect_offsets: Tensor,
    flatten_ids: Tensor,
    backgrounds: Tensor | None = None,
    masks: Tensor | None = None,
    absgrad: bool = False,
    *,
    deterministic: bool | None = None,
    backend: Backend = "auto",
) -> tuple[Tensor, Tensor]:
    """Composite projected Gaussians front to back.

    Args:
        means2d: [..., N, 2] pixels; the leading dimensions are the images. With `absgrad` the backward pass sets its
            attribute `.absgrad`.
        conics: [..., N, 3] upper triangle of the inverse 2-D covariance, 1/pixel^2.
        colors: [..., N, D], any number of channels.
        opacities: [..., N].
        width: of the image in pixels.
        height: of the image in pixels.
        tile_size: edge of a tile in pixels, that of the lists.
        isect_offsets: [..., tile_height, tile_width] int32, where each tile's list begins.
        flatten_ids: [n_isects] int32, image * N + Gaussian. The CPU checks that the lists point inside; on a GPU that
            would cost a synchronisation, and lists that do not come from `bin_gaussians` are the caller's risk.
        backgrounds: [..., D], seen through what transmittance is left.
        masks: [..., tile_height, tile_width] bool; tiles that are False show the background alone.
        absgrad: also sum the absolute values of the pixels' gradients (AbsGS, Ye et al. 2024), into `means2d.absgrad`
            [..., N, 2].
        deterministic: the same bits in every run. The CPU kernels and the reference always are; Triton's then store a
            record a pair and sum them in order. None: where torch.are_deterministic_algorithms_enabled(), and on
            targets where Triton has no atomic additions of floats and that is faster (`target.float_atomics`).
        backend: "auto", "reference", "cpu" or "triton".

    Returns:
        colors [..., H, W, D] and alphas [..., H, W, 1], both differentiable.

    Raises:
        InputError: a shape, dtype or device that does not fit.
        UnsupportedError: absgrad under torch.compile.
    """
    _check(means2d, conics, colors, opacities, width, height, tile_size, isect_offsets, flatten_ids, backgrounds, masks)
    leading, tiles = means2d.shape[:-2], isect_offsets.shape[-2:]
    images, N, D = leading.numel(), means2d.shape[-2], colors.shape[-1]
    chosen = resolve_backend(backend, means2d)
    if chosen != "reference":
        # As images of one batch; means2d stays the tensor that the caller knows, for its `.absgrad`.
        bounds = list_bounds(isect_offsets, flatten_ids)
        return rasterize_lists(
            means2d,
            conics.reshape(1, images, N, 3),
            colors.reshape(1, images, N, D),
            opacities.reshape(1, images, N),
            width,
            height,
            tile_size,
            bounds,
            flatten_ids,
            None if backgrounds is None else backgrounds.reshape(images, D),
            masks,
            absgrad,
            deterministic,
            chosen,
            leading,
        )
    if absgrad:
        raise InputError(
            "absgrad",
            got="True with the reference",
            expected="a backend with kernels",
            why="autograd only sees the sum over the pixels",
            fix="backend='cpu' or absgrad=False",
        )
    out, transmittance, _ = reference.rasterize(
        means2d.reshape(images * N, 2),
        conics.reshape(images * N, 3),
        colors.reshape(images * N, D),
        opacities.reshape(images * N),
        width,
        height,
        tile_size,
        isect_offsets.reshape(images, *tiles),
        flatten_ids,
        None if masks is None else masks.reshape(images, *tiles),
    )
    out = out.reshape(*leading, height, width, D)
    transmittance = transmittance.reshape(*leading, height, width, 1)
    if backgrounds is not None:
        out = out + transmittance * backgrounds[..., None, None, :]
    return out, 1 - transmittance


def rasterize_lists(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
    width: int,
    height: int,
    tile_size: int,
    bounds: Tensor,
    flatten_ids: Tensor,
    backgrounds: Tensor | None,
    masks: Tensor | None,
    absgrad: bool,
    deterministic: bool | None,
    backend: Literal["cpu", "triton"],
    leading: torch.Size,
    records: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`rasterize_to_pixels` by kernels, with arguments that have been checked: bounds [tiles of all images + 1], and
    conics [..., C, N, 3]; colors [..., C or 1, N, D] and opacities [..., C or 1, N] may be shared by the cameras;
    records are Triton's, where there are some already."""
    if absgrad and torch.compiler.is_compiling():
        raise UnsupportedError(
            "absgrad=True under torch.compile", why="the compiler drops attributes of tensors", fix="render eagerly"
        )
    if deterministic is None and torch.are_deterministic_algorithms_enabled():
        deterministic = True
    out, alphas, *_ = composite(
        means2d, conics, colors, opacities, backgrounds, records, width, height, tile_size, bounds, flatten_ids,
        None if masks is None else masks.flatten(), absgrad, deterministic, backend,
    )  # fmt: skip
    shape = (*leading, height, width)
    return out.view(*shape, out.shape[-1]), alphas.view(*shape, 1)


def _check(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
    width: int,
    height: int,
    tile_size: int,
    isect_offsets: Tensor,
    flatten_ids: Tensor,
    backgrounds: Tensor | None,
    masks: Tensor | None,
) -> None:
    check_tensor("means2d", means2d, (*means2d.shape[:-2], "N", 2))
    leading, N = means2d.shape[:-2], means2d.shape[-2]
    check_tensor("conics", conics, (*leading, N, 3), means2d)
    check_tensor("colors", colors, (*leading, N, "D"), means2d)
    check_tensor("opacities", opacities, (*leading, N), means2d)
    for name, value in (("width", width), ("height", height)):
        check_positive(name, value)
    check_positive("tile_size", tile_size, largest=1024)
    tiles = (*leading, -(-height // tile_size), -(-width // tile_size))
    if isect_offsets.dtype not in (torch.int32, torch.int64) or isect_offsets.device != means2d.device:
        got = f"{isect_offsets.dtype} on {isect_offsets.device}"
        raise InputError("isect_offsets", got=got, expected=f"torch.int32 or torch.int64 on {means2d.device}")
    if isect_offsets.shape != tiles:
        raise InputError(
            "isect_offsets",
            got=f"shape {list(isect_offsets.shape)}",
            expected=f"[..., tile_height, tile_width] = {list(tiles)}",
            fix="use the tile_size, width and height that the lists were made with",
        )
    if flatten_ids.dim() != 1 or flatten_ids.dtype != torch.int32 or flatten_ids.device != means2d.device:
        got = f"{flatten_ids.dtype} {list(flatten_ids.shape)} on {flatten_ids.device}"
        raise InputError("flatten_ids", got=got, expected=f"torch.int32 [n_isects] on {means2d.device}")
    if colors.shape[-1] == 0:
        raise InputError("colors", got="0 channels", expected="at least one")
    if backgrounds is not None:
        check_tensor("backgrounds", backgrounds, (*leading, colors.shape[-1]), means2d)
    if masks is not None:
        check_masks("masks", masks, tiles)


def check_masks(name: str, masks: Tensor, tiles: tuple[int, ...]) -> None:
    """Raise an InputError unless `masks` is a bool tensor of this shape."""
    if masks.shape != tiles or masks.dtype != torch.bool:
        raise InputError(name, got=f"{masks.dtype} {list(masks.shape)}", expected=f"torch.bool {list(tiles)}")
