"""`rasterization`: the operators composed, with gsplat 1.5.3's signature; nothing numerical of its own."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from lanewise.errors import InputError
from lanewise.splat._backend import Backend, check_tensor, resolve_backend
from lanewise.splat._checks import check_capacity, check_options, check_planes, check_scene, colors_of_cameras
from lanewise.splat._later import refuse_what_is_not_there_yet
from lanewise.splat.binning.op import lists_of
from lanewise.splat.binning.reference import TileLists
from lanewise.splat.meta import Meta
from lanewise.splat.projection.op import project_checked
from lanewise.splat.projection.reference import Camera
from lanewise.splat.rasterize.lists import list_bounds
from lanewise.splat.rasterize.op import check_masks, rasterize_lists, rasterize_to_pixels
from lanewise.splat.sh.op import spherical_harmonics


def rasterization(
    means: Tensor,
    quats: Tensor | None,
    scales: Tensor | None,
    opacities: Tensor,
    colors: Tensor,
    viewmats: Tensor,
    Ks: Tensor,
    width: int,
    height: int,
    near_plane: float = 0.01,
    far_plane: float = 1e10,
    radius_clip: float = 0.0,
    eps2d: float = 0.3,
    sh_degree: int | None = None,
    packed: bool = False,
    tile_size: int | None = None,
    backgrounds: Tensor | None = None,
    render_mode: Literal["RGB", "D", "ED", "RGB+D", "RGB+ED"] = "RGB",
    sparse_grad: bool = False,
    absgrad: bool = False,
    rasterize_mode: Literal["classic", "antialiased"] = "classic",
    channel_chunk: int = 32,
    distributed: bool = False,
    camera_model: Literal["pinhole", "ortho", "fisheye", "ftheta"] = "pinhole",
    segmented: bool = False,
    covars: Tensor | None = None,
    with_ut: bool = False,
    with_eval3d: bool = False,
    radial_coeffs: Tensor | None = None,
    tangential_coeffs: Tensor | None = None,
    thin_prism_coeffs: Tensor | None = None,
    ftheta_coeffs: Any = None,
    rolling_shutter: Any = None,
    viewmats_rs: Tensor | None = None,
    *,
    tile_masks: Tensor | None = None,
    deterministic: bool | None = None,
    isect_capacity: int | tuple[int, int] | None = None,
    backend: Backend = "auto",
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Render 3-D Gaussians into C cameras (3D Gaussian Splatting, Kerbl et al. 2023; gsplat 1.5.3's conventions).

    Differentiable with respect to means, quats, scales, opacities, colors, covars, viewmats, Ks and backgrounds. All
    floating tensors share one dtype (float32, or float64 for the reference) and one device. `...` is any number of
    leading batch dimensions.

    Args:
        means: centres in world units, [..., N, 3].
        quats: rotations wxyz of any length, [..., N, 4].
        scales: standard deviations in world units, [..., N, 3].
        opacities: in 0..1, [..., N].
        colors: [..., N, D] or [..., C, N, D], any number of channels; with `sh_degree` coefficients [..., N, K, 3] or
            [..., C, N, K, 3].
        viewmats: world-to-camera, x right, y down, z forward, [..., C, 4, 4].
        Ks: intrinsics in pixels, pixel centres at +0.5, [..., C, 3, 3].
        width: of the images in pixels.
        height: of the images in pixels.
        near_plane: smallest depth drawn, world units.
        far_plane: largest depth drawn, world units.
        radius_clip: Gaussians with both radii at most this many pixels are not drawn.
        eps2d: variance added on the image plane, pixels^2.
        sh_degree: degree of the spherical harmonics to evaluate, 0..4; None: `colors` are colours.
        packed: not in this version (gsplat's default is True; here it is False).
        tile_size: edge of a tile in pixels, a launch choice that does not change the picture; None: 16 on the CPU, 8
            on a GPU.
        backgrounds: [..., C, D].
        render_mode: colours, accumulated depth (D), expected depth (ED) or both; depth is the last channel.
        sparse_grad: not in this version.
        absgrad: the backward pass also sets `meta["means2d"].absgrad`.
        rasterize_mode: "antialiased" scales opacities by the compensation for eps2d (Mip-Splatting).
        channel_chunk: accepted, without effect.
        distributed: not in this version.
        camera_model: "pinhole"; the others are not in this version.
        segmented: accepted, without effect.
        covars: world covariances in place of quats and scales, [..., N, 3, 3]; the upper triangle counts.
        with_ut: not in this version, nor are `with_eval3d`, the distortion coefficients and the rolling shutter.
        tile_masks: [..., C, tile_height, tile_width] bool, with `tile_size`; tiles that are False show the background
            alone.
        deterministic: the same bits in every run. None: where torch.are_deterministic_algorithms_enabled(), and on a
            GPU where Triton has no atomic additions of floats (`target.float_atomics`).
        isect_capacity: on a GPU, entries that the tile lists have room for (and, as a second number, the coarse lists
            that they are made from; without it the same). Then nothing waits for the GPU. When `meta["overflow"]`, a
            tensor, is True they did not fit: the picture and its gradients are incomplete and must not be used; repeat
            with more than `meta["n_isects"]` and `meta["n_coarse"]`. None: as many as it takes, for which the host
            waits once.
        backend: "auto" (Triton for float32 on a GPU, the CPU kernels for float32 on the CPU, else the reference),
            "reference", "cpu" or "triton".

    Returns:
        colors [..., C, H, W, D], alphas [..., C, H, W, 1], and `meta`, a dictionary with gsplat's keys: batch_ids,
        camera_ids, gaussian_ids (None), radii [..., C, N, 2] int32, means2d, depths, conics, opacities, tile_width,
        tile_height, tiles_per_gauss, isect_ids, flatten_ids, isect_offsets, width, height, tile_size, n_batches,
        n_cameras.

    Raises:
        InputError: a shape, dtype, device or option that does not fit.
        UnsupportedError: an option that stands in the signature for a later version.
    """
    refuse_what_is_not_there_yet(
        packed=packed,
        sparse_grad=sparse_grad,
        distributed=distributed,
        camera_model=camera_model,
        with_ut=with_ut,
        with_eval3d=with_eval3d,
        radial_coeffs=radial_coeffs,
        tangential_coeffs=tangential_coeffs,
        thin_prism_coeffs=thin_prism_coeffs,
        ftheta_coeffs=ftheta_coeffs,
        rolling_shutter=rolling_shutter,
        viewmats_rs=viewmats_rs,
    )
    check_options(render_mode, rasterize_mode, width, height)
    check_planes(near_plane, far_plane, radius_clip, eps2d)
    batch, C, N = check_scene(means, quats, scales, covars, opacities, viewmats, Ks)
    if tile_masks is not None and tile_size is None:
        raise InputError(
            "tile_masks",
            got="masks without tile_size",
            expected="the tile_size that they are made for",
            why="the default tile size is chosen by the device and the scene",
            fix="pass tile_size=16",
        )
    colors = colors_of_cameras(colors, sh_degree, (*batch, C, N), means)
    if backgrounds is not None:
        D = 3 if sh_degree is not None else colors.shape[-1]
        check_tensor("backgrounds", backgrounds, (*batch, C, D), means)
    capacity = check_capacity(isect_capacity)
    chosen = resolve_backend(backend, means)
    B, antialiased = batch.numel(), rasterize_mode == "antialiased"
    camera = Camera(width, height, near_plane, far_plane, radius_clip, eps2d, antialiased)
    if covars is not None:
        quats = scales = None
    radii, means2d, depths, conics, compensations = project_checked(
        means, quats, scales, covars, opacities, viewmats, Ks, camera, chosen
    )
    shaded_opacities = opacities.unsqueeze(-2)  # [..., C or 1, N]
    if antialiased:
        shaded_opacities = shaded_opacities * compensations

    seen = _seen_colors(colors, sh_degree, means, viewmats, radii, chosen)  # [..., C or 1, N, D]
    channels, backgrounds = _channels(seen, depths, backgrounds, render_mode)
    lists = lists_of(means2d, radii, depths, conics, shaded_opacities, tile_size, width, height, chosen, capacity)
    if tile_masks is not None:
        check_masks("tile_masks", tile_masks, lists.isect_offsets.shape)
    if chosen == "reference":
        rendered, alphas = rasterize_to_pixels(
            means2d,
            conics,
            channels.expand(*batch, C, N, channels.shape[-1]),
            shaded_opacities.expand(*batch, C, N),
            width,
            height,
            lists.tile_size,
            lists.isect_offsets,
            lists.flatten_ids,
            backgrounds,
            tile_masks,
            absgrad,
            backend="reference",
        )
    else:
        rendered, alphas = rasterize_lists(
            means2d,
            conics,
            channels,
            shaded_opacities,
            width,
            height,
            lists.tile_size,
            list_bounds(lists.isect_offsets, lists.flatten_ids) if lists.bounds is None else lists.bounds,
            lists.flatten_ids,
            None if backgrounds is None else backgrounds.reshape(B * C, backgrounds.shape[-1]),
            tile_masks,
            absgrad,
            deterministic,
            chosen,
            torch.Size((*batch, C)),
            lists.records,
        )
    if render_mode in ("ED", "RGB+ED"):
        expected = rendered[..., -1:] / alphas.clamp(min=1e-10)
        rendered = torch.cat([rendered[..., :-1], expected], -1)
    meta = Meta(
        lists,
        {
            "batch_ids": None,
            "camera_ids": None,
            "gaussian_ids": None,
            "radii": radii,
            "means2d": means2d,
            "depths": depths,
            "conics": conics,
            "opacities": shaded_opacities.expand(*batch, C, N),
            "tile_width": lists.isect_offsets.shape[-1],
            "tile_height": lists.isect_offsets.shape[-2],
            "tiles_per_gauss": lists.tiles_per_gauss,
            "flatten_ids": lists.flatten_ids,
            "isect_offsets": lists.isect_offsets,
            "width": width,
            "height": height,
            "tile_size": lists.tile_size,
            "n_batches": B,
            "n_cameras": C,
        },
    )
    if capacity is not None:
        meta |= _lengths(lists, capacity)
    return rendered, alphas, meta


