"""EWA projection: checks and dispatch. In fp32 on the CPU the reference is fast enough to be the implementation."""

from __future__ import annotations

from torch import Tensor

from lanewise.errors import InputError
from lanewise.splat._backend import Backend, check_positive, check_tensor, resolve_backend
from lanewise.splat.projection.reference import Camera, Projected, project


def project_gaussians(
    means: Tensor,
    covars: Tensor | None,
    quats: Tensor | None,
    scales: Tensor | None,
    viewmats: Tensor,
    Ks: Tensor,
    width: int,
    height: int,
    *,
    eps2d: float = 0.3,
    near_plane: float = 0.01,
    far_plane: float = 1e10,
    radius_clip: float = 0.0,
    calc_compensations: bool = False,
    opacities: Tensor | None = None,
    backend: Backend = "auto",
) -> Projected:
    """Project 3-D Gaussians to the image planes of pinhole cameras (EWA splatting, Zwicker et al. 2002).

    Differentiable with respect to means, covars, quats, scales, viewmats and Ks.

    Args:
        means: world centres, [B, N, 3].
        covars: world covariances, [B, N, 3, 3], of which the upper triangle counts; or None with quats and scales.
        quats: rotations wxyz of any length, [B, N, 4].
        scales: standard deviations in world units, [B, N, 3].
        viewmats: world-to-camera, x right, y down, z forward, [B, C, 4, 4].
        Ks: intrinsics in pixels, pixel centres at +0.5, [B, C, 3, 3].
        width: of the image in pixels.
        height: of the image in pixels.
        eps2d: variance added on the image plane, pixels^2.
        near_plane: smallest depth that is drawn, world units.
        far_plane: largest depth that is drawn, world units.
        radius_clip: Gaussians whose radii are both at most this many pixels are culled.
        calc_compensations: the antialiasing compensation sqrt(det / det of the blurred covariance) (Mip-Splatting).
        opacities: [B, N] in 0..1; they shrink the extents (StopThePop, section B.2) and cull what is below 1/255.
        backend: "auto", "reference" or "cpu".

    Returns:
        `Projected`; zeros where a Gaussian is culled.

    Raises:
        InputError: a shape, dtype or device that does not fit.
    """
    check_tensor("means", means, ("B", "N", 3))
    B, N = means.shape[:2]
    if covars is not None:
        check_tensor("covars", covars, (B, N, 3, 3), means)
        shape = covars
    elif quats is None or scales is None:
        raise InputError("quats, scales", got="None", expected="both, or covars")
    else:
        check_tensor("quats", quats, (B, N, 4), means)
        check_tensor("scales", scales, (B, N, 3), means)
        shape = (quats, scales)
    check_tensor("viewmats", viewmats, (B, "C", 4, 4), means)
    check_tensor("Ks", Ks, (B, viewmats.shape[1], 3, 3), means)
    if opacities is not None:
        check_tensor("opacities", opacities, (B, N), means)
    check_positive("width", width)
    check_positive("height", height)
    resolve_backend(backend, means)
    camera = Camera(width, height, near_plane, far_plane, radius_clip, eps2d, calc_compensations)
    return project(means, shape, opacities, viewmats, Ks, camera)
