import numpy as np
import pytest

from lanewise.demo import textures
from lanewise.demo.shapes import column

A, B = (0.9, 0.5, 0.1), (0.05, 0.2, 0.7)
TEXTURES = {
    "plain": textures.plain(A),
    "checker": textures.checker(A, B, 0.2),
    "stripes": textures.stripes(A, B, 2, 0.2),
    "segments": textures.segments(A, B, 5),
    "marble": textures.marble(A, B, 9.0, 1),
    "wood": textures.wood(A, B, 20.0, 1),
    "tiles": textures.tiles((A, B), (0.2, 0.2, 0.2), 0.5, 1),
}


@pytest.fixture
def points() -> np.ndarray:
    return np.random.default_rng(2).uniform(-2, 2, (3, 5000)).astype(np.float32)


@pytest.mark.parametrize("name", TEXTURES)
def test_albedo_is_a_colour(name, points):
    albedo = TEXTURES[name](points)
    assert albedo.shape == points.shape
    assert albedo.min() >= 0
    assert albedo.max() <= 1.25  # mottling brightens a tile a little


@pytest.mark.parametrize("name", ["checker", "stripes", "segments"])
def test_two_colours_in_about_equal_parts(name, points):
    albedo = TEXTURES[name](points)
    is_a = np.abs(albedo - column(A)).max(axis=0) < 1e-6
    is_b = np.abs(albedo - column(B)).max(axis=0) < 1e-6
    assert (is_a ^ is_b).all()
    assert 0.4 < is_a.mean() < 0.6


def test_checker_alternates_over_every_axis():
    start = np.full((3, 1), 0.1, np.float32)
    texture = TEXTURES["checker"]
    for axis in range(3):
        moved = start.copy()
        moved[axis] += 0.2
        assert not np.allclose(texture(start), texture(moved))
        moved[axis] += 0.2
        np.testing.assert_array_equal(texture(start), texture(moved))


def test_cloud_is_smooth_fixed_noise(points):
    noise = textures.cloud(points, 1.0, 4)
    np.testing.assert_array_equal(noise, textures.cloud(points, 1.0, 4))
    assert not np.allclose(noise, textures.cloud(points, 1.0, 5))
    assert 0.3 < noise.std() < 0.7
    assert np.abs(textures.cloud(points + np.float32(1e-3), 1.0, 4) - noise).max() < 0.02


def test_srgb_decodes_to_linear():
    np.testing.assert_allclose(textures.srgb("#ff8000"), (1.0, (128 / 255) ** 2.2, 0.0))
