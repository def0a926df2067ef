"""Nerfstudio captures: distortion, masks, points, splits, other image folders, damage."""

from __future__ import annotations

import copy
import json
import math
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lanewise.errors import InputError
from lanewise.io.captures import check_images, load_capture


def test_small_capture(tmp_path, write_transforms):
    capture = load_capture(write_transforms(tmp_path))
    assert (capture.format, capture.background, capture.has_own_split) == ("nerfstudio", None, False)
    assert capture.points is None
    assert capture.colors is None
    assert [view.name for view in capture.views] == ["images/00.png", "images/01.png", "images/02.png"]
    view = capture.views[1]
    np.testing.assert_array_equal(view.K, [[10, 0, 6.5], [0, 11, 3.5], [0, 0, 1]])
    np.testing.assert_array_equal(view.viewmat @ [1, 0, 0, 1], [0, 0, 5, 1])


def test_intrinsics_of_a_frame_win(tmp_path, write_transforms):
    write_transforms(tmp_path, meta={"fl_x": 99.0}, frame={"fl_x": 20.0})
    assert load_capture(tmp_path).views[0].K[0, 0] == 20


@pytest.mark.parametrize(
    "camera",
    [{"k1": 0.1}, {"k4": -1e-3}, {"p2": 1e-5}, {"k1": math.nan}, {"is_fisheye": True}]
    + [{"camera_model": model} for model in ("OPENCV_FISHEYE", "EQUIRECTANGULAR", "NO_SUCH")],
)
@pytest.mark.parametrize("place", ["meta", "frame"])
def test_distorted_cameras_are_refused(tmp_path, write_transforms, camera, place):
    write_transforms(tmp_path, **{place: camera})
    with pytest.raises(
        InputError, match=r"frames\[0\]: got a distorted camera.*lanewise\[colmap\].*--undistort CAPTURE"
    ):
        load_capture(tmp_path)


def test_distorted_capture_with_a_colmap_model_names_itself(tmp_path, write_colmap, write_transforms):
    write_colmap(tmp_path, sparse="colmap/sparse/0")
    write_transforms(tmp_path, meta={"k1": 0.1})
    with pytest.raises(InputError, match=f"lanewise sfm --undistort {tmp_path} --out DIR"):
        load_capture(tmp_path, format="nerfstudio")


def test_zero_distortion_is_a_pinhole(tmp_path, write_transforms):
    write_transforms(tmp_path, meta={"camera_model": "OPENCV", "k1": 0.0, "k2": 0, "p1": 0, "p2": 0.0})
    assert len(load_capture(tmp_path).views) == 3


def test_masks(tmp_path, write_transforms, save):
    mask = save(tmp_path / "masks/m.png", np.zeros((8, 12), np.uint8))
    write_transforms(tmp_path, frame={"mask_path": "masks/m.png"})
    assert {view.mask_path for view in load_capture(tmp_path).views} == {mask}
    mask.unlink()
    with pytest.raises(InputError, match=r"masks.m\.png: got no such file"):
        load_capture(tmp_path)


def test_another_image_folder(tmp_path, write_transforms, save, noise):
    write_transforms(tmp_path)
    for i in range(3):
        save(tmp_path / f"images_2/{i:02d}.png", noise(i, width=6, height=4))
    capture = load_capture(tmp_path, images="images_2")
    assert capture.views[0].path == tmp_path / "images_2/00.png"
    np.testing.assert_array_equal(capture.views[0].K, [[5, 0, 3.25], [0, 5.5, 1.75], [0, 0, 1]])
    assert "the intrinsics were scaled" in capture.warnings[0]


