"""Bodies that a ray can hit, each in its own frame, centred at the origin.

Vectors are stored components first, [3, R] float32, so that each component of the R rays is contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

Array = np.ndarray

EPSILON = np.float32(1e-3)  # a hit nearer than this is the surface that the ray starts from


_STEPS = 40  # of sphere tracing; a grazing ray that needs more is counted as a miss


def column(vector: Sequence[float]) -> Array:
    """A vector as [3, 1] float32, to go with [3, R]."""
    return np.array(vector, np.float32)[:, None]


def dot(a: Array, b: Array) -> Array:
    """Inner products of the columns, [3, R] x [3, R] -> [R]."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def normalize(a: Array) -> Array:
    """The columns at unit length, [3, R]."""
    return a / np.sqrt(dot(a, a))


class Shape(Protocol):
    """A closed surface around the origin."""

    @property
    def bound(self) -> float:
        """Radius of a sphere about the origin that contains the surface."""
        ...

    def hit(self, origin: Array, direction: Array) -> Array:
        """Distance [R] along unit rays [3, R] to the first surface past `EPSILON`; inf where the ray misses."""
        ...

    def normal(self, point: Array) -> Array:
        """Outward unit normals [3, R] at surface points [3, R]."""
        ...


@dataclass(frozen=True)
class Sphere:
    """A sphere."""

    radius: float

    @property
    def bound(self) -> float:
        """As `Shape.bound`."""
        return self.radius

    def hit(self, origin: Array, direction: Array) -> Array:
        """As `Shape.hit`."""
        b = dot(origin, direction)
        discriminant = b * b - dot(origin, origin) + np.float32(self.radius**2)
        t = -b - np.sqrt(np.maximum(discriminant, 0))
        return np.where((discriminant > 0) & (t > EPSILON), t, np.float32(np.inf))

    def normal(self, point: Array) -> Array:
        """As `Shape.normal`."""
        return normalize(point)


@dataclass(frozen=True)
class Box:
    """A box with faces across the axes."""

    half: tuple[float, float, float]

    @property
    def bound(self) -> float:
        """As `Shape.bound`."""
        return float(np.linalg.norm(self.half))

    def hit(self, origin: Array, direction: Array) -> Array:
        """As `Shape.hit`."""
        half = column(self.half)
        inverse = 1 / np.where(np.abs(direction) < 1e-9, np.float32(1e-9), direction)
        middle, reach = -origin * inverse, half * np.abs(inverse)
        enter, leave = (middle - reach).max(axis=0), (middle + reach).min(axis=0)
        return np.where((enter < leave) & (enter > EPSILON), enter, np.float32(np.inf))

    def normal(self, point: Array) -> Array:
        """As `Shape.normal`."""
        relative = point / column(self.half)
        face = np.abs(relative).argmax(axis=0)
        return np.where(np.arange(3)[:, None] == face, np.sign(relative), np.float32(0))


@dataclass(frozen=True)
class Torus:
    """A ring around the z axis, found by sphere tracing (stepping by the distance to the surface)."""

    ring: float
    tube: float

    @property
    def bound(self) -> float:
        """As `Shape.bound`."""
        return self.ring + self.tube

    def _distance(self, point: Array) -> Array:
        from_ring = np.sqrt(point[0] * point[0] + point[1] * point[1]) - np.float32(self.ring)
        return np.sqrt(from_ring * from_ring + point[2] * point[2]) - np.float32(self.tube)

    def hit(self, origin: Array, direction: Array) -> Array:
        """As `Shape.hit`."""
        b = dot(origin, direction)
        half_chord = np.sqrt(np.maximum(b * b - dot(origin, origin) + np.float32(self.bound**2), 0))
        t = np.maximum(-b - half_chord, EPSILON)
        for _ in range(_STEPS):
            t = t + self._distance(origin + t * direction)
        on_surface = np.abs(self._distance(origin + t * direction)) < EPSILON
        return np.where(on_surface & (t > EPSILON) & (t < -b + half_chord), t, np.float32(np.inf))

    def normal(self, point: Array) -> Array:
        """As `Shape.normal`."""
        towards_ring = np.float32(self.ring) / np.hypot(point[0], point[1])
        return normalize(np.stack([point[0] * (1 - towards_ring), point[1] * (1 - towards_ring), point[2]]))
