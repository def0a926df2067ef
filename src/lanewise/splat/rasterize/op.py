"""Rasterization of projected Gaussians: checks, dispatch, and the autograd rule of the kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from lanewise.errors import InputError, UnsupportedError
from lanewise.splat._backend import Backend, check_positive, check_tensor, resolve_backend
from lanewise.splat._operator import operator, zeros_for_none
from lanewise.splat.rasterize import reference
from lanewise.splat.rasterize.lists import RECORD, KernelLists, list_bounds


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
) -> tuple[Tensor, Tensor]:
    """`rasterize_to_pixels` by kernels, with arguments that have been checked: bounds [tiles of all images + 1], and
    conics [..., C, N, 3]; colors [..., C or 1, N, D] and opacities [..., C or 1, N] may be shared by the cameras."""
    if absgrad and torch.compiler.is_compiling():
        raise UnsupportedError(
            "absgrad=True under torch.compile", why="the compiler drops attributes of tensors", fix="render eagerly"
        )
    if deterministic is None:
        deterministic = torch.are_deterministic_algorithms_enabled()
    out, alphas, *_ = composite(
        means2d, conics, colors, opacities, backgrounds, width, height, tile_size, bounds, flatten_ids,
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


def _forward(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
    backgrounds: Tensor | None,
    width: int,
    height: int,
    tile_size: int,
    bounds: Tensor,
    flatten_ids: Tensor,
    masks: Tensor | None,
    absgrad: bool,
    deterministic: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """colors [I, H, W, D], alphas, transmittance and last [I, H, W], and Triton's records (else empty), of means2d
    [..., N, 2], conics [..., C, N, 3], colors [..., C or 1, N, D], opacities [..., C or 1, N]; I images in all."""
    if backend == "triton":
        from lanewise.splat.rasterize import launch

        lists = launch.Lists(width, height, tile_size, bounds, flatten_ids, masks)
        return launch.forward(means2d, conics, colors, opacities, backgrounds, lists)
    from lanewise.splat.rasterize import cpu

    shape = (math.prod(conics.shape[:-2]), height, width)
    conics, colors, opacities = _by_image(conics, colors, opacities)
    out = means2d.new_empty(*shape, colors.shape[-1])
    transmittance = means2d.new_empty(shape)
    last_ids = means2d.new_empty(shape, dtype=torch.int32)
    lists = KernelLists(means2d, conics, opacities, tile_size, bounds, flatten_ids, masks, -(-width // tile_size))
    cpu.forward(
        *lists.gaussians(colors), *lists.tiles(), *(x.numpy() for x in (out, transmittance, last_ids))
    )  # fmt: skip
    if backgrounds is not None:
        out += transmittance[..., None] * backgrounds[:, None, None]
    return out, 1 - transmittance, transmittance, last_ids, means2d.new_empty(0)


def _by_image(conics: Tensor, colors: Tensor, opacities: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The operands with one row a Gaussian and image, [I * N, ...]."""
    pairs = conics.shape[:-1]
    return (
        conics.reshape(-1, 3),
        colors.expand(*pairs, colors.shape[-1]).reshape(-1, colors.shape[-1]),
        opacities.expand(pairs).reshape(-1),
    )


