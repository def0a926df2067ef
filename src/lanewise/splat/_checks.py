"""The checks of `rasterization`'s arguments."""

from __future__ import annotations

import torch
from torch import Tensor

from lanewise.errors import InputError
from lanewise.splat._backend import check_positive, check_tensor

RENDER_MODES = ("RGB", "D", "ED", "RGB+D", "RGB+ED")


def check_capacity(isect_capacity: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """Entries of the lists, and of the coarse lists that they are made from."""
    if isect_capacity is None:
        return None
    both = isect_capacity if isinstance(isect_capacity, tuple) else (isect_capacity, isect_capacity)
    for value in both:
        check_positive("isect_capacity", value, largest=2**40)
    return both


def check_planes(near_plane: float, far_plane: float, radius_clip: float, eps2d: float) -> None:
    for name, value in (("near_plane", near_plane), ("radius_clip", radius_clip), ("eps2d", eps2d)):
        if not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise InputError(name, got=repr(value), expected="a finite number, at least 0")
    if not isinstance(far_plane, int | float) or not far_plane > near_plane:
        raise InputError("far_plane", got=repr(far_plane), expected=f"a number above near_plane={near_plane}")


def check_options(render_mode: str, rasterize_mode: str, width: int, height: int) -> None:
    if render_mode not in RENDER_MODES:
        raise InputError("render_mode", got=repr(render_mode), expected=f"one of {', '.join(RENDER_MODES)}")
    if rasterize_mode not in ("classic", "antialiased"):
        raise InputError("rasterize_mode", got=repr(rasterize_mode), expected="'classic' or 'antialiased'")
    check_positive("width", width)
    check_positive("height", height)


def check_scene(
    means: Tensor,
    quats: Tensor | None,
    scales: Tensor | None,
    covars: Tensor | None,
    opacities: Tensor,
    viewmats: Tensor,
    Ks: Tensor,
) -> tuple[torch.Size, int, int]:
    """The batch dimensions, the number of cameras and the number of Gaussians."""
    if means.dim() < 2:
        raise InputError("means", got=f"shape {list(means.shape)}", expected="[..., N, 3]")
    batch, N = means.shape[:-2], means.shape[-2]
    check_tensor("means", means, (*batch, N, 3))
    if covars is not None:
        check_tensor("covars", covars, (*batch, N, 3, 3), means)
    else:
        check_tensor("quats", quats, (*batch, N, 4), means)
        check_tensor("scales", scales, (*batch, N, 3), means)
    check_tensor("opacities", opacities, (*batch, N), means)
    check_tensor("viewmats", viewmats, (*batch, "C", 4, 4), means)
    C = viewmats.shape[-3]
    check_tensor("Ks", Ks, (*batch, C, 3, 3), means)
    return batch, C, N


def colors_of_cameras(colors: Tensor, sh_degree: int | None, pairs: tuple[int, ...], means: Tensor) -> Tensor:
    """Colours or coefficients with a camera axis, [..., C or 1, N, D] or [..., C or 1, N, K, 3]; pairs = (..., C,
    N)."""
    if sh_degree is not None and sh_degree not in range(5):
        raise InputError("sh_degree", got=repr(sh_degree), expected="None or a whole number in 0..4")
    tail = ("D",) if sh_degree is None else ("K", 3)
    if colors.dim() == len(pairs) - 1 + len(tail):
        check_tensor("colors", colors, (*pairs[:-2], pairs[-1], *tail), means)
        colors = colors.unsqueeze(len(pairs) - 2)
    else:
        check_tensor("colors", colors, (*pairs, *tail), means)
    if sh_degree is not None and colors.shape[-2] < (sh_degree + 1) ** 2:
        expected = f"at least {(sh_degree + 1) ** 2} coefficients for sh_degree={sh_degree}"
        raise InputError("colors", got=f"shape {list(colors.shape)}", expected=expected)
    return colors
