"""The statistics of adaptive density control: checks and dispatch."""

from __future__ import annotations

import torch
from torch import Tensor

from lanewise.errors import InputError
from lanewise.splat._backend import Backend, check_positive, check_tensor, resolve_backend
from lanewise.train.strategy.statistics import reference


@torch.no_grad()
def observe(
    v_means2d: Tensor,
    radii: Tensor,
    width: int,
    height: int,
    grad2d: Tensor,
    count: Tensor,
    widest: Tensor | None = None,
    *,
    skip: Tensor | None = None,
    backend: Backend = "auto",
) -> None:
    """Add what one step saw to the statistics that decide where Gaussians are split and duplicated, in place.

    Source: Kerbl et al. 2023, section 5, in the units of gsplat's default strategy: a gradient is taken in half
    images and multiplied by the number of cameras, since the loss is their mean. Nothing is read back from a GPU.

    Args:
        v_means2d: [C, N, 2] gradient (or sum of absolute gradients) by the projected centres, 1/pixel, any strides.
        radii: [C, N, 2] int32 pixels; a camera sees a Gaussian when both are above 0.
        width: of the images in pixels.
        height: of the images in pixels.
        grad2d: [N], contiguous; the gradient's lengths, in half images, are added over the cameras that see the
            Gaussian.
        count: [N], as `grad2d`; the number of those cameras is added.
        widest: [N], as `grad2d`; becomes the largest radius so far, in longer sides of an image. None: not asked for.
        skip: [1] int32; where it is not 0 nothing changes. None: it does not ask.
        backend: "auto", "reference" (any dtype and device), "triton" (float32 on a GPU), or "cpu" for the reference in
            float32 on the CPU. auto takes triton where it can.

    Raises:
        InputError: a shape, dtype, device, layout or number that does not fit.
        UnsupportedError: more Gaussians and cameras than one launch can number.
    """
    _check(v_means2d, radii, width, height, grad2d, count, widest, skip)
    take = reference.observe
    if resolve_backend(backend, v_means2d) == "triton":
        from lanewise.train.strategy.statistics import launch

        take = launch.observe
    take(v_means2d, radii, width, height, grad2d, count, widest, skip)


def _check(
    v_means2d: Tensor,
    radii: Tensor,
    width: int,
    height: int,
    grad2d: Tensor,
    count: Tensor,
    widest: Tensor | None,
    skip: Tensor | None,
) -> None:
    check_tensor("v_means2d", v_means2d, ("C", "N", 2))
    check_positive("width", width)
    check_positive("height", height)
    for name, tensor, shape in (("radii", radii, v_means2d.shape), ("skip", skip, (1,))):
        wanted = (torch.int32, v_means2d.device, shape)
        if tensor is not None and (tensor.dtype, tensor.device, tensor.shape) != wanted:
            got = f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}"
            raise InputError(name, got=got, expected=f"torch.int32 {list(shape)} on {v_means2d.device}")
    sums = {"grad2d": grad2d, "count": count} | ({} if widest is None else {"widest": widest})
    for name, tensor in sums.items():
        check_tensor(name, tensor, (v_means2d.shape[1],), v_means2d)
        if not tensor.is_contiguous():
            got = f"strides {list(tensor.stride())}"
            raise InputError(name, got=got, expected="a contiguous tensor", why="it is changed in place")
