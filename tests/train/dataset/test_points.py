"""Where training starts, and its degenerate cases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.errors import InputError
from lanewise.io.captures import Capture, View
from lanewise.train.dataset import initial_points, neighbour_distances, scene_scale


def viewmats(centres) -> np.ndarray:
    """Cameras at the given places that look along a tilted axis."""
    rotation = np.array([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]])
    made = np.tile(np.eye(4), (len(centres), 1, 1))
    made[:, :3, :3] = rotation
    made[:, :3, 3] = -np.asarray(centres, float) @ rotation.T
    return made


def capture(centres, format="colmap", points=None, colors=None) -> Capture:
    views = tuple(
        View(f"{i}.png", Path(f"{i}.png"), v, np.eye(3), 1, 1, None, None) for i, v in enumerate(viewmats(centres))
    )
    return Capture(Path(), format, views, points, colors, None, False, ())


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_scene_scale_is_the_farthest_camera_from_the_mean():
    assert scene_scale(viewmats([(0, 0, 0), (0, 0, 0), (3, 0, 4), (1, 0, 0)])) == pytest.approx(
        1.1 * np.linalg.norm([2, 0, 3])
    )


@settings(deadline=None)
@given(st.floats(1e-3, 1e3), st.integers(0, 1000))
def test_scene_scale_follows_the_unit_and_not_the_origin(unit, seed):
    centres = np.random.default_rng(seed).normal(size=(5, 3))
    expected = scene_scale(viewmats(centres)) * unit
    assert scene_scale(viewmats(centres * unit + 7)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("centres", [[(5, 6, 7)], [(1e5, 0.1, 0.3)] * 4])
def test_cameras_at_one_place_have_scale_one(centres):
    assert scene_scale(viewmats(centres)) == 1.0


@pytest.mark.parametrize("shape", [(0, 4, 4), (4, 4), (2, 3, 4)])
def test_scene_scale_refuses_other_shapes(shape):
    with pytest.raises(InputError, match=r"viewmats: got shape .*expected shape \(N, 4, 4\)"):
        scene_scale(np.zeros(shape))


def test_the_captures_points_are_taken():
    points, colors = np.array([[1.0, 2, 3], [4, 5, 6]]), np.array([[0, 51, 255], [1, 2, 3]], np.uint8)
    found, shades = initial_points(capture([(0, 0, 0)], points=points, colors=colors), generator=generator())
    assert (found.dtype, shades.dtype) == (torch.float32, torch.float32)
    np.testing.assert_array_equal(found, points)
    np.testing.assert_allclose(shades, colors / 255, atol=1e-7)


def test_blender_start():
    points, colors = initial_points(capture([(4, 0, 0), (0, 4, 0)], "blender"), generator=generator(), count=20_000)
    assert points.shape == colors.shape == (20_000, 3)
    assert points.abs().max() <= 1.3
    np.testing.assert_allclose(points.amax(0), 1.3, atol=0.01)
    np.testing.assert_allclose(points.amin(0), -1.3, atol=0.01)
    assert 0 <= colors.min() < 0.01 < 0.99 < colors.max() <= 1
    assert abs(np.corrcoef(points[:, 0], colors[:, 0])[0, 1]) < 0.05


def test_random_start_is_a_cube_about_the_cameras():
    centres = [(10, 0, 0), (12, 0, 0)]  # scene scale 1.1 about (11, 0, 0)
    empty = np.empty((0, 3))
    for made in (capture(centres), capture(centres, points=empty, colors=empty.astype(np.uint8))):
        points, _ = initial_points(made, generator=generator(), count=20_000)
        np.testing.assert_allclose(points.amax(0), [14.3, 3.3, 3.3], atol=0.02)
        np.testing.assert_allclose(points.amin(0), [7.7, -3.3, -3.3], atol=0.02)


def test_the_generator_decides():
    made = capture([(0, 0, 0), (1, 0, 0)])
    first, again, other = (initial_points(made, generator=generator(seed), count=50) for seed in (3, 3, 4))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])


def test_count_is_positive():
    with pytest.raises(InputError, match="count: got 0"):
        initial_points(capture([(0, 0, 0)]), generator=generator(), count=0)


@settings(deadline=None)
@given(st.integers(4, 40), st.integers(0, 1000))
def test_neighbour_distances_against_all_pairs(count, seed):
    points = torch.randn(count, 3, dtype=torch.float64, generator=generator(seed))
    nearest = torch.cdist(points, points).topk(4, largest=False).values[:, 1:]
    expected = nearest.square().mean(1).sqrt()
    found = neighbour_distances(points)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
    assert neighbour_distances(points.float()).dtype == torch.float32


def test_fewer_points_than_neighbours():
    assert neighbour_distances(torch.zeros(0, 3)).shape == (0,)
    assert neighbour_distances(torch.tensor([[1.0, 2, 3]])).tolist() == [1.0]
    assert neighbour_distances(torch.tensor([[0.0, 0, 0], [3, 4, 0]])).tolist() == [5.0, 5.0]
    three = neighbour_distances(torch.tensor([[0.0, 0, 0], [3, 0, 0], [0, 4, 0]], dtype=torch.float64))
    np.testing.assert_allclose(three, np.sqrt([12.5, 17, 20.5]))


def test_coincident_points_keep_a_positive_distance():
    found = neighbour_distances(torch.ones(5, 3))
    torch.testing.assert_close(found, torch.full((5,), 1e-7))
    mixed = neighbour_distances(torch.tensor([[0.0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0]]))
    torch.testing.assert_close(mixed, torch.tensor([2 / 3, 2 / 3, 4 / 3, 4 / 3]).sqrt())


def test_neighbour_distances_refuses_what_has_none():
    with pytest.raises(InputError, match=r"points: got shape \(3,\)"):
        neighbour_distances(torch.zeros(3))
    with pytest.raises(InputError, match="points: got NaN or infinite"):
        neighbour_distances(torch.tensor([[float("nan"), 0, 0]]))
