"""The tracer against light worked out by hand, and its geometry against the cameras' matrices."""

from dataclasses import replace

import numpy as np
import pytest

from lanewise.demo.cameras import Camera, rings
from lanewise.demo.scene import Material, Scene, Solid, still_life
from lanewise.demo.shapes import Array, Sphere, column
from lanewise.demo.textures import plain
from lanewise.demo.tracer import nearest, openness, picture, radiance, shadowed

DOWN = column((0, 0, -1))
LAMP = np.array([0, 0, 5], np.float32)


def scene_of(*solids: Solid, grey: float = 0.3) -> Scene:
    return replace(still_life(), solids=solids, floor=Material(plain((grey, grey, grey))))


def ball(centre: tuple[float, float, float], radius: float, material: Material | None = None) -> Solid:
    return Solid(Sphere(radius), centre, material or Material(plain((1.0, 1.0, 1.0))))


def test_nearest_takes_the_first_of_what_a_ray_meets():
    scene = scene_of(ball((0, 0, 1), 0.2), ball((0, 0, 3), 0.2))
    t, index = nearest(scene, column((0, 0, 5)), DOWN)
    np.testing.assert_allclose(t, 1.8, atol=1e-5)
    assert index == [1]
    t, index = nearest(scene, column((1, 0, 5)), DOWN)
    np.testing.assert_allclose(t, 5, atol=1e-5)
    assert index == [-1]
    t, index = nearest(scene, column((0, 0, 5)), -DOWN)
    np.testing.assert_allclose(t, scene.dome_radius - 5, atol=1e-5)
    assert index == [-2]


def test_a_ball_throws_a_round_shadow_of_the_right_size():
    """From a lamp 4 above its centre, a ball of 0.5 shades the floor 1 below it within 5 tan(asin(0.5 / 4))."""
    edge = 5 * np.tan(np.arcsin(0.5 / 4))
    x = np.linspace(-1.2, 1.2, 241, dtype=np.float32)
    dark = shadowed(scene_of(ball((0, 0, 1), 0.5)), np.stack([x, 0 * x, 0 * x]), LAMP)
    np.testing.assert_array_equal(dark, np.abs(x) < edge)


def test_a_ball_beyond_the_lamp_throws_no_shadow():
    assert not shadowed(scene_of(ball((0, 0, 6), 0.5)), column((0, 0, 0)), LAMP).any()


def test_diffuse_floor_has_lamberts_brightness():
    scene = scene_of(grey=0.3)
    colour, _ = radiance(scene, column((3, 0, 2)), DOWN, LAMP)
    cosine = 5 / np.hypot(3, 5)
    expected = 0.3 * (np.array(scene.ambient_colour) + np.array(scene.lamp_colour) * cosine)
    np.testing.assert_allclose(colour[:, 0], expected, rtol=1e-5)


def test_floor_beside_a_ball_gets_less_ambient_light():
    scene, up = scene_of(ball((0, 0, 0.5), 0.5)), column((0, 0, 1))
    beside, away = openness(scene, column((0.5, 0, 0)), up), openness(scene, column((3, 0, 0)), up)
    # 45 degrees above the floor at a distance of sqrt(1/2), as a sphere of three quarters its size
    np.testing.assert_allclose(beside, 1 - np.sqrt(0.5) * (0.75 * 0.5) ** 2 / 0.5, rtol=1e-5)
    assert 0.97 < away < 1


def test_a_perfect_mirror_shows_what_is_behind_the_viewer():
    scene = scene_of(ball((0, 0, 1), 0.5, Material(plain((1.0, 0.0, 0.0)), mirror=1.0)))
    colour, t = radiance(scene, column((0, 0, 3)), DOWN, LAMP)
    np.testing.assert_allclose(t, 1.5, atol=1e-5)
    np.testing.assert_allclose(colour[:, 0], scene.dome_top, rtol=1e-4)


def test_gloss_adds_a_highlight_that_depends_on_the_view():
    matt, glossy = (scene_of(ball((0, 0, 1), 0.5, Material(plain((0.2, 0.2, 0.2)), gloss=g))) for g in (0.0, 0.4))
    facing, aside = DOWN, column((0.8, 0, -0.6))
    top = column((0, 0, 1.5))
    for direction, brighter in ((facing, 0.4), (aside, 0.0)):
        with_gloss, without = (radiance(s, top - direction, direction, LAMP)[0] for s in (glossy, matt))
        np.testing.assert_allclose(
            (with_gloss - without)[:, 0], brighter * np.array(matt.lamp_colour), atol=0.01 * 0.4, rtol=1e-3
        )


# Three balls of pure colours, none in a plane of symmetry of the cameras.
MARKS = {0: (0.9, 0.4, 0.3), 1: (-0.8, 0.7, 0.6), 2: (0.2, -0.9, 1.1)}
PURE = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def marked_picture(camera: Camera) -> Array:
    balls = [ball(at, 0.14, Material(plain(PURE[channel]))) for channel, at in MARKS.items()]
    return picture(scene_of(*balls, grey=0.4), camera)[0]


def assert_marks_are_where_the_matrices_say(rgb: Array, viewmat: Array, K: Array) -> None:
    """The middle of each ball's pixels, whose centres are at + 0.5, is its centre's projection to a quarter pixel."""
    for channel, at in MARKS.items():
        others = np.delete(rgb, channel, axis=2).max(axis=2)
        y, x = np.nonzero(rgb[..., channel] > 3.0 * others)
        assert len(x) > 20
        own = viewmat[:3, :3] @ at + viewmat[:3, 3]
        u, v, depth = K @ own
        assert depth > 0
        assert abs(u / depth - (x.mean() + 0.5)) < 0.25
        assert abs(v / depth - (y.mean() + 0.5)) < 0.25


@pytest.fixture(scope="module")
def photographs() -> list[tuple[Camera, Array]]:
    return [(camera, marked_picture(camera)) for camera in rings(6, 160, 120)[::2]]


def test_picture_agrees_with_viewmat_and_intrinsics(photographs):
    for camera, rgb in photographs:
        assert_marks_are_where_the_matrices_say(rgb, camera.viewmat, camera.K)


FAULTS = {
    "axes of OpenGL": lambda viewmat, K: (np.diag([1.0, -1, -1, 1]) @ viewmat, K),
    "mirrored": lambda viewmat, K: (np.diag([-1.0, 1, 1, 1]) @ viewmat, K),
    "camera to world": lambda viewmat, K: (np.linalg.inv(viewmat), K),
    "pixel centres at 0": lambda viewmat, K: (viewmat, K - np.array([[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]])),
    "focal length off by 2 %": lambda viewmat, K: (viewmat, K * np.array([[1.02, 1, 1], [1, 1.02, 1], [1, 1, 1]])),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_geometry_check_notices(fault, photographs):
    camera, rgb = photographs[0]
    with pytest.raises(AssertionError):
        assert_marks_are_where_the_matrices_say(rgb, *FAULTS[fault](camera.viewmat, camera.K))


def test_distances_are_those_of_the_pixels_centres():
    camera = rings(3, 16, 12)[0]
    scene = still_life()
    _, distance = picture(scene, camera)
    np.testing.assert_array_equal(distance.ravel(), nearest(scene, *camera.rays())[0])
