"""A sparse point cloud such as structure from motion would give: surface points seen by several views, a little off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lanewise.demo.cameras import Camera
from lanewise.demo.shapes import Array

_MIN_VIEWS = 3  # a point in fewer pictures is dropped
_SAME_SURFACE = 0.02  # a pixel shows the point when their distances from the camera agree to this share
_NOISE = 1.5e-3  # standard deviation of a position, as a share of its distance from the camera that found it


def landmarks(
    cameras: Sequence[Camera], pictures: Sequence[Array], distances: Sequence[Array], count: int, seed: int
) -> tuple[Array, Array]:
    """Points on the surfaces that the views see.

    Args:
        cameras: the V views.
        pictures: their pictures, uint8 [H, W, 3] each.
        distances: along the ray through each pixel's centre, [H, W] each.
        count: points to draw; those that fewer than three views see are dropped.
        seed: of the draw and of the noise.

    Returns:
        Positions [P, 3] float64 in world units with P <= count, and colours [P, 3] uint8, each the mean over the views
        that see the point.
    """
    rng = np.random.default_rng(seed)
    exact, found_at = _draw(cameras, distances, count, rng)
    seen = np.zeros(exact.shape[1], np.int64)
    total = np.zeros((exact.shape[1], 3))
    for camera, picture, distance in zip(cameras, pictures, distances, strict=True):
        points, y, x = _visible(exact, camera, distance)
        seen[points] += 1
        total[points] += picture[y, x]
    kept = seen >= _MIN_VIEWS
    noisy = exact + rng.normal(size=exact.shape) * (_NOISE * found_at)
    return noisy.T[kept], np.rint(total[kept] / seen[kept, None]).astype(np.uint8)


def _draw(
    cameras: Sequence[Camera], distances: Sequence[Array], count: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Surface points [3, P] float64 at random pixels of random views, and their distances [P] from those views."""
    views = rng.integers(0, len(cameras), count)
    points, found_at = [], []
    for view, (camera, distance) in enumerate(zip(cameras, distances, strict=True)):
        pixels = rng.integers(0, distance.size, np.count_nonzero(views == view))
        origin, direction = camera.rays()
        t = distance.ravel()[pixels].astype(np.float64)
        points.append(origin[:, pixels] + t * direction[:, pixels])
        found_at.append(t)
    return np.concatenate(points, axis=1), np.concatenate(found_at)


def _visible(points: Array, camera: Camera, distance: Array) -> tuple[Array, Array, Array]:
    """Indices of the points [3, P] that a view shows, and their pixels' rows and columns."""
    pixel, depth = camera.project(points)
    inside = (depth > 0) & (pixel >= 0).all(axis=0) & (pixel[0] < camera.width) & (pixel[1] < camera.height)
    indices = np.flatnonzero(inside)
    x, y = pixel[:, indices].astype(np.int64)
    expected = np.linalg.norm(points[:, indices] - camera.centre[:, None], axis=0)
    same = np.abs(distance[y, x] - expected) < _SAME_SURFACE * expected
    return indices[same], y[same], x[same]
