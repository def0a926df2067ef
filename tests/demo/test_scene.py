import numpy as np
import pytest

from lanewise.demo.scene import Material, Solid, still_life
from lanewise.demo.shapes import Box, Sphere, column, dot
from lanewise.demo.textures import plain


def test_a_turned_box_shows_its_face_where_it_was_turned_to():
    box = Solid(Box((0.5, 0.2, 0.1)), (1.0, 2.0, 3.0), Material(plain((1, 1, 1))), turn=np.pi / 2)
    towards = column((0, 1, 0))
    origin = column((1, 0, 3))
    # A quarter turn about z lays the half length 0.5 along y.
    np.testing.assert_allclose(box.hit(origin, towards), 1.5, atol=1e-5)
    np.testing.assert_allclose(box.normal(origin + 1.5 * towards), -towards, atol=1e-5)


def test_tilt_is_applied_before_turn():
    solid = Solid(Sphere(1), (0, 0, 0), Material(plain((1, 1, 1))), turn=np.pi / 2, tilt=np.pi / 2)
    np.testing.assert_allclose(solid.rotation @ [0, 0, 1], [1, 0, 0], atol=1e-6)  # z to -y, then to x


def test_near_keeps_every_ray_that_hits():
    rng = np.random.default_rng(1)
    origin = rng.uniform(-4, 4, (3, 3000)).astype(np.float32)
    direction = rng.normal(size=(3, 3000)).astype(np.float32)
    direction /= np.linalg.norm(direction, axis=0)
    for solid in still_life().solids:
        hit = np.flatnonzero(np.isfinite(solid.hit(origin, direction)))
        outside = np.linalg.norm(origin[:, hit] - column(solid.centre), axis=0) > solid.shape.bound
        assert set(hit[outside]) <= set(solid.near(origin, direction))


def test_every_ray_inside_the_hall_ends_on_the_floor_or_the_dome():
    scene = still_life()
    rng = np.random.default_rng(3)
    origin = np.abs(rng.uniform(-3, 3, (3, 2000))).astype(np.float32)
    direction = rng.normal(size=(3, 2000)).astype(np.float32)
    direction /= np.linalg.norm(direction, axis=0)
    t, is_floor = scene.hall(origin, direction)
    end = origin + t * direction
    assert (t > 0).all()
    assert 0.2 < is_floor.mean() < 0.8
    np.testing.assert_allclose(end[2, is_floor], 0, atol=1e-4)
    np.testing.assert_allclose(np.sqrt(dot(end, end))[~is_floor], scene.dome_radius, rtol=1e-4)
    assert (end[2, ~is_floor] > -1e-3).all()


def test_the_floor_fades_into_the_foot_of_the_dome():
    scene = still_life()
    radius = np.array([0, 1, 2, 0.99 * scene.dome_radius], np.float32)
    fade = scene.floor_fade(np.stack([radius, 0 * radius, 0 * radius]))
    np.testing.assert_allclose(fade[[0, 1, 2]], 0)
    assert fade[3] == pytest.approx(1)


def test_solids_stand_on_the_floor_and_inside_the_dome():
    scene = still_life()
    for solid in scene.solids:
        assert np.linalg.norm(solid.centre) + solid.shape.bound < 0.5 * scene.dome_radius
        assert solid.centre[2] > 0
