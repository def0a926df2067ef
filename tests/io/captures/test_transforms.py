"""Poses, intrinsics and fields of transforms files."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.transform import Rotation

from lanewise.errors import InputError
from lanewise.io.captures.transforms import Fields, read_intrinsics, read_json, read_pose, resolve_file


def fields(**values) -> Fields:
    return Fields(values, "t.json frames[0]")


def pixel(viewmat: np.ndarray, point) -> np.ndarray:
    """Camera coordinates [3] of a world point."""
    return (viewmat @ [*point, 1.0])[:3]


def test_opengl_camera_looks_down_its_z_axis_with_y_up():
    pose = np.eye(4)
    pose[:3, 3] = (0, 0, 5)  # five units along +z, so it sees the origin ahead
    viewmat = read_pose(fields(transform_matrix=pose.tolist()))
    np.testing.assert_array_equal(pixel(viewmat, (0, 0, 0)), [0, 0, 5])
    np.testing.assert_array_equal(pixel(viewmat, (1, 0, 0)), [1, 0, 5])  # world +x is right
    np.testing.assert_array_equal(pixel(viewmat, (0, 1, 0)), [0, -1, 5])  # world +y is up: smaller rows


@settings(deadline=None)
@given(arrays(np.float64, 4, elements=st.floats(-1, 1)).filter(lambda q: np.linalg.norm(q) > 0.1), st.floats(0.01, 100))
def test_pose_is_the_inverse_with_y_and_z_turned(quat, scale):
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = Rotation.from_quat(quat).as_matrix(), (1, -2, 3)
    expected = np.linalg.inv(pose @ np.diag([1, -1, -1, 1]))
    pose[:3, :3] *= scale  # changes no pixel, so it is dropped
    np.testing.assert_allclose(read_pose(fields(transform_matrix=pose.tolist())), expected, atol=1e-13)
    np.testing.assert_allclose(read_pose(fields(transform_matrix=pose[:3].tolist())), expected, atol=1e-13)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (None, "no 'transform_matrix'"),
        ("text", "expected 3 or 4 rows of 4 numbers"),
        ([[1, 2], [3]], "expected 3 or 4 rows of 4 numbers"),
        (np.eye(3).tolist(), "expected 3 or 4 rows of 4 numbers"),
        ([["a"] * 4] * 4, "expected 3 or 4 rows of 4 numbers"),
        (np.diag([1, 1, 1, 2]).tolist(), r"the last row \[0.0, 0.0, 0.0, 2.0\]"),
        (np.diag([1, 1, 0, 1]).tolist(), "singular camera matrix"),
        (np.diag([1, 1, -1, 1]).tolist(), "mirroring camera matrix"),
        (np.diag([1, 2, 3, 1]).tolist(), "off by"),
        (np.diag([1, math.nan, 1, 1]).tolist(), "expected finite numbers"),
        ([[10**400, 0, 0, 0]] * 4, "expected 3 or 4 rows of 4 numbers"),
    ],
)
def test_unusable_poses_name_the_frame(matrix, message):
    with pytest.raises(InputError, match=rf"t\.json frames\[0\].*{message}"):
        read_pose(fields(transform_matrix=matrix))


def test_intrinsics_in_pixels():
    made = read_intrinsics(fields(fl_x=10, fl_y=11, cx=6.5, cy=3.5, w=12.0, h=8, camera_angle_x=1.0), Path("none.png"))
    np.testing.assert_array_equal(made.matrix(), [[10, 0, 6.5], [0, 11, 3.5], [0, 0, 1]])
    assert (made.width, made.height) == (12, 8)


def test_angle_and_the_size_of_the_file(tmp_path, noise, save):
    path = save(tmp_path / "a.png", noise(0))
    made = read_intrinsics(fields(camera_angle_x=math.pi / 2), path)
    np.testing.assert_allclose(made.matrix(), [[6, 0, 6], [0, 6, 4], [0, 0, 1]], rtol=1e-15)
    both = read_intrinsics(fields(camera_angle_x=math.pi / 2, camera_angle_y=2 * math.atan(0.5)), path)
    assert (both.fx, both.fy) == pytest.approx((6, 8))


def test_focal_length_of_one_axis_holds_for_both():
    made = read_intrinsics(fields(fl_x=10, w=12, h=8, camera_angle_y=0.1), Path("none.png"))
    assert (made.fx, made.fy) == (10, 10)


def test_frame_overrides_the_file():
    meta = fields(fl_x=10, w=12, h=8, frames=[{"fl_x": 20}, {"fl_x": None}])
    first, second = meta.objects("frames")
    assert read_intrinsics(first, Path("none.png")).fx == 20
    assert read_intrinsics(second, Path("none.png")).fx == 10


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "neither 'fl_x' nor 'camera_angle_x'"),
        ({"fl_x": "10"}, "'fl_x': got '10', expected a number"),
        ({"fl_x": True}, "'fl_x': got True, expected a number"),
        ({"fl_x": 10**400}, "'fl_x': got 1000.*expected a number"),
        ({"fl_x": 0}, "got focal lengths 0, 0"),
        ({"fl_x": -5}, "got focal lengths -5, -5"),
        ({"fl_x": math.nan}, "expected finite"),
        ({"fl_x": 10, "cx": math.inf}, "expected finite"),
        ({"fl_x": 10, "w": 12.5}, "'w': got 12.5, expected a whole number"),
        ({"fl_x": 10, "w": math.nan}, "'w': got nan, expected a whole number"),
        ({"fl_x": 10, "h": -8}, "image size of 12 x -8"),
        ({"camera_angle_x": 0}, "'camera_angle_x': got 0.0"),
        ({"camera_angle_x": 3.2}, "'camera_angle_x': got 3.2"),
    ],
)
def test_unusable_intrinsics_name_the_frame(values, message):
    with pytest.raises(InputError, match=rf"t\.json frames\[0\].*{message}"):
        read_intrinsics(fields(**{"w": 12, "h": 8, **values}), Path("none.png"))


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"a": 1', "[" * 100_000, '{"a": NaN'])
def test_broken_json_names_the_file(tmp_path, text):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(InputError, match=r"t\.json: got .*expected a JSON object"):
        read_json(tmp_path / "t.json")


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "t.json").write_bytes(b"\xff\x00{}")
    with pytest.raises(InputError, match=r"t\.json: got broken JSON"):
        read_json(tmp_path / "t.json")


def test_wrong_kinds_are_named(tmp_path):
    (tmp_path / "t.json").write_text(json.dumps({"frames": {"a": 1}, "n": [], "e": ""}))
    meta = read_json(tmp_path / "t.json")
    for call, message in [
        (lambda: meta.objects("frames"), r"t\.json 'frames': got \{'a': 1\}, expected a list"),
        (lambda: meta.objects("none"), r"t\.json: got no 'none'"),
        (lambda: meta.text("n"), r"t\.json 'n': got \[\], expected a text"),
        (lambda: meta.text("e"), r"t\.json 'e': got '', expected a text"),
    ]:
        with pytest.raises(InputError, match=message):
            call()


def test_files_are_found_with_and_without_suffix(tmp_path, noise, save):
    save(tmp_path / "train/r_0.png", noise(0))
    save(tmp_path / "train/r_0.5.jpg", noise(0))
    assert resolve_file(tmp_path, "./train/r_0") == ("train/r_0.png", tmp_path / "train/r_0.png")
    assert resolve_file(tmp_path, "train/r_0.png") == ("train/r_0.png", tmp_path / "train/r_0.png")
    assert resolve_file(tmp_path, "train/r_0.5") == ("train/r_0.5.jpg", tmp_path / "train/r_0.5.jpg")
    assert resolve_file(tmp_path, "train/none") == ("train/none", tmp_path / "train/none")


def test_names_never_leave_the_folder(tmp_path, noise, save):
    outside = save(tmp_path / "images/a.png", noise(0))
    inside = tmp_path / "capture"
    assert resolve_file(inside, "../images/a.png")[0] == "images/a.png"
    assert resolve_file(inside, str(outside)) == (str(outside).lstrip("/"), outside)
