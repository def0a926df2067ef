"""Compositing by kernels as one differentiable operator: the CPU's and Triton's, and their autograd rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lanewise._operator import operator, zeros_for_none
from lanewise.splat.rasterize.lists import RECORD, KernelLists


def _forward(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
    backgrounds: Tensor | None,
    records: Tensor | None,
    width: int,
    height: int,
    tile_size: int,
    bounds: Tensor,
    flatten_ids: Tensor,
    masks: Tensor | None,
    absgrad: bool,
    deterministic: bool | None,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """colors [I, H, W, D], alphas, transmittance and last [I, H, W], and Triton's records (empty where they were given,
    and else), of means2d [..., N, 2], conics [..., C, N, 3], colors [..., C or 1, N, D], opacities [..., C or 1, N]; I
    images in all."""
    if backend == "triton":
        from lanewise.splat.rasterize import launch

        lists = launch.Lists(width, height, tile_size, bounds, flatten_ids, masks)
        made = means2d.new_empty(0)
        if records is None:
            records = made = launch.records_of(means2d, conics, opacities)
        return *launch.forward(records, colors, backgrounds, lists, conics.shape[:-1]), made
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
        conics.flatten(0, -2),
        colors.expand(*pairs, colors.shape[-1]).flatten(0, -2),
        opacities.expand(pairs).flatten(),
    )


def _fake_forward(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
    backgrounds: Tensor | None,
    records: Tensor | None,
    width: int,
    height: int,
    tile_size: int,
    bounds: Tensor,
    flatten_ids: Tensor,
    masks: Tensor | None,
    absgrad: bool,
    deterministic: bool | None,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    images, N, D = math.prod(conics.shape[:-2]), conics.shape[-2], colors.shape[-1]
    shape = (images, height, width)
    return (
        means2d.new_empty(*shape, D),
        means2d.new_empty(shape),
        means2d.new_empty(shape),
        means2d.new_empty(shape, dtype=torch.int32),
        means2d.new_empty((images * N, RECORD) if backend == "triton" and records is None else (0,)),
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
    deterministic: bool | None,
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
    deterministic: bool | None,
    backend: str,
    transmittance: Tensor,
    last: Tensor,
    v_colors: Tensor,
    v_alphas: Tensor | None,
) -> Tensor:
    return v_colors.new_empty(math.prod(pairs), v_colors.shape[-1] + (8 if absgrad else 6))


def _save_for_backward(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    means2d, conics, colors, opacities, backgrounds, records, *sizes, bounds, ids, masks = inputs[:-3]
    absgrad, deterministic, backend = inputs[-3:]
    _, _, transmittance, last, made = output
    records = made if records is None else records
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
            *[None] * 10,
        )

    return backward


_custom = torch.library.custom_op("lanewise::rasterize", _forward, mutates_args=())
_custom_gradients = torch.library.custom_op("lanewise::rasterize_backward", _gradients, mutates_args=())
_custom.register_fake(_fake_forward)
_custom_gradients.register_fake(_fake_gradients)
_custom.register_autograd(_backward_by(_custom_gradients), setup_context=_save_for_backward)
composite = operator(_custom, _forward, _save_for_backward, _backward_by(_gradients))
