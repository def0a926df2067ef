"""Intrinsics that follow the images as they are, and the refusal of those that cannot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.errors import InputError
from lanewise.io.captures.frame import Frame, Intrinsics, drop_unusable_points, make_views, plain_factor


def frame(path, intrinsics, mask=None, name=None) -> Frame:
    return Frame(name or path.name, path, mask, np.eye(4), intrinsics)


@settings(deadline=None)
@given(st.integers(50, 5000), st.integers(50, 5000), st.integers(2, 8), st.sampled_from([np.floor, np.ceil, np.round]))
def test_every_way_of_rounding_a_factor_is_plain(width, height, factor, rounding):
    small = int(rounding(width / factor)), int(rounding(height / factor))
    assert plain_factor(small, (width, height))
    assert plain_factor((width * factor, height * factor), (width, height))


@pytest.mark.parametrize(
    ("size", "reference"),
    [
        ((943, 720), (960, 720)),
        ((942, 704), (943, 704)),
        ((720, 960), (960, 720)),
        ((480, 352), (960, 720)),
        ((3, 4), (4, 4)),
    ],
)
def test_crops_and_turns_are_not_plain(size, reference):
    assert not plain_factor(size, reference)


def test_downscale_uses_the_resulting_size(tmp_path, noise, save):
    path = save(tmp_path / "a.png", noise(0, width=943, height=705))
    (view,), warnings = make_views([frame(path, Intrinsics(943, 705, 800.0, 790.0, 470.0, 350.0))], 2)
    assert (view.width, view.height) == (472, 353)
    sx, sy = 472 / 943, 353 / 705
    np.testing.assert_allclose(view.K, [[800 * sx, 0, 470 * sx], [0, 790 * sy, 350 * sy], [0, 0, 1]], rtol=1e-15)
    assert not warnings


def test_plain_factor_rescales_with_one_warning(tmp_path, noise, save):
    camera = Intrinsics(48, 32, 40.0, 40.0, 24.0, 16.0)
    frames = [frame(save(tmp_path / f"{i}.png", noise(i, width=12, height=8)), camera) for i in range(3)]
    views, warnings = make_views(frames, 1)
    np.testing.assert_array_equal(views[0].K, [[10, 0, 6], [0, 10, 4], [0, 0, 1]])
    assert warnings == ["3 image(s) of 12 x 8 pixels have intrinsics for 48 x 32: the intrinsics were scaled"]


def test_contradicting_size_is_refused(tmp_path, noise, save):
    path = save(tmp_path / "a.png", noise(0, width=120, height=80))
    with pytest.raises(InputError, match=r"a\.png: got 120 x 80 pixels, expected 122 x 80 as the intrinsics say.*crop"):
        make_views([frame(path, Intrinsics(122, 80, 100, 100, 60, 40))], 1)
    with pytest.raises(InputError, match="turned by 90 degrees"):
        make_views([frame(path, Intrinsics(80, 120, 100, 100, 60, 40))], 1)


def test_mask_size_must_match(tmp_path, noise, save):
    image, mask = save(tmp_path / "a.png", noise(0)), save(tmp_path / "m.png", noise(0, width=5, height=5))
    camera = Intrinsics(12, 8, 10, 10, 6, 4)
    with pytest.raises(InputError, match=r"m\.png: got 5 x 5 pixels, expected 12 x 8 as a\.png says"):
        make_views([frame(image, camera, mask)], 1)
    larger = save(tmp_path / "m2.png", noise(0, width=24, height=16))
    assert make_views([frame(image, camera, larger)], 1)[0][0].mask_path == larger


def test_views_are_sorted_and_unique(tmp_path, noise, save):
    camera = Intrinsics(12, 8, 10, 10, 6, 4)
    frames = [frame(save(tmp_path / name, noise(0)), camera) for name in ("b.png", "a.png", "c.png")]
    assert [view.name for view in make_views(frames, 1)[0]] == ["a.png", "b.png", "c.png"]
    with pytest.raises(InputError, match=r"'b\.png'.*listed twice"):
        make_views([*frames, frames[0]], 1)


def test_downscale_never_reaches_zero(tmp_path, noise, save):
    path = save(tmp_path / "a.png", noise(0))
    (view,), _ = make_views([frame(path, Intrinsics(12, 8, 10, 10, 6, 4))], 100)
    assert (view.width, view.height) == (1, 1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((12, 8, 0.0, 10, 6, 4), "focal lengths 0, 10"),
        ((12, 8, 10, -5.0, 6, 4), "focal lengths 10, -5"),
        ((12, 8, 1e-5, 10, 6, 4), "focal lengths 1e-05"),
        ((12, 8, np.nan, 10, 6, 4), "intrinsics fx, fy, cx, cy"),
        ((12, 8, 10, 10, np.inf, 4), "intrinsics fx, fy, cx, cy"),
        ((0, 8, 10, 10, 6, 4), "image size of 0 x 8"),
        ((12, 10**400, 10, 10, 6, 4), "image size of 12 x 1000"),
    ],
)
def test_what_is_no_camera(values, message):
    with pytest.raises(InputError, match=f"cam 3: got .*{message}"):
        Intrinsics(*values).check("cam 3")


def test_points_that_are_not_finite_are_dropped():
    xyz = np.array([[0.0, 1, 2], [np.nan, 0, 0], [3, 4, 5], [0, np.inf, 0], [0, 0, -1e30]])
    rgb = np.arange(15, dtype=np.uint8).reshape(5, 3)
    kept, colors, warnings = drop_unusable_points(xyz, rgb, where="sparse/0")
    np.testing.assert_array_equal(kept, xyz[[0, 2]])
    np.testing.assert_array_equal(colors, rgb[[0, 2]])
    assert warnings == ["sparse/0: dropped 3 point(s) whose position is not finite"]
    assert drop_unusable_points(kept, colors, where="sparse/0")[2] == []
