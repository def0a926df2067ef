"""Where training starts: the capture's sparse points or random ones, how far apart they are, how large the scene is."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree
from torch import Tensor

from lanewise.errors import InputError
from lanewise.io.captures import Capture
from lanewise.io.captures.geometry import camera_centres

BLENDER_HALF_SIDE = 1.3  # NeRF-synthetic objects lie in [-1.3, 1.3]^3
EXTENT = 3.0  # half side of the random start's cube in scene scales, as gsplat's init_extent
NEIGHBOURS = 3
SMALLEST_DISTANCE = 1e-7


def scene_scale(viewmats: NDArray[np.float64]) -> float:
    """1.1 times the largest distance of a camera centre from the mean of all, in world units, as gsplat's trainer.

    Cameras that stand at one place (or a single camera) say nothing about a scale: then it is 1.

    Args:
        viewmats: world-to-camera matrices [N, 4, 4], N at least 1.

    Raises:
        InputError: another shape, or no camera.
    """
    viewmats = np.asarray(viewmats, np.float64)
    if viewmats.ndim != 3 or viewmats.shape[1:] != (4, 4) or len(viewmats) == 0:
        raise InputError("viewmats", got=f"shape {viewmats.shape}", expected="shape (N, 4, 4) with N >= 1")
    centres = camera_centres(viewmats)
    spread = float(np.linalg.norm(centres - centres.mean(axis=0), axis=1).max())
    at_one_place = spread <= 1e-9 * max(1.0, float(np.abs(centres).max()))
    return 1.0 if at_one_place else 1.1 * spread


def initial_points(capture: Capture, *, generator: torch.Generator, count: int = 100_000) -> tuple[Tensor, Tensor]:
    """Positions [P, 3] and colours in 0..1 [P, 3] (float32, CPU) to start training from.

    They are the capture's own points where it has any. Otherwise `count` uniform random ones: in [-1.3, 1.3]^3 for a
    Blender capture, else in the cube with a half side of 3 scene scales about the mean camera centre.

    Args:
        capture: the capture.
        generator: a CPU generator, the only source of chance.
        count: number of random points.

    Raises:
        InputError: `count` is not positive.
    """
    if capture.points is not None and capture.colors is not None and len(capture.points):
        points = torch.from_numpy(capture.points.astype(np.float32))
        return points, torch.from_numpy(capture.colors.astype(np.float32)) / 255
    if count < 1:
        raise InputError("count", got=count, expected="at least 1 random point")
    unit = torch.rand(count, 3, generator=generator) * 2 - 1
    colors = torch.rand(count, 3, generator=generator)
    if capture.format == "blender":
        return unit * BLENDER_HALF_SIDE, colors
    viewmats = np.stack([view.viewmat for view in capture.views])
    centre = torch.from_numpy(camera_centres(viewmats).mean(axis=0)).float()
    return centre + unit * (EXTENT * scene_scale(viewmats)), colors


def neighbour_distances(points: Tensor) -> Tensor:
    """Root mean square distance of each point to its 3 nearest neighbours, at least 1e-7.

    With fewer than 4 points the mean is over the neighbours there are; a single point has none and gets 1.

    Args:
        points: positions [P, 3], finite, in any floating-point type, on the CPU or not.

    Returns:
        distances [P] in the points' type and on their device.

    Raises:
        InputError: another shape, or positions that are not finite.
    """
    if points.ndim != 2 or points.shape[1] != 3:
        raise InputError("points", got=f"shape {tuple(points.shape)}", expected="shape (P, 3)")
    if not torch.isfinite(points).all():
        raise InputError("points", got="NaN or infinite positions", expected="finite ones")
    if len(points) < 2:
        return torch.ones_like(points[:, 0])
    positions = points.detach().double().cpu().numpy()
    nearest = min(NEIGHBOURS + 1, len(positions))  # with the point itself, or one at its place, at distance 0
    distances, _ = KDTree(positions).query(positions, k=nearest, workers=-1)
    rms = np.sqrt(np.mean(np.square(distances[:, 1:]), axis=1))
    return torch.from_numpy(np.maximum(rms, SMALLEST_DISTANCE)).to(points)
