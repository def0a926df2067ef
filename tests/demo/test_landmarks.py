import numpy as np
import pytest

from lanewise.demo.cameras import rings
from lanewise.demo.landmarks import landmarks
from lanewise.demo.scene import still_life
from lanewise.demo.tracer import nearest


@pytest.fixture(scope="module")
def views():
    cameras = rings(12, 48, 36)
    scene = still_life()
    distances = [nearest(scene, *camera.rays())[0].reshape(36, 48) for camera in cameras]
    return cameras, distances


def constant(value: int, cameras) -> list:
    return [np.full((36, 48, 3), value, np.uint8) for _ in cameras]


def test_points_lie_on_surfaces_that_several_views_see(views):
    cameras, distances = views
    xyz, rgb = landmarks(cameras, constant(90, cameras), distances, 1000, seed=1)
    assert xyz.shape == rgb.shape
    assert 600 < len(xyz) <= 1000
    assert (rgb == 90).all()
    shown = np.zeros(len(xyz), int)
    for camera in cameras:
        # Trace towards every point itself: is it what the camera sees first?
        path = xyz.T - camera.centre[:, None]
        length = np.linalg.norm(path, axis=0)
        origin = np.repeat(camera.centre[:, None], len(xyz), axis=1)
        t, _ = nearest(still_life(), origin.astype(np.float32), (path / length).astype(np.float32))
        pixel, depth = camera.project(xyz.T)
        in_picture = (depth > 0) & (pixel >= 0).all(axis=0) & (pixel[0] < 48) & (pixel[1] < 36)
        shown += in_picture & (np.abs(t - length) < 0.03 * length)
    # Coarse pixels and the noise let a few points at outlines slip.
    assert (shown >= 2).mean() > 0.97
    assert np.median(shown) >= 3


def test_points_carry_the_noise_of_their_measurement(views):
    cameras, distances = views
    xyz, _ = landmarks(cameras, constant(0, cameras), distances, 3000, seed=2)
    on_floor = np.abs(xyz[:, 2]) < 0.05
    assert on_floor.mean() > 0.2
    assert 2e-3 < xyz[on_floor, 2].std() < 1.5e-2
    assert np.abs(np.median(xyz[on_floor, 2])) < 1e-3


def test_the_colour_is_the_mean_over_the_views(views):
    cameras, distances = views
    pictures = [np.full((36, 48, 3), 10 * i, np.uint8) for i in range(len(cameras))]
    _, rgb = landmarks(cameras, pictures, distances, 500, seed=3)
    assert rgb.std() > 0
    assert rgb.min() >= 10  # three different views at least: (0 + 10 + 20) / 3
    assert rgb.max() <= 100


def test_points_of_too_few_views_are_dropped(views):
    cameras, distances = views
    xyz, rgb = landmarks(cameras[:2], constant(5, cameras[:2]), distances[:2], 200, seed=1)
    assert xyz.shape == rgb.shape == (0, 3)


def test_the_seed_decides(views):
    cameras, distances = views
    draw = [landmarks(cameras, constant(5, cameras), distances, 200, seed=s)[0] for s in (1, 1, 2)]
    np.testing.assert_array_equal(draw[0], draw[1])
    assert draw[0].shape != draw[2].shape or not np.allclose(draw[0], draw[2])
