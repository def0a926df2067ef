"""A small ray tracer in numpy: diffuse and glossy shading, area-lamp shadows, contact shade and one mirror bounce.

It shares no code with the splat renderer, so that pictures of the one may judge the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lanewise.demo.cameras import Camera
from lanewise.demo.scene import Scene
from lanewise.demo.shapes import EPSILON, Array, column, dot, normalize

# Where the rays of a pixel pass, as (dx, dy): one a row and one a column, so that upright and level edges
# get five steps. The same pattern places the point of the lamp that each ray sees.
SAMPLES = ((0.5, 0.5), (0.1, 0.3), (0.3, 0.9), (0.7, 0.1), (0.9, 0.7))
_SHININESS = 60  # exponent of the Blinn-Phong highlight
_DOME, _FLOOR = -2, -1  # what a ray met, beside the index of a solid


def nearest(scene: Scene, origin: Array, direction: Array) -> tuple[Array, Array]:
    """Distance [R] to the first surface along unit rays [3, R], and its index [R] (a solid's, -1 floor, -2 dome)."""
    t, is_floor = scene.hall(origin, direction)
    index = np.where(is_floor, _FLOOR, _DOME)
    for i, solid in enumerate(scene.solids):
        rays = solid.near(origin, direction)
        distance = solid.hit(origin[:, rays], direction[:, rays])
        closer = distance < t[rays]
        t[rays[closer]] = distance[closer]
        index[rays[closer]] = i
    return t, index


def shadowed(scene: Scene, origin: Array, lamp: Array) -> Array:
    """Whether a solid stands between the points [3, R] and the lamp point [3], bool [R]."""
    path = lamp[:, None] - origin
    length = np.sqrt(dot(path, path))
    direction = path / length
    blocked = np.zeros(length.shape, bool)
    for solid in scene.solids:
        rays = solid.near(origin, direction)
        blocked[rays] |= solid.hit(origin[:, rays], direction[:, rays]) < length[rays]
    return blocked


def openness(scene: Scene, point: Array, normal: Array) -> Array:
    """Share of ambient light that the bodies leave, [R]; each occludes as a sphere of three quarters its bound."""
    share = np.ones_like(point[0])
    for solid in scene.solids:
        path = column(solid.centre) - point
        square = np.maximum(dot(path, path), EPSILON)
        facing = np.maximum(dot(path, normal), 0) / np.sqrt(square)
        share *= 1 - facing * np.minimum(np.float32((0.75 * solid.shape.bound) ** 2) / square, 1)
    return share


class Surfaces(NamedTuple):
    """What R rays met, solids and floor: unit normals [3, R], albedos [3, R], gloss [R] and mirror [R]."""

    normal: Array
    albedo: Array
    gloss: Array
    mirror: Array


def surfaces(scene: Scene, point: Array, index: Array) -> Surfaces:
    """The surfaces at points [3, R] on what `index` [R] names: a solid's index or -1 for the floor."""
    met = Surfaces(np.empty_like(point), np.empty_like(point), np.empty_like(point[0]), np.empty_like(point[0]))
    for i in np.unique(index):
        rays = np.flatnonzero(index == i)
        at = point[:, rays]
        if i == _FLOOR:
            material, own = scene.floor, at
            met.normal[:, rays] = column((0, 0, 1))
        else:
            material, own = scene.solids[i].material, scene.solids[i].to_own(at)
            met.normal[:, rays] = scene.solids[i].normal(at)
        met.albedo[:, rays] = material.albedo(own)
        met.gloss[rays], met.mirror[rays] = material.gloss, material.mirror
    return met


def radiance(scene: Scene, origin: Array, direction: Array, lamp: Array, bounces: int = 1) -> tuple[Array, Array]:
    """Linear RGB [3, R] seen along unit rays [3, R] under a point [3] of the lamp, and the distances [R]."""
    t, index = nearest(scene, origin, direction)
    point = origin + t * direction
    colour = scene.dome_colour(point)
    lit = np.flatnonzero(index != _DOME)
    point, direction, index = point[:, lit], direction[:, lit], index[lit]
    normal, albedo, gloss, mirror = surfaces(scene, point, index)

    start = point + 2 * EPSILON * normal
    towards_lamp = normalize(lamp[:, None] - point)
    cosine = np.maximum(dot(normal, towards_lamp), 0)
    facing = np.flatnonzero(cosine > 0)
    cosine[facing] *= ~shadowed(scene, start[:, facing], lamp)
    sky = (0.75 + 0.25 * normal[2]) * openness(scene, point, normal)
    lamp_colour = column(scene.lamp_colour)
    surface = albedo * (column(scene.ambient_colour) * sky + lamp_colour * cosine)

    glossy = np.flatnonzero((gloss > 0) & (cosine > 0))
    halfway = normalize(towards_lamp[:, glossy] - direction[:, glossy])
    surface[:, glossy] += lamp_colour * (gloss[glossy] * np.maximum(dot(normal[:, glossy], halfway), 0) ** _SHININESS)

    shiny = np.flatnonzero(mirror > 0)
    if bounces and len(shiny):
        d, n = direction[:, shiny], normal[:, shiny]
        grazing = np.clip(1 + dot(d, n), 0, 1)
        share = mirror[shiny] + (1 - mirror[shiny]) * np.float32(0.5) * grazing**5
        seen, _ = radiance(scene, start[:, shiny], normalize(d - 2 * dot(d, n) * n), lamp, bounces - 1)
        surface[:, shiny] += share * (seen - surface[:, shiny])

    fade = np.where(index == _FLOOR, scene.floor_fade(point), 0)
    colour[:, lit] = surface + fade * (column(scene.dome_foot) - surface)
    return colour, t


def picture(scene: Scene, camera: Camera) -> tuple[Array, Array]:
    """Photograph a scene.

    Each ray of a pixel sees another point of the lamp, which blends to a soft shadow.

    Returns:
        sRGB uint8 [H, W, 3], and float32 [H, W] the distance along the ray through each pixel's centre.
    """
    total = np.zeros((3, camera.width * camera.height), np.float32)
    distances = []
    for dx, dy in SAMPLES:
        lamp = scene.lamp_point(dx, dy)
        colour, distance = radiance(scene, *camera.rays(dx, dy), lamp)
        total += np.minimum(colour, 1)  # a highlight may not outshine the pixel's other samples
        distances.append(distance)
    encoded = (total / len(SAMPLES)) ** np.float32(1 / 2.2) * 255
    shape = (camera.height, camera.width)
    return np.rint(encoded).astype(np.uint8).T.reshape(*shape, 3), distances[0].reshape(shape)
