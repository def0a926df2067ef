import numpy as np
import pytest

from lanewise.demo.cameras import look_at, rings


def test_axes_are_opencv():
    """x right, y down, z forward: by hand for a camera on the world's -y axis that looks along +y."""
    viewmat = look_at(np.array([0.0, -5.0, 0.0]), np.zeros(3))
    right, up, ahead = ([1.0, 0, 0, 1], [0, 0, 1.0, 1], [0, 1.0, 0, 1])
    np.testing.assert_allclose(viewmat @ right, [1, 0, 5, 1], atol=1e-12)
    np.testing.assert_allclose(viewmat @ up, [0, -1, 5, 1], atol=1e-12)
    np.testing.assert_allclose(viewmat @ ahead, [0, 0, 6, 1], atol=1e-12)


def test_rays_go_through_the_pixels_that_points_on_them_project_to():
    for camera in rings(6, 32, 20):
        origin, direction = camera.rays(0.25, 0.75)
        pixel, depth = camera.project(origin.astype(np.float64) + 3.0 * direction)
        y, x = np.mgrid[:20, :32].reshape(2, -1)
        np.testing.assert_allclose(pixel, [x + 0.25, y + 0.75], atol=1e-4)
        assert (depth > 0).all()


def test_rotations_are_proper_and_the_scene_is_in_the_middle():
    for camera in rings(9, 40, 30):
        rotation = camera.viewmat[:3, :3]
        np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
        assert np.linalg.det(rotation) == pytest.approx(1)
        pixel, _ = camera.project(np.array([[0.0], [0.15], [0.45]]))
        np.testing.assert_allclose(pixel[:, 0], [20, 15], atol=1e-9)


@pytest.mark.parametrize("views", [3, 6, 48, 49])
def test_every_view_has_its_own_place(views):
    cameras = rings(views, 8, 6)
    assert len(cameras) == views
    centres = np.array([camera.centre for camera in cameras])
    apart = np.linalg.norm(centres[:, None] - centres[None], axis=-1) + 10 * np.eye(views)
    assert apart.min() > 0.3
    assert (centres[:, 2] > 1).all()
