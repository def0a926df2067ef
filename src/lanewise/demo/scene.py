"""The demo's fixed still life: bodies on a tiled floor under a painted dome. World axes: z up, the floor at z = 0."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lanewise.demo.shapes import Array, Box, Shape, Sphere, Torus, column, dot
from lanewise.demo.textures import Texture, checker, marble, mix, plain, segments, srgb, stripes, tiles, wood


@dataclass(frozen=True)
class Material:
    """How a surface answers light.

    Attributes:
        albedo: the diffuse colour at a point of the body's frame.
        gloss: strength of the highlight of the lamp.
        mirror: share of light that is reflected at normal incidence; rises to grazing incidence after Schlick.
    """

    albedo: Texture
    gloss: float = 0.0
    mirror: float = 0.0


@dataclass(frozen=True)
class Solid:
    """A shape at a place of the world: `world = rotation @ own + centre`."""

    shape: Shape
    centre: tuple[float, float, float]
    material: Material
    turn: float = 0.0  # about the world's z axis, radians, after `tilt`
    tilt: float = 0.0  # about the x axis, radians

    @cached_property
    def rotation(self) -> Array:
        """[3, 3] float32, from the body's frame to the world."""
        c, s, ct, st = np.cos(self.turn), np.sin(self.turn), np.cos(self.tilt), np.sin(self.tilt)
        about_z, about_x = (
            np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]),
            np.array([[1, 0, 0], [0, ct, -st], [0, st, ct]]),
        )
        return (about_z @ about_x).astype(np.float32)

    def to_own(self, point: Array) -> Array:
        """World points [3, R] in the body's frame."""
        return self.rotation.T @ (point - column(self.centre))

    def near(self, origin: Array, direction: Array) -> Array:
        """Indices of the rays that meet the bounding sphere ahead of their origin."""
        offset = origin - column(self.centre)
        b, c = dot(offset, direction), dot(offset, offset) - np.float32(self.shape.bound**2)
        return np.flatnonzero((b * b > c) & ((b < 0) | (c < 0)))

    def hit(self, origin: Array, direction: Array) -> Array:
        """As `Shape.hit`, for rays of the world."""
        return self.shape.hit(self.to_own(origin), self.rotation.T @ direction)

    def normal(self, point: Array) -> Array:
        """Outward unit normals at world points, [3, R]."""
        return self.rotation @ self.shape.normal(self.to_own(point))


@dataclass(frozen=True)
class Scene:
    """Solids inside a hall: a floor at z = 0 and a dome about the origin that ends every ray.

    Attributes:
        solids: the bodies.
        floor: the floor's material; it fades into the dome's foot so that no edge shows.
        dome_radius: radius of the dome in world units.
        dome_foot, dome_top: emitted linear RGB at the floor and overhead.
        lamp: centre of the square lamp, world.
        lamp_side: side of that square, parallel to the floor.
        lamp_colour, ambient_colour: linear RGB.
    """

    solids: tuple[Solid, ...]
    floor: Material
    dome_radius: float
    dome_foot: tuple[float, float, float]
    dome_top: tuple[float, float, float]
    lamp: tuple[float, float, float]
    lamp_side: float
    lamp_colour: tuple[float, float, float]
    ambient_colour: tuple[float, float, float]

    def lamp_point(self, u: float, v: float) -> Array:
        """A point of the lamp, [3] float32; (0.5, 0.5) is its centre, 0 and 1 are its edges."""
        side = self.lamp_side
        return np.array(self.lamp, np.float32) + np.array([(u - 0.5) * side, (v - 0.5) * side, 0], np.float32)

    def hall(self, origin: Array, direction: Array) -> tuple[Array, Array]:
        """Distance [R] to the floor or the dome from inside, and whether it is the floor, bool [R]."""
        b = dot(origin, direction)
        dome = -b + np.sqrt(b * b - dot(origin, origin) + np.float32(self.dome_radius**2))
        down = direction[2] < -1e-6
        floor = np.where(down, origin[2] / np.where(down, -direction[2], np.float32(1)), np.float32(np.inf))
        return np.minimum(floor, dome), floor < dome

    def dome_colour(self, point: Array) -> Array:
        """Emitted linear RGB [3, R] at points of the dome."""
        height = np.clip(point[2] / np.float32(self.dome_radius), 0, 1)
        return mix(self.dome_foot, self.dome_top, np.sqrt(height))

    def floor_fade(self, point: Array) -> Array:
        """0 on the stage to 1 at the dome's foot, [R]."""
        radius = np.hypot(point[0], point[1]) / np.float32(self.dome_radius)
        ramp = np.clip((radius - np.float32(0.5)) / np.float32(0.4), 0, 1)
        return ramp * ramp * (3 - 2 * ramp)


def still_life() -> Scene:
    """The scene of `lanewise demo`."""
    cream, ink, teal, red, gold = srgb("#f2e6cf"), srgb("#20232e"), srgb("#2a9d8f"), srgb("#c8402f"), srgb("#e9b949")
    navy, sky, rose, slate = srgb("#27406b"), srgb("#8fc1d9"), srgb("#e59a9a"), srgb("#5b6573")
    return Scene(
        solids=(
            Solid(Sphere(0.8), (-0.3, 0.3, 0.8), Material(marble(cream, navy, 9.0, 3), gloss=0.35, mirror=0.04)),
            Solid(Box((0.42, 0.42, 0.42)), (1.05, 0.75, 0.42), Material(checker(red, cream, 0.21)), turn=0.5),
            Solid(Box((0.22, 0.22, 0.8)), (-0.1, 1.6, 0.8), Material(stripes(teal, cream, 2, 0.16)), turn=0.9),
            Solid(Torus(0.52, 0.19), (0.85, -0.7, 0.19), Material(segments(gold, ink, 8), gloss=0.3, mirror=0.03)),
            Solid(Sphere(0.28), (0.85, -0.7, 0.28), Material(plain(rose), gloss=0.4, mirror=0.05)),
            Solid(
                Torus(0.5, 0.14), (-1.55, -0.2, 0.63), Material(segments(teal, gold, 6), gloss=0.3), turn=0.7, tilt=1.45
            ),
            Solid(Sphere(0.4), (-0.5, -1.15, 0.4), Material(plain(slate), gloss=0.5, mirror=0.35)),
            Solid(Box((0.42, 0.3, 0.2)), (-1.3, 1.2, 0.2), Material(wood(gold, red, 22.0, 5)), turn=-0.4),
            Solid(Sphere(0.26), (-1.3, 1.2, 0.66), Material(checker(navy, sky, 0.13), gloss=0.3)),
            Solid(Sphere(0.24), (1.75, -0.05, 0.24), Material(marble(teal, cream, 16.0, 9), gloss=0.4, mirror=0.03)),
        ),
        floor=Material(tiles((cream, srgb("#d8c3a0"), srgb("#b98f6b"), srgb("#7d8f86")), slate, 0.6, 11)),
        dome_radius=7.0,
        dome_foot=srgb("#c9d6dc"),
        dome_top=srgb("#4f7fae"),
        lamp=(3.0, -3.5, 6.0),
        lamp_side=1.6,
        lamp_colour=(0.95, 0.88, 0.76),
        ambient_colour=(0.44, 0.48, 0.54),
    )
