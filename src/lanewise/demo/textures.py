"""Procedural albedo: functions of a surface point in the body's own frame, [3, R] -> linear RGB [3, R] in 0..1."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lanewise.demo.shapes import Array, column

Texture = Callable[[Array], Array]
Colour = tuple[float, float, float]

_WAVES = 5  # plane waves in `cloud`
_OFF_FACE = np.float32(0.01)  # keeps a body's face off a change of colour, where rounding would choose the colour


def srgb(code: str) -> Colour:
    """Linear RGB of a colour written as `#rrggbb`."""
    r, g, b = (int(code[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return r**2.2, g**2.2, b**2.2


def mix(a: Colour | Array, b: Colour | Array, weight: Array) -> Array:
    """From `a` (weight 0) to `b` (weight 1); colours are [3] or [3, R], the weight is [R]."""
    a, b = (np.asarray(c, np.float32).reshape(3, -1) for c in (a, b))
    return a + (b - a) * weight


def cloud(point: Array, frequency: float, seed: int) -> Array:
    """Smooth noise in about -1..1, [R]: a sum of plane waves with random directions and phases."""
    rng = np.random.default_rng(seed)
    waves = rng.normal(size=(_WAVES, 3)).astype(np.float32) * np.float32(frequency)
    phases = rng.uniform(0, 2 * np.pi, _WAVES).astype(np.float32)
    total = np.zeros_like(point[0])
    for wave, phase in zip(waves, phases, strict=True):
        total += np.sin(wave[0] * point[0] + wave[1] * point[1] + wave[2] * point[2] + phase)
    return total * np.float32(np.sqrt(0.5 / _WAVES))


def plain(colour: Colour) -> Texture:
    """One colour."""
    return lambda point: np.broadcast_to(column(colour), point.shape)


def checker(a: Colour, b: Colour, size: float) -> Texture:
    """Cubes of two colours in alternation."""

    def texture(point: Array) -> Array:
        return mix(a, b, np.floor(point / np.float32(size) + _OFF_FACE).astype(np.int32).sum(axis=0) & 1)

    return texture


def stripes(a: Colour, b: Colour, axis: int, size: float) -> Texture:
    """Slabs of two colours across an axis."""
    return lambda point: mix(a, b, np.floor(point[axis] / np.float32(size) + _OFF_FACE).astype(np.int32) & 1)


def segments(a: Colour, b: Colour, count: int) -> Texture:
    """`count` sectors of each of two colours around the z axis."""

    def texture(point: Array) -> Array:
        turn = np.arctan2(point[1], point[0]) * np.float32(count / np.pi)
        return mix(a, b, np.floor(turn).astype(np.int32) & 1)

    return texture


def marble(a: Colour, b: Colour, frequency: float, seed: int) -> Texture:
    """Veins of `b` in a ground of `a`."""

    def texture(point: Array) -> Array:
        phase = point[2] * np.float32(frequency) + 2 * cloud(point, frequency / 3, seed)
        return mix(a, b, np.abs(np.sin(phase)) ** 3)

    return texture


def wood(a: Colour, b: Colour, frequency: float, seed: int) -> Texture:
    """Rings around the z axis, bent a little."""

    def texture(point: Array) -> Array:
        radius = np.hypot(point[0] + np.float32(0.3), point[1] - np.float32(0.2)) * np.float32(frequency)
        return mix(a, b, 0.5 + 0.5 * np.sin(radius + 1.5 * cloud(point, 2.0, seed)))

    return texture


def tiles(colours: tuple[Colour, ...], grout: Colour, size: float, seed: int) -> Texture:
    """Square tiles in the x, y plane, each of one of the colours, a little mottled, with grout between."""
    palette = np.array(colours, np.float32).T
    table = np.random.default_rng(seed).integers(0, len(colours), (64, 64))

    def texture(point: Array) -> Array:
        cell = np.floor(point[:2] / np.float32(size))
        inside = point[:2] / np.float32(size) - cell
        edge = np.abs(inside - np.float32(0.5)).max(axis=0)
        i, j = cell.astype(np.int32) & 63
        mottled = palette[:, table[i, j]] * (1 + np.float32(0.18) * cloud(point, 5.0, seed))
        return mix(mottled, grout, (edge > 0.46).astype(np.float32))

    return texture
