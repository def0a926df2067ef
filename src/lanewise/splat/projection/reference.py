"""EWA projection of 3-D Gaussians to the image plane: the truth, in differentiable torch, any floating dtype.

Source: Zwicker et al., "EWA splatting" (2002); Kerbl et al., "3D Gaussian Splatting" (2023); conventions of gsplat
1.5.3. Two passes: the first decides without a graph what is visible, the second differentiates the visible pairs
alone, so that a Gaussian behind the camera, or with NaN or infinite parameters, cannot put a NaN into anybody's
gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

ALPHA_THRESHOLD = 1.0 / 255.0
MAX_EXTENT = 3.33  # standard deviations at which opacity 1 falls below ALPHA_THRESHOLD: sqrt(2 ln 255) = 3.329


class Projected(NamedTuple):
    """Gaussians on the image plane; zeros where a Gaussian is culled.

    radii [B, C, N, 2] int32 (pixels; visible where both are positive), means2d [B, C, N, 2] (pixels), depths [B, C,
    N] (world units), conics [B, C, N, 3] (upper triangle of the inverse 2-D covariance, 1/pixel^2), compensations [B,
    C, N] (1 unless antialiased).
    """

    radii: Tensor
    means2d: Tensor
    depths: Tensor
    conics: Tensor
    compensations: Tensor


class Camera(NamedTuple):
    """What the projection needs to know of the image besides the matrices."""

    width: int
    height: int
    near_plane: float = 0.01
    far_plane: float = 1e10
    radius_clip: float = 0.0
    eps2d: float = 0.3
    antialiased: bool = False


def project(
    means: Tensor,
    shape: Tensor | tuple[Tensor, Tensor],
    opacities: Tensor | None,
    viewmats: Tensor,
    Ks: Tensor,
    camera: Camera,
    *,
    visible: Tensor | None = None,
) -> Projected:
    """Project B x N Gaussians into B x C cameras.

    Args:
        means: world centres, [B, N, 3].
        shape: world covariances [B, N, 3, 3] (the upper triangle counts), or the pair (quats wxyz [B, N, 4], scales
            [B, N, 3]).
        opacities: [B, N] in 0..1, makes the extents opacity-aware; None: extents of an opaque Gaussian.
        viewmats: world-to-camera, [B, C, 4, 4].
        Ks: pinhole intrinsics in pixels, [B, C, 3, 3].
        camera: image size, clip planes and blur.
        visible: [B, C, N] bool, replays the culling of another implementation in place of this one's own decision.
    """
    B, C, N = means.shape[0], viewmats.shape[1], means.shape[1]
    with torch.no_grad():
        pairs = _project_pairs(
            means[:, None], _with_camera_axis(shape), viewmats[:, :, None], Ks[:, :, None], camera
        )  # [B, C, N, ...]
        radii = _radii(pairs, None if opacities is None else opacities[:, None], camera)  # [B, C, N, 2]
        if visible is not None:
            radii = torch.where(visible[..., None], radii.clamp_min(1), 0)
        index = (radii > 0).all(-1).flatten().nonzero().squeeze(1)  # [V]
        image = index // max(N, 1)
        gaussian = image // max(C, 1) * N + index % max(N, 1)
    survivors = _project_pairs(
        _take(means, gaussian),
        (_take(shape[0], gaussian), _take(shape[1], gaussian)) if isinstance(shape, tuple) else _take(shape, gaussian),
        _take_camera(viewmats, image),
        _take_camera(Ks, image),
        camera,
    )

    def scatter(values: Tensor) -> Tensor:  # [V, ...] -> [B, C, N, ...]
        dense = values.new_zeros(B * C * N, *values.shape[1:]).index_copy(0, index, values)
        return dense.reshape(B, C, N, *values.shape[1:])

    return Projected(
        radii,
        scatter(survivors.means2d),
        scatter(survivors.depths),
        scatter(survivors.conics),
        scatter(survivors.compensations),
    )


class _Pairs(NamedTuple):
    """Projection of (Gaussian, camera) pairs with leading dimensions [...]."""

    means2d: Tensor  # [..., 2]
    depths: Tensor  # [...]
    conics: Tensor  # [..., 3]
    compensations: Tensor  # [...]
    variances: Tensor  # [..., 2] blurred variances along x and y, pixels^2
    det: Tensor  # [...] determinant of the blurred 2-D covariance


def _project_pairs(
    means: Tensor, shape: Tensor | tuple[Tensor, Tensor], viewmats: Tensor, Ks: Tensor, camera: Camera
) -> _Pairs:
    """The formula, pair by pair; broadcasts over leading dimensions."""
    R, t = viewmats[..., :3, :3], viewmats[..., :3, 3]
    x, y, z = ((R * means[..., None, :]).sum(-1) + t).unbind(-1)
    fx, fy, cx, cy = Ks[..., 0, 0], Ks[..., 1, 1], Ks[..., 0, 2], Ks[..., 1, 2]
    u, v = x / z, y / z

    # Far outside the image the linearisation explodes: its centre is clamped to the image plus 15% on each side.
    margin_x, margin_y = 0.15 * camera.width / fx, 0.15 * camera.height / fy
    uc = torch.minimum(torch.maximum(u, -cx / fx - margin_x), (camera.width - cx) / fx + margin_x)
    vc = torch.minimum(torch.maximum(v, -cy / fy - margin_y), (camera.height - cy) / fy + margin_y)
    # Rows of J R, with J = [fx/z, 0, -fx u/z; 0, fy/z, -fy v/z] the Jacobian of the pinhole projection.
    row_x = (fx / z)[..., None] * (R[..., 0, :] - uc[..., None] * R[..., 2, :])  # [..., 3]
    row_y = (fy / z)[..., None] * (R[..., 1, :] - vc[..., None] * R[..., 2, :])  # [..., 3]

    if isinstance(shape, Tensor):
        sym = _symmetric(shape)
        sx = (sym * row_x[..., None, :]).sum(-1)  # covariance times row_x, [..., 3]
        sy = (sym * row_y[..., None, :]).sum(-1)
        a, b, d = (row_x * sx).sum(-1), (row_x * sy).sum(-1), (row_y * sy).sum(-1)
        det0 = a * d - b * b
    else:
        quats, scales = shape
        M = rotation_matrices(quats) * scales[..., None, :]  # [..., 3, 3]; the covariance is M M^T
        px = (row_x[..., :, None] * M).sum(-2)  # row_x M, [..., 3]
        py = (row_y[..., :, None] * M).sum(-2)
        a, b, d = (px * px).sum(-1), (px * py).sum(-1), (py * py).sum(-1)
        # |px x py|^2 is a d - b^2 without the cancellation of thin Gaussians.
        det0 = torch.linalg.cross(px, py).square().sum(-1)
    a_blur, d_blur = a + camera.eps2d, d + camera.eps2d
    det = det0 + camera.eps2d * (a + d) + camera.eps2d**2
    conics = torch.stack([d_blur / det, -b / det, a_blur / det], -1)
    # sqrt has an infinite slope at 0: a flat Gaussian (det0 = 0) has compensation 0 and no gradient through it.
    ratio = det0 / det
    positive = ratio > 0
    compensations = (
        torch.where(positive, torch.where(positive, ratio, 1).sqrt(), 0) if camera.antialiased else torch.ones_like(z)
    )
    means2d = torch.stack([fx * u + cx, fy * v + cy], -1)
    return _Pairs(means2d, z, conics, compensations, torch.stack([a_blur, d_blur], -1), det)


def _radii(pairs: _Pairs, opacities: Tensor | None, camera: Camera) -> Tensor:
    """Half sizes of the axis-aligned box in which alpha reaches the threshold, in whole pixels; 0 where culled. [...,
    2] int32."""
    extent = torch.full_like(pairs.depths, MAX_EXTENT)
    visible = (pairs.depths >= camera.near_plane) & (pairs.depths <= camera.far_plane) & (pairs.det > 0)
    if opacities is not None:
        opacity = opacities * pairs.compensations
        visible &= opacity >= ALPHA_THRESHOLD
        extent = torch.minimum(extent, (2 * (opacity / ALPHA_THRESHOLD).clamp_min(1).log()).sqrt())
    radii = (extent[..., None] * pairs.variances.sqrt()).ceil()  # [..., 2]
    size = radii.new_tensor([camera.width, camera.height])
    on_image = ((pairs.means2d + radii > 0) & (pairs.means2d - radii < size)).all(-1)
    visible &= on_image & (radii > 0).all(-1) & (radii > camera.radius_clip).any(-1)
    # Only what is finite in every output may be drawn: comparisons with NaN are false, infinities are asked for by
    # name.
    visible &= pairs.conics.isfinite().all(-1) & pairs.means2d.isfinite().all(-1) & (radii < 2**31).all(-1)
    return torch.where(visible[..., None], radii, 0).to(torch.int32)


def rotation_matrices(quats: Tensor) -> Tensor:
    """Rotation matrices [..., 3, 3] of quaternions wxyz [..., 4] of any length; the zero quaternion is the identity."""
    # Dividing by the largest entry first keeps the norm of tiny and of huge quaternions from under- and overflowing.
    largest = quats.detach().abs().amax(-1, keepdim=True)
    q = quats / torch.where(largest > 0, largest, 1)
    norm2 = q.square().sum(-1, keepdim=True)
    w, x, y, z = (q * torch.where(norm2 > 0, norm2, 1).rsqrt()).unbind(-1)
    rows = [
        torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], -1),
        torch.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], -1),
        torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1),
    ]
    return torch.stack(rows, -2)


def _symmetric(covars: Tensor) -> Tensor:
    """Symmetric matrices from the upper triangles of [..., 3, 3], so that gradients reach the upper triangle alone,
    as in gsplat."""
    upper = covars.triu()
    return upper + upper.triu(1).mT


def _with_camera_axis(shape: Tensor | tuple[Tensor, Tensor]) -> Tensor | tuple[Tensor, Tensor]:
    return (shape[0].unsqueeze(1), shape[1].unsqueeze(1)) if isinstance(shape, tuple) else shape.unsqueeze(1)


def _take(values: Tensor, index: Tensor) -> Tensor:
    """Rows `index` [V] of values [B, N, ...] seen as [B * N, ...]."""
    return values.flatten(0, 1).index_select(0, index)


def _take_camera(values: Tensor, image: Tensor) -> Tensor:
    """Matrices of the images `image` [V]; a single camera is broadcast, not copied."""
    return values.flatten(0, 1) if values.shape[0] * values.shape[1] == 1 else _take(values, image)