def test_points(tmp_path, write_transforms):
    rows = "0 1 2 255 0 7\nnan 0 0 1 2 3\n3 4 5 10 20 30\n"
    header = "ply\nformat ascii 1.0\nelement vertex 3\n" + "".join(f"property float {a}\n" for a in "xyz")
    header += "".join(f"property uchar {c}\n" for c in ("red", "green", "blue")) + "end_header\n"
    (tmp_path / "pc.ply").write_text(header + rows)
    capture = load_capture(write_transforms(tmp_path, meta={"ply_file_path": "pc.ply"}))
    np.testing.assert_array_equal(capture.points, [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(capture.colors, [[255, 0, 7], [10, 20, 30]])
    assert "dropped 1 point(s)" in capture.warnings[0]


def split(tmp_path, write_transforms, **lists):
    return load_capture(write_transforms(tmp_path, 4, meta={f"{name}_filenames": v for name, v in lists.items()}))


def test_own_split(tmp_path, write_transforms):
    capture = split(
        tmp_path,
        write_transforms,
        train=["images/00.png", "./images/01.png"],
        test=["images/02.png"],
        val=["images/02.png"],
    )
    assert capture.has_own_split
    assert [view.split for view in capture.views] == ["train", "train", "test", None]
    assert [view.name for view in capture.train_views()] == ["images/00.png", "images/01.png"]
    assert [view.name for view in capture.test_views()] == ["images/02.png"]
    assert "1 image(s) are in no split" in capture.warnings[0]


def test_splits_that_make_no_sense(tmp_path, write_transforms):
    with pytest.raises(InputError, match=r"'test_filenames': got 'images/00\.png', which 'train_filenames' lists too"):
        split(tmp_path, write_transforms, train=["images/00.png"], test=["images/00.png"])
    with pytest.raises(InputError, match=r"'train_filenames': got 'x\.png', which no frame has"):
        split(tmp_path, write_transforms, train=["x.png"])
    with pytest.raises(InputError, match=r"'train_filenames': got no file, expected at least one"):
        split(tmp_path, write_transforms, test=["images/00.png"])
    with pytest.raises(InputError, match=r"'val_filenames': got 7, expected a list of file names"):
        split(tmp_path, write_transforms, val=7)


def test_no_frames(tmp_path, write_transforms):
    with pytest.raises(InputError, match="'frames': got no registered image"):
        load_capture(write_transforms(tmp_path, 0))


def test_missing_image_is_named(tmp_path, write_transforms):
    write_transforms(tmp_path)
    (tmp_path / "images/01.png").unlink()
    with pytest.raises(InputError, match=r"images.01\.png: got no such file"):
        load_capture(tmp_path)


def test_frame_listed_twice(tmp_path, write_transforms):
    write_transforms(tmp_path, frame={"file_path": "images/00.png"})
    with pytest.raises(InputError, match=r"'images/00\.png': got listed twice"):
        load_capture(tmp_path)


VALID = {
    "w": 12, "h": 8, "fl_x": 10.0, "cx": 6.0, "camera_model": "OPENCV", "k1": 0.0, "train_filenames": ["a.png"],
    "frames": [
        {"file_path": name, "transform_matrix": np.eye(4).tolist(), "mask_path": "a.png"} for name in ("a.png", "b.png")
    ],
}  # fmt: skip
json_values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.just([]), st.just({}),
    st.sampled_from([10**400, "\0", "x" * 5000, "../a.png", "/", ".", "\ud800", [[1]], 1e308]),
)  # fmt: skip


def places(value, path=()):
    """The paths to all values inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [place for key, item in items for place in places(item, (*path, key))]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=400)
@given(data=st.data())
def test_damaged_files_raise_nothing_but_input_errors(tmp_path, save, noise, data):
    for name in ("a.png", "b.png"):
        save(tmp_path / name, noise(0))
    meta = copy.deepcopy(VALID)
    *parents, last = data.draw(st.sampled_from([(None,), *places(VALID)]))
    target = meta
    for key in parents:
        target = target[key]
    if last is not None:
        target[last] = data.draw(json_values)
    text = json.dumps(meta)
    end = data.draw(st.one_of(st.just(len(text)), st.just(len(text)), st.integers(0, len(text))))
    (tmp_path / "transforms.json").write_text(text[:end])
    with suppress(InputError):
        check_images(load_capture(tmp_path).views, workers=1)
        assert end == len(text)


def test_what_is_damaged_above_is_valid(tmp_path, save, noise):
    for name in ("a.png", "b.png"):
        save(tmp_path / name, noise(0))
    (tmp_path / "transforms.json").write_text(json.dumps(VALID))
    assert len(load_capture(tmp_path).views) == 2
