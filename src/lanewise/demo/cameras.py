"""The demo's cameras: rings of views around the scene."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lanewise.demo.shapes import Array, normalize

_TARGET = np.array([0.0, 0.15, 0.45])  # what every camera looks at, world
_RINGS = ((4.3, 1.5, 0.42), (3.8, 2.9, 0.35), (2.9, 4.5, 0.23))  # radius, height, share of the views
_FIELD_OF_VIEW = np.deg2rad(58)  # across the picture's width


@dataclass(frozen=True)
class Camera:
    """A pinhole camera without skew.

    Attributes:
        viewmat: world to camera, [4, 4] float64, OpenCV axes (x right, y down, z forward).
        K: intrinsics, [3, 3] float64; pixel centres are at + 0.5.
        width, height: size of the picture in pixels.
    """

    viewmat: Array
    K: Array
    width: int
    height: int

    @property
    def centre(self) -> Array:
        """The camera's place in the world, [3] float64."""
        return -self.viewmat[:3, :3].T @ self.viewmat[:3, 3]

    def rays(self, dx: float = 0.5, dy: float = 0.5) -> tuple[Array, Array]:
        """Origins and unit directions, [3, H * W] float32 each in row-major order, at (dx, dy) of each pixel."""
        y, x = np.mgrid[: self.height, : self.width].reshape(2, -1)
        pixels = np.stack([x + dx, y + dy, np.ones(x.shape)])
        direction = self.viewmat[:3, :3].T @ np.linalg.inv(self.K) @ pixels
        origin = np.repeat(self.centre[:, None], pixels.shape[1], axis=1)
        return origin.astype(np.float32), normalize(direction).astype(np.float32)

    def project(self, point: Array) -> tuple[Array, Array]:
        """Pixels [2, R] and depths [R] of world points [3, R]; pixels mean nothing where a depth is not positive."""
        own = self.viewmat[:3, :3] @ point + self.viewmat[:3, 3:]
        x, y, depth = self.K @ own
        safe = np.where(depth == 0, 1, depth)
        return np.stack([x / safe, y / safe]), depth


def look_at(centre: Array, target: Array) -> Array:
    """World-to-camera [4, 4] float64 of a camera at `centre` [3] that looks at `target` [3]; z is up in the world."""
    forward = (target - centre) / np.linalg.norm(target - centre)
    right = np.cross(forward, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    rotation = np.stack([right, np.cross(forward, right), forward])
    viewmat = np.eye(4)
    viewmat[:3, :3], viewmat[:3, 3] = rotation, -rotation @ centre
    return viewmat


def rings(views: int, width: int, height: int) -> tuple[Camera, ...]:
    """`views` cameras in three rings, each ring turned a little against the one below."""
    focal = 0.5 * width / np.tan(0.5 * _FIELD_OF_VIEW)
    K = np.array([[focal, 0, 0.5 * width], [0, focal, 0.5 * height], [0, 0, 1]])
    counts = [round(views * share) for *_, share in _RINGS[:-1]]
    counts.append(views - sum(counts))
    cameras = []
    for ring, ((radius, ring_height, _), count) in enumerate(zip(_RINGS, counts, strict=True)):
        for turn in 2 * np.pi * (np.arange(count) / count) + 0.3 * ring:
            centre = np.array([radius * np.cos(turn), radius * np.sin(turn), ring_height])
            cameras.append(Camera(look_at(centre, _TARGET), K, width, height))
    return tuple(cameras)