def _fake_forward(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
    backgrounds: Tensor | None,
    width: int,
    height: int,
    tile_size: int,
    bounds: Tensor,
    flatten_ids: Tensor,
    masks: Tensor | None,
    absgrad: bool,
    deterministic: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    images, N, D = math.prod(conics.shape[:-2]), conics.shape[-2], colors.shape[-1]
    shape = (images, height, width)
    return (
        means2d.new_empty(*shape, D),
        means2d.new_empty(shape),
        means2d.new_empty(shape),
        means2d.new_empty(shape, dtype=torch.int32),
        means2d.new_empty((images * N, RECORD) if backend == "triton" else (0,)),
    )


def _gradients(
    means2d: Tensor | None,
    conics: Tensor | None,
    colors: Tensor,
    opacities: Tensor | None,
    pairs: Sequence[int],
    records: Tensor,
    backgrounds: Tensor | None,
    width: int,
    height: int,
    tile_size: int,
    bounds: Tensor,
    flatten_ids: Tensor,
    masks: Tensor | None,
    absgrad: bool,
    deterministic: bool,
    backend: str,
    transmittance: Tensor,
    last: Tensor,
    v_colors: Tensor,
    v_alphas: Tensor | None,
) -> Tensor:
    """Gradients by Gaussian, [I * N, D + 6 (+ 2)]: colours, opacity, conic (3), mean (2), with absgrad the mean's
    absolute sums (2); pairs = (..., C, N)."""
    if backend == "triton":
        from lanewise.splat.rasterize import launch

        lists = launch.Lists(width, height, tile_size, bounds, flatten_ids, masks)
        return launch.backward(
            records, colors, backgrounds, lists, pairs[-2], transmittance, last, v_colors, v_alphas,
            absgrad, deterministic,
        )  # fmt: skip
    from lanewise.splat.rasterize import cpu

    assert means2d is not None
    assert conics is not None
    assert opacities is not None
    conics, colors, opacities = _by_image(conics, colors, opacities)
    lists = KernelLists(means2d, conics, opacities, tile_size, bounds, flatten_ids, masks, -(-width // tile_size))
    columns = colors.shape[-1] + (8 if absgrad else 6)
    grads = means2d.new_empty(flatten_ids.numel(), columns)
    v_transmittance = means2d.new_zeros(last.shape) if v_alphas is None else -v_alphas
    if backgrounds is not None:
        v_transmittance = v_transmittance + (v_colors * backgrounds[:, None, None]).sum(-1)
    images = [x.contiguous().numpy() for x in (transmittance, last, v_colors, v_transmittance)]
    cpu.backward(*lists.gaussians(colors), *lists.tiles(), *images, absgrad, grads.numpy())
    out = means2d.new_zeros(conics.shape[0], columns)
    cpu.sum_by_gaussian(torch.get_num_threads(), flatten_ids.numpy(), grads.numpy(), out.numpy())
    return out


def _fake_gradients(
    means2d: Tensor | None,
    conics: Tensor | None,
    colors: Tensor,
    opacities: Tensor | None,
    pairs: Sequence[int],
    records: Tensor,
    backgrounds: Tensor | None,
    width: int,
    height: int,
    tile_size: int,
    bounds: Tensor,
    flatten_ids: Tensor,
    masks: Tensor | None,
    absgrad: bool,
    deterministic: bool,
    backend: str,
    transmittance: Tensor,
    last: Tensor,
    v_colors: Tensor,
    v_alphas: Tensor | None,
) -> Tensor:
    return v_colors.new_empty(math.prod(pairs), v_colors.shape[-1] + (8 if absgrad else 6))


def _save_for_backward(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    means2d, conics, colors, opacities, backgrounds, *sizes, bounds, ids, masks, absgrad, deterministic, backend = (
        inputs
    )
    _, _, transmittance, last, records = output
    ctx.shapes = means2d.shape, conics.shape, colors.shape, opacities.shape
    ctx.sizes, ctx.how = sizes, (absgrad, deterministic, backend)
    if backend == "triton":  # the records hold what it needs of their shapes: the rest may be freed
        conics = opacities = None
        means2d = means2d if absgrad else None
    operands = means2d, conics, colors, opacities
    ctx.save_for_backward(*operands, backgrounds, bounds, ids, masks, transmittance, last, records)


def _backward_by(gradients: Callable[..., Tensor]) -> Callable[..., tuple]:
    """The backward rule, with the registered operator or the plain function that computes the gradients."""

    def backward(ctx: Any, v_colors: Tensor | None, v_alphas: Tensor | None, *_: Tensor | None) -> tuple:
        *operands, backgrounds, bounds, ids, masks, transmittance, last, records = ctx.saved_tensors
        means2d_shape, conics_shape, colors_shape, opacities_shape = ctx.shapes
        pairs, D = conics_shape[:-1], colors_shape[-1]
        v_colors = zeros_for_none(v_colors, (*last.shape, D), transmittance)
        grads: Tensor = gradients(
            *operands, pairs, records, backgrounds, *ctx.sizes, bounds, ids, masks, *ctx.how,
            transmittance, last, v_colors, v_alphas,
        )  # fmt: skip
        grads = grads.view(*pairs, grads.shape[-1])
        if ctx.how[0]:  # not a view, which would keep all of grads
            operands[0].absgrad = grads[..., D + 6 :].reshape(means2d_shape).clone()
        v_backgrounds = None
        if backgrounds is not None and ctx.needs_input_grad[4]:
            v_backgrounds = (transmittance[..., None] * v_colors).sum((1, 2))

        camera = len(pairs) - 2

        def of_cameras(grad: Tensor, shape: torch.Size) -> Tensor:
            """The gradient of an operand that the cameras may share."""
            return grad if shape[camera] == pairs[camera] else grad.sum(camera, keepdim=True)

        return (
            grads[..., D + 4 : D + 6].view(means2d_shape),
            grads[..., D + 1 : D + 4],
            of_cameras(grads[..., :D], colors_shape),
            of_cameras(grads[..., D], opacities_shape),
            v_backgrounds,
            *[None] * 9,
        )

    return backward


_custom = torch.library.custom_op("lanewise::rasterize", _forward, mutates_args=())
_custom_gradients = torch.library.custom_op("lanewise::rasterize_backward", _gradients, mutates_args=())
_custom.register_fake(_fake_forward)
_custom_gradients.register_fake(_fake_gradients)
_custom.register_autograd(_backward_by(_custom_gradients), setup_context=_save_for_backward)
composite = operator(_custom, _forward, _save_for_backward, _backward_by(_gradients))