def _lengths(lists: TileLists, capacity: tuple[int, int]) -> dict[str, Tensor]:
    """How long the lists have to be, and whether they did not fit; tensors that nobody has waited for."""
    if lists.lengths is None:  # made by a backend that always makes them as long as they have to be
        n = torch.tensor(lists.flatten_ids.numel())
        return {"n_isects": n, "n_coarse": n, "overflow": torch.tensor(False)}
    n_isects, n_coarse = lists.lengths[:2].sum(1).unbind()
    overflow = (n_isects > capacity[0]) | (n_coarse > capacity[1])
    return {"n_isects": n_isects, "n_coarse": n_coarse, "overflow": overflow}


def _seen_colors(
    colors: Tensor, sh_degree: int | None, means: Tensor, viewmats: Tensor, radii: Tensor, backend: Backend
) -> Tensor:
    """Colours as every camera sees them, [..., C or 1, N, D]."""
    if sh_degree is None:
        return colors
    dirs = means[..., None, :, :] - camera_centres(viewmats)[..., None, :]
    visible = (radii > 0).all(-1)
    return (spherical_harmonics(sh_degree, dirs, colors, visible, backend=backend) + 0.5).clamp_min(0)


def camera_centres(viewmats: Tensor) -> Tensor:
    """Where the cameras stand, -R^-1 t, [..., 3] of viewmats [..., 4, 4]; exact for views that are not quite rigid too.

    In closed form, by R's cofactors: a linear solver would wait for the GPU to tell whether R is singular.
    """
    R, t = viewmats[..., :3, :3], viewmats[..., :3, 3:]
    cofactors = torch.linalg.cross(R.roll(-1, -2), R.roll(-2, -2))  # rows r1 x r2, r2 x r0, r0 x r1
    return -(cofactors * t).sum(-2) / (R * cofactors)[..., 0, :].sum(-1, keepdim=True)


def _channels(
    colors: Tensor, depths: Tensor, backgrounds: Tensor | None, render_mode: str
) -> tuple[Tensor, Tensor | None]:
    """What is composited, [..., C, N, D], and its background: a depth channel has background 0."""
    if render_mode == "RGB":
        return colors, backgrounds
    parts = [depths[..., None]]
    if render_mode not in ("D", "ED"):
        parts.insert(0, colors.expand(*depths.shape, colors.shape[-1]))
    if backgrounds is not None:
        zero = backgrounds.new_zeros(*backgrounds.shape[:-1], 1)
        backgrounds = zero if render_mode in ("D", "ED") else torch.cat([backgrounds, zero], -1)
    return torch.cat(parts, -1), backgrounds
