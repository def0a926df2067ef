"""A camera path around a scene, derived from the cameras that photographed it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lanewise.errors import InputError

Array = NDArray[np.float64]


def orbit_viewmats(viewmats: Array, count: int) -> Array:
    """Cameras on a circle around what the given cameras look at, each looking at it.

    Args:
        viewmats: world-to-camera matrices [V, 4, 4] of the photographs, OpenCV axes.
        count: number of cameras on the circle, evenly spaced.

    Returns:
        world-to-camera matrices [count, 4, 4]. The circle's axis is the photographs' mean upward direction, its height
        and radius the median of the photographs' own; it starts at the first photograph's side.

    Raises:
        InputError: `count` is below 1.
    """
    if count < 1:
        raise InputError("--orbit", got=count, expected="a number of frames, at least 1")
    rotations = viewmats[:, :3, :3]  # [V, 3, 3]
    centres = -np.einsum("vji,vj->vi", rotations, viewmats[:, :3, 3])  # [V, 3] world
    target = nearest_point_to_axes(centres, rotations[:, 2])
    up = _unit(-rotations[:, 1].mean(axis=0), fallback=-rotations[0, 1])
    offsets = centres - target  # [V, 3]
    heights = offsets @ up  # [V]
    around = offsets - heights[:, None] * up  # [V, 3] the part in the circle's plane
    radius = float(np.median(np.linalg.norm(around, axis=1)))
    # A camera straight above has no side: then any direction across will do.
    start = _unit(around[0], fallback=_cross(up, np.eye(3)[np.argmin(abs(up))]))
    side = _cross(up, start)
    angles = 2 * np.pi * np.arange(count) / count
    circle = np.cos(angles)[:, None] * start + np.sin(angles)[:, None] * side  # [count, 3]
    eyes = target + np.median(heights) * up + max(radius, 1e-6) * circle
    return np.stack([look_at(eye, target, up) for eye in eyes])


def nearest_point_to_axes(centres: Array, directions: Array) -> Array:
    """The point [3] with the least sum of squared distances to V lines.

    Where the lines are (nearly) parallel, what they leave open is settled by a point one camera spacing ahead.

    Args:
        centres: a point of each line, [V, 3].
        directions: the direction of each line, [V, 3].
    """
    directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    across = np.eye(3) - directions[:, :, None] * directions[:, None, :]  # [V, 3, 3] projections across each line
    mean = centres.mean(axis=0)
    spread = float(np.median(np.linalg.norm(centres - mean, axis=1))) or 1.0
    prior = mean + spread * directions.mean(axis=0)
    weight = 1e-6 * len(centres)  # decides only what the lines themselves leave open
    matrix = across.sum(axis=0) + weight * np.eye(3)
    return np.linalg.solve(matrix, np.einsum("vij,vj->i", across, centres) + weight * prior)


def look_at(eye: Array, target: Array, up: Array) -> Array:
    """The world-to-camera matrix [4, 4] (x right, y down, z forward) of a camera at `eye` that looks at `target`."""
    forward = _unit(target - eye, fallback=np.array([0.0, 0.0, 1.0]))
    right = _unit(_cross(forward, up), fallback=_cross(forward, np.eye(3)[np.argmin(abs(forward))]))
    rotation = np.stack([right, _cross(forward, right), forward])  # rows: right, down, forward
    viewmat = np.eye(4)
    viewmat[:3, :3] = rotation
    viewmat[:3, 3] = -rotation @ eye
    return viewmat


def _cross(a: Array, b: Array) -> Array:
    return np.cross(a, b).astype(np.float64)


def _unit(vector: Array, *, fallback: Array) -> Array:
    length = np.linalg.norm(vector)
    if length < 1e-9:
        return fallback / np.linalg.norm(fallback)
    return vector / length
