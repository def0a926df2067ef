"""Rasterization of projected Gaussians: checks, dispatch, and the autograd rule of the kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lanewise.errors import InputError, UnsupportedError
from lanewise.splat._backend import Backend, check_positive, check_tensor, resolve_backend
from lanewise.splat._operator import operator, zeros_for_none
from lanewise.splat.rasterize import reference
from lanewise.splat.rasterize.lists import CHANNELS, RECORD, KernelLists


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
        deterministic: the same bits in every run; None asks torch.are_deterministic_algorithms_enabled(). The CPU
            kernels and the reference always are; Triton's then store a record a pair and sum them in order.
        backend: "auto", "reference", "cpu" or "triton".

    Returns:
        colors [..., H, W, D] and alphas [..., H, W, 1], both differentiable.

    Raises:
        InputError: a shape, dtype or device that does not fit.
        UnsupportedError: absgrad with more than four channels on a GPU.
    """
    _check(means2d, conics, colors, opacities, width, height, tile_size, isect_offsets, flatten_ids, backgrounds, masks)
    leading, tiles = means2d.shape[:-2], isect_offsets.shape[-2:]
    images, N, D = leading.numel(), means2d.shape[-2], colors.shape[-1]
    rest = (
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
    chosen = resolve_backend(backend, means2d)
    if chosen == "reference":
        if absgrad:
            raise InputError(
                "absgrad",
                got="True with the reference",
                expected="a backend with kernels",
                why="autograd only sees the sum over the pixels",
                fix="backend='cpu' or absgrad=False",
            )
        out, transmittance, _ = reference.rasterize(means2d.reshape(images * N, 2), *rest)
    else:
        if chosen == "triton" and absgrad and D > CHANNELS:
            raise UnsupportedError(
                f"absgrad=True with {D} channels on a GPU",
                why=f"channels are composited {CHANNELS} at a time, and absolute values do not add up over them",
                fix=f"absgrad=False, or at most {CHANNELS} channels",
            )
        if absgrad and torch.compiler.is_compiling():
            raise UnsupportedError(
                "absgrad=True under torch.compile", why="the compiler drops attributes of tensors", fix="render eagerly"
            )
        if deterministic is None:
            deterministic = torch.are_deterministic_algorithms_enabled()
        out, transmittance, _, _ = composite(means2d, *rest, absgrad, deterministic, chosen)
    out = out.reshape(*leading, height, width, D)
    transmittance = transmittance.reshape(*leading, height, width, 1)
    if backgrounds is not None:
        out = out + transmittance * backgrounds[..., None, None, :]
    return out, 1 - transmittance


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
    if isect_offsets.dtype != torch.int32 or isect_offsets.device != means2d.device:
        got = f"{isect_offsets.dtype} on {isect_offsets.device}"
        raise InputError("isect_offsets", got=got, expected=f"torch.int32 on {means2d.device}")
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
    if masks is not None and (masks.shape != tiles or masks.dtype != torch.bool):
        raise InputError("masks", got=f"{masks.dtype} {list(masks.shape)}", expected=f"torch.bool {list(tiles)}")


def _forward(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
    width: int,
    height: int,
    tile_size: int,
    isect_offsets: Tensor,
    flatten_ids: Tensor,
    masks: Tensor | None,
    absgrad: bool,
    deterministic: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """colors [I, H, W, D], transmittance and last_ids [I, H, W], and Triton's records (else empty), of means2d [...,
    N, 2] and flat conics, colors, opacities [I * N, ...]."""
    if backend == "triton":
        from lanewise.splat.rasterize import launch

        return launch.forward(
            means2d, conics, colors, opacities, width, height, tile_size, isect_offsets, flatten_ids, masks
        )
    from lanewise.splat.rasterize import cpu

    images = isect_offsets.shape[0]
    out = means2d.new_empty(images, height, width, colors.shape[-1])
    transmittance = means2d.new_empty(images, height, width)
    last_ids = means2d.new_empty((images, height, width), dtype=torch.int32)
    lists = KernelLists(means2d, conics, opacities, tile_size, isect_offsets, flatten_ids, masks)
    cpu.forward(
        *lists.gaussians(colors), *lists.tiles(), *(x.numpy() for x in (out, transmittance, last_ids))
    )  # fmt: skip
    return out, transmittance, last_ids, means2d.new_empty(0)


def _fake_forward(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
    width: int,
    height: int,
    tile_size: int,
    isect_offsets: Tensor,
    flatten_ids: Tensor,
    masks: Tensor | None,
    absgrad: bool,
    deterministic: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    shape = (isect_offsets.shape[0], height, width)
    return (
        means2d.new_empty(*shape, colors.shape[-1]),
        means2d.new_empty(shape),
        means2d.new_empty(shape, dtype=torch.int32),
        means2d.new_empty((conics.shape[0], RECORD) if backend == "triton" else (0,)),
    )


def _gradients(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
    tile_size: int,
    isect_offsets: Tensor,
    flatten_ids: Tensor,
    masks: Tensor | None,
    absgrad: bool,
    deterministic: bool,
    backend: str,
    transmittance: Tensor,
    last_ids: Tensor,
    records: Tensor,
    v_colors: Tensor,
    v_transmittance: Tensor,
) -> Tensor:
    """Gradients by Gaussian, [I * N, D + 6 (+ 2)]: colours, opacity, conic (3), mean (2), with absgrad the mean's
    absolute sums (2)."""
    if backend == "triton":
        from lanewise.splat.rasterize import launch

        return launch.backward(
            means2d, conics, colors, opacities, tile_size, isect_offsets, flatten_ids, absgrad, deterministic,
            transmittance, last_ids, records, v_colors, v_transmittance,
        )  # fmt: skip
    from lanewise.splat.rasterize import cpu

    lists = KernelLists(means2d, conics, opacities, tile_size, isect_offsets, flatten_ids, masks)
    columns = colors.shape[-1] + (8 if absgrad else 6)
    grads = means2d.new_empty(flatten_ids.numel(), columns)
    images = [x.contiguous().numpy() for x in (transmittance, last_ids, v_colors, v_transmittance)]
    cpu.backward(*lists.gaussians(colors), *lists.tiles(), *images, absgrad, grads.numpy())
    out = means2d.new_zeros(conics.shape[0], columns)
    cpu.sum_by_gaussian(torch.get_num_threads(), flatten_ids.numpy(), grads.numpy(), out.numpy())
    return out


def _fake_gradients(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
    tile_size: int,
    isect_offsets: Tensor,
    flatten_ids: Tensor,
    masks: Tensor | None,
    absgrad: bool,
    deterministic: bool,
    backend: str,
    transmittance: Tensor,
    last_ids: Tensor,
    records: Tensor,
    v_colors: Tensor,
    v_transmittance: Tensor,
) -> Tensor:
    return means2d.new_empty(conics.shape[0], colors.shape[-1] + (8 if absgrad else 6))


def _save_for_backward(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    (
        means2d,
        conics,
        colors,
        opacities,
        _,
        _,
        tile_size,
        isect_offsets,
        flatten_ids,
        masks,
        absgrad,
        deterministic,
        backend,
    ) = inputs
    _, transmittance, last_ids, records = output
    ctx.save_for_backward(
        means2d, conics, colors, opacities, isect_offsets, flatten_ids, masks, transmittance, last_ids, records
    )
    ctx.tile_size, ctx.how = tile_size, (absgrad, deterministic, backend)


def _backward_by(gradients: Callable[..., Tensor]) -> Callable[..., tuple]:
    """The backward rule, with the registered operator or the plain function that computes the gradients."""

    def backward(ctx: Any, v_colors: Tensor | None, v_transmittance: Tensor | None, *_: Tensor | None) -> tuple:
        means2d, conics, colors, opacities, isect_offsets, flatten_ids, masks, *image = ctx.saved_tensors
        v_colors = zeros_for_none(v_colors, (*image[0].shape, colors.shape[-1]), means2d)
        v_transmittance = zeros_for_none(v_transmittance, image[0].shape, means2d)
        grads = gradients(
            means2d, conics, colors, opacities, ctx.tile_size, isect_offsets, flatten_ids, masks, *ctx.how,
            *image, v_colors, v_transmittance,
        )  # fmt: skip
        D = colors.shape[-1]
        if ctx.how[0]:
            means2d.absgrad = grads[:, D + 6 :].reshape(means2d.shape).clone()  # not a view that keeps all of grads
        v_means2d = grads[:, D + 4 : D + 6].reshape(means2d.shape)
        return v_means2d, grads[:, D + 1 : D + 4], grads[:, :D], grads[:, D], *[None] * 9

    return backward


_custom = torch.library.custom_op("lanewise::rasterize", _forward, mutates_args=())
_custom_gradients = torch.library.custom_op("lanewise::rasterize_backward", _gradients, mutates_args=())
_custom.register_fake(_fake_forward)
_custom_gradients.register_fake(_fake_gradients)
_custom.register_autograd(_backward_by(_custom_gradients), setup_context=_save_for_backward)
composite = operator(_custom, _forward, _save_for_backward, _backward_by(_gradients))
