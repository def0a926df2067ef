"""The orbit: a circle around what the photographs look at."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.cli.orbit import look_at, nearest_point_to_axes, orbit_viewmats
from lanewise.errors import InputError

UP = np.array([0.0, 0.0, 1.0])


def ring(target, radius=3.0, height=1.0, count=8):
    angles = 2 * np.pi * np.arange(count) / count
    eyes = target + np.stack([radius * np.cos(angles), radius * np.sin(angles), np.full(count, height)], axis=1)
    return np.stack([look_at(eye, target, UP) for eye in eyes])


def centre_of(viewmat):
    return -viewmat[:3, :3].T @ viewmat[:3, 3]


def test_look_at_has_opencv_axes():
    viewmat = look_at(np.array([0.0, -2.0, 0.0]), np.zeros(3), UP)
    right, down, forward = viewmat[:3, :3]
    assert forward == pytest.approx([0, 1, 0])
    assert down == pytest.approx([0, 0, -1])
    assert right == pytest.approx([1, 0, 0])
    assert viewmat @ [0, 0, 0, 1] == pytest.approx([0, 0, 2, 1])  # the target is two units ahead


@settings(max_examples=25, deadline=None)
@given(target=st.tuples(*[st.floats(-5, 5)] * 3), count=st.integers(1, 12))
def test_orbit_of_a_ring_is_that_ring(target, count):
    target = np.array(target)
    for viewmat in orbit_viewmats(ring(target), count):
        offset = centre_of(viewmat) - target
        assert np.hypot(*offset[:2]) == pytest.approx(3.0, abs=1e-3)
        assert offset[2] == pytest.approx(1.0, abs=1e-3)
        in_camera = viewmat @ [*target, 1]
        assert in_camera[:2] == pytest.approx([0, 0], abs=1e-3)  # the target is in the middle of every picture
        assert in_camera[2] > 0
        assert np.linalg.det(viewmat[:3, :3]) == pytest.approx(1.0)


def test_frames_are_evenly_spaced_and_different():
    centres = np.array([centre_of(v) for v in orbit_viewmats(ring(np.zeros(3)), 6)])
    steps = np.linalg.norm(np.roll(centres, -1, axis=0) - centres, axis=1)
    assert steps == pytest.approx(np.full(6, 3.0), abs=1e-3)  # a hexagon's side is its radius


def test_a_single_camera_and_parallel_cameras_have_a_finite_orbit():
    one = look_at(np.array([0.0, -2.0, 0.0]), np.zeros(3), UP)
    assert np.isfinite(orbit_viewmats(one[None], 4)).all()
    row = np.stack([one, one])
    row[1, 0, 3] += 1.0
    assert np.isfinite(orbit_viewmats(row, 4)).all()


def test_lines_that_meet_meet_there():
    directions = np.array([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]])
    point = np.array([1.0, 2.0, 3.0])
    assert nearest_point_to_axes(point - 4 * directions, directions) == pytest.approx(point, abs=1e-4)


def test_no_frames_is_refused():
    with pytest.raises(InputError, match="--orbit: got 0"):
        orbit_viewmats(ring(np.zeros(3)), 0)
