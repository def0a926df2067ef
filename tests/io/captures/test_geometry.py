"""Rotations against SciPy, and what counts as a pose."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.transform import Rotation

from lanewise.errors import InputError
from lanewise.io.captures.geometry import (
    camera_centres,
    check_finite,
    matrix_to_quat,
    nearest_rotation,
    quat_to_matrix,
    viewmat_from,
)

quats = arrays(np.float64, 4, elements=st.floats(-2, 2)).filter(lambda q: np.linalg.norm(q) > 1e-3)


@settings(deadline=None)
@given(quats)
def test_quat_to_matrix_is_scipys(quat):
    expected = Rotation.from_quat(quat, scalar_first=True).as_matrix()
    np.testing.assert_allclose(quat_to_matrix(quat), expected, rtol=0, atol=1e-15)


@settings(deadline=None)
@given(quats)
def test_matrix_to_quat_inverts(quat):
    found = matrix_to_quat(quat_to_matrix(quat))
    unit = quat / np.linalg.norm(quat)
    assert found[0] >= 0
    assert np.linalg.norm(found) == pytest.approx(1, abs=1e-15)
    assert min(np.abs(found - unit).max(), np.abs(found + unit).max()) < 4e-16 * 4


@pytest.mark.parametrize("axis", np.eye(3))
def test_matrix_to_quat_at_half_turns(axis):
    quat = np.array([0.0, *axis])
    np.testing.assert_allclose(matrix_to_quat(quat_to_matrix(quat)), quat, atol=1e-15)


@settings(deadline=None)
@given(quats, arrays(np.float64, 3, elements=st.floats(-10, 10)))
def test_camera_centre_maps_to_the_origin(quat, centre):
    rotation = quat_to_matrix(quat)
    viewmat = viewmat_from(rotation, -rotation @ centre)
    np.testing.assert_allclose(camera_centres(viewmat[None])[0], centre, atol=1e-13)


@settings(deadline=None)
@given(quats, st.floats(-6, 6), arrays(np.float64, (3, 3), elements=st.floats(-1e-4, 1e-4)))
def test_nearest_rotation_removes_scale_and_rounding(quat, log_scale, rounding):
    rotation = quat_to_matrix(quat)
    found = nearest_rotation(10**log_scale * (rotation + rounding), where="here")
    np.testing.assert_allclose(found.T @ found, np.eye(3), atol=1e-14)
    assert np.linalg.det(found) > 0
    np.testing.assert_allclose(found, rotation, atol=5e-4)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((3, 3)), "singular"),
        (np.diag([1.0, 1.0, 0.0]), "singular"),
        (np.diag([1.0, 1.0, -1.0]), "mirroring"),
        (np.diag([1.0, 1.0, 1.01]), "off by"),
        (np.array([[1.0, 0.01, 0], [0, 1, 0], [0, 0, 1]]), "off by"),
        (np.full((3, 3), 1e-320), "singular"),
    ],
)
def test_what_is_no_rotation_is_refused(matrix, message):
    with pytest.raises(InputError, match=f"cam 3: got .*{message}.*Fix: "):
        nearest_rotation(matrix, where="cam 3")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_not_finite_is_refused(bad):
    with pytest.raises(InputError, match=r"cam 3: got pose .*expected finite"):
        check_finite(np.array([0.0, bad]), where="cam 3", what="pose")
    check_finite(np.array([0.0, -1e17]), where="cam 3", what="pose")
