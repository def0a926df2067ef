"""COLMAP projects: cameras that a pinhole can be, poses, names, masks, and the real sets against pycolmap."""

from __future__ import annotations

import struct
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lanewise.errors import InputError
from lanewise.io.captures import check_images, load_capture
from lanewise.io.captures.colmap import CAMERA_MODELS, Camera, Image, Points, read_model, write_model
from lanewise.io.captures.colmap.capture import is_distorted

FISHEYE = {
    "OPENCV_FISHEYE",
    "SIMPLE_RADIAL_FISHEYE",
    "RADIAL_FISHEYE",
    "THIN_PRISM_FISHEYE",
    "RAD_TAN_THIN_PRISM_FISHEYE",
    "SIMPLE_FISHEYE",
    "FISHEYE",
    "EUCM",
    "EQUIRECTANGULAR",
}
IDENTITY = np.array([1.0, 0, 0, 0])


def camera(model: str, distortion: float = 0.0) -> Camera:
    values = {"f": 10.0, "fx": 10.0, "fy": 11.0, "cx": 6.5, "cy": 3.5}
    return Camera(1, model, 12, 8, tuple(values.get(name, distortion) for name in CAMERA_MODELS[model].params))


@pytest.mark.parametrize("model", sorted(set(CAMERA_MODELS) - FISHEYE))
def test_models_without_distortion_are_pinholes(tmp_path, write_colmap, model):
    view = load_capture(write_colmap(tmp_path, camera=camera(model))).views[0]
    fy = 11.0 if "fy" in CAMERA_MODELS[model].params else 10.0
    np.testing.assert_array_equal(view.K, [[10, 0, 6.5], [0, fy, 3.5], [0, 0, 1]])


@pytest.mark.parametrize("model", sorted(set(CAMERA_MODELS) - {"SIMPLE_PINHOLE", "PINHOLE"}))
def test_distorted_cameras_are_refused_with_the_command(tmp_path, write_colmap, model):
    folder = write_colmap(tmp_path / "my capture", camera=camera(model, 1e-4))
    with pytest.raises(InputError) as caught:
        load_capture(folder)
    message = str(caught.value)
    assert f"camera 1: got a distorted camera, {model} " in message
    assert f"`pip install 'lanewise[colmap]'`, then `lanewise sfm --undistort '{folder}' --out DIR`" in message


@pytest.mark.parametrize("model", sorted(FISHEYE))
def test_fisheye_is_no_pinhole_at_zero(model):
    assert is_distorted(camera(model))


def test_pycolmap_agrees_which_models_are_pinholes_at_zero(pycolmap):
    """What a camera does to a ray 40 degrees off the axis, with zero distortion, is the truth behind the table."""
    ray = np.array([[0.6, 0.5]])  # x / z, y / z
    for name, model in CAMERA_MODELS.items():
        if name == "EQUIRECTANGULAR":
            continue
        made = pycolmap.Camera(model=name, width=12, height=8, params=list(camera(name).params))
        x, y = made.img_from_cam(np.array([[*ray[0], 1.0]]))[0]
        fy = 11.0 if "fy" in model.params else 10.0
        is_pinhole = np.allclose((x, y), (10 * ray[0, 0] + 6.5, fy * ray[0, 1] + 3.5), atol=1e-9)
        assert is_pinhole == model.pinhole_at_zero or name == "EUCM", name  # EUCM's beta must not be 0 to be a camera


def test_unused_camera_may_be_distorted(tmp_path, write_colmap):
    write_colmap(tmp_path)
    model = read_model(tmp_path / "sparse/0")
    other = Camera(2, "OPENCV", 12, 8, (10, 10, 6, 4, 1, 1, 1, 1))
    write_model(tmp_path / "sparse/0", [*model.cameras, other], model.images, model.points)
    assert len(load_capture(tmp_path).views) == 3


def test_masks_of_both_names(tmp_path, write_colmap, save):
    write_colmap(tmp_path, names=["a/x.png", "a/y.png", "z.png"])
    white = np.full((8, 12), 255, np.uint8)
    save(tmp_path / "masks/a/x.png.png", white)
    save(tmp_path / "masks/a/y.png", white)
    views = load_capture(tmp_path).views
    assert [view.name for view in views] == ["a/x.png", "a/y.png", "z.png"]
    assert [view.mask_path for view in views] == [
        tmp_path / "masks/a/x.png.png",
        tmp_path / "masks/a/y.png",
        None,
    ]


def test_masks_that_belong_to_nothing_are_a_warning(tmp_path, write_colmap, save):
    save(write_colmap(tmp_path) / "masks/other.png", np.zeros((8, 12), np.uint8))
    (warning,) = load_capture(tmp_path).warnings
    assert "no mask belongs to an image" in warning


def test_second_model_is_a_warning(tmp_path, write_colmap):
    (write_colmap(tmp_path) / "sparse/1").mkdir()
    (warning,) = load_capture(tmp_path).warnings
    assert "fell into several models" in warning


def test_points_that_are_not_finite_are_dropped_with_a_warning(tmp_path, write_colmap):
    points = Points(np.array([[0.0, 1, 2], [np.nan, 0, 0]]), np.array([[1, 2, 3], [4, 5, 6]], np.uint8))
    capture = load_capture(write_colmap(tmp_path, points=points))
    assert capture.points is not None
    np.testing.assert_array_equal(capture.points, [[0, 1, 2]])
    assert "dropped 1 point(s)" in capture.warnings[0]


def images(*changes) -> list[Image]:
    """Two images, the second with the given fields."""
    fields = {"id": 2, "quat": IDENTITY, "translation": np.zeros(3), "camera_id": 1, "name": "01.png"}
    return [Image(1, IDENTITY, np.ones(3), 1, "00.png"), Image(**{**fields, **dict(changes)})]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("quat", np.array([1.0, np.nan, 0, 0])), "image '01.png': got pose qw qx qy qz tx ty tz .*finite"),
        (("translation", np.array([0.0, 0, np.inf])), "image '01.png': got pose .*finite"),
        (("quat", np.zeros(4)), "image '01.png': got the quaternion .*length 1"),
        (("quat", np.array([1.01, 0, 0, 0])), "image '01.png': got the quaternion .*length 1"),
        (("camera_id", 9), "image '01.png': got camera 9, expected a camera of the model"),
        (("id", 1), "image 1: got 2 entries"),
        (("name", "00.png"), "image '00.png': got listed twice"),
        (("name", "../00.png"), "image 2: got the name '../00.png'"),
        (("name", "/etc/passwd"), "image 2: got the name '/etc/passwd'"),
        (("name", ""), "image 2: got the name ''"),
        (("name", "no.png"), "no.png: got no such file.*Fix: put the file there"),
    ],
)
def test_unusable_images_are_named(tmp_path, write_colmap, change, message):
    write_colmap(tmp_path, 2, images=images(change))
    with pytest.raises(InputError, match=message):
        load_capture(tmp_path)


def test_quaternion_rounded_to_three_digits_is_accepted(tmp_path, write_colmap):
    quat = np.array([0.707, 0.707, 0, 0])
    view = load_capture(write_colmap(tmp_path, 2, images=images(("quat", quat)))).views[1]
    np.testing.assert_allclose(view.viewmat[:3, :3], [[1, 0, 0], [0, 0, -1], [0, 1, 0]], atol=1e-15)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ((0.0, 11.0, 6.5, 3.5), "camera 1: got focal lengths 0, 11"),
        ((10.0, -11.0, 6.5, 3.5), "camera 1: got focal lengths 10, -11"),
        ((10.0, np.nan, 6.5, 3.5), "camera 1: got parameters .*nan"),
        ((10.0, 11.0, np.inf, 3.5), "camera 1: got parameters .*inf"),
    ],
)
def test_unusable_intrinsics_are_named(tmp_path, write_colmap, params, message):
    write_colmap(tmp_path, camera=Camera(1, "PINHOLE", 12, 8, params))
    with pytest.raises(InputError, match=message):
        load_capture(tmp_path)


def test_no_registered_image(tmp_path, write_colmap):
    write_colmap(tmp_path)
    write_model(tmp_path / "sparse/0", [camera("PINHOLE")], [], Points(np.empty((0, 3)), np.empty((0, 3), np.uint8)))
    with pytest.raises(InputError, match=r"got no registered image.*Fix: take more photographs"):
        load_capture(tmp_path)


def test_real_capture_equals_pycolmaps(sample_data, pycolmap):
    folder = sample_data("miku_quick")
    capture = load_capture(folder)
    oracle = pycolmap.Reconstruction(folder / "sparse" / "0")
    theirs = sorted(oracle.images.values(), key=lambda image: image.name)
    assert [view.name for view in capture.views] == [image.name for image in theirs]
    for view, image in zip(capture.views, theirs, strict=True):
        np.testing.assert_allclose(view.viewmat[:3], image.cam_from_world().matrix(), rtol=0, atol=2e-15)
        np.testing.assert_array_equal(view.K, image.camera.calibration_matrix())
    points = [oracle.points3D[id] for id in sorted(oracle.points3D)]
    np.testing.assert_array_equal(capture.points, [point.xyz for point in points])
    np.testing.assert_array_equal(capture.colors, [point.color for point in points])


@pytest.mark.parametrize("downscale", [1, 3])
def test_points_project_where_they_were_observed(sample_data, pycolmap, downscale):
    """The conventions end to end: K (viewmat p) meets the observations in pixels, also after downscaling."""
    folder = sample_data("miku_quick")
    capture = load_capture(folder, downscale=downscale)
    oracle = pycolmap.Reconstruction(folder / "sparse" / "0")
    by_name = {image.name: image for image in oracle.images.values()}
    errors = []
    for view in capture.views[::8]:
        seen = [p for p in by_name[view.name].points2D if p.has_point3D()]
        world = np.array([[*oracle.points3D[p.point3D_id].xyz, 1.0] for p in seen])
        projected = (view.K @ (view.viewmat @ world.T)[:3]).T
        full = by_name[view.name].camera
        observed = np.array([p.xy for p in seen]) * (view.width / full.width, view.height / full.height)
        errors.append(np.linalg.norm(projected[:, :2] / projected[:, 2:] - observed, axis=1) * downscale)
    assert np.median(np.concatenate(errors)) < 0.5  # pixels of the full image; a shift of half a pixel would show


@pytest.fixture
def put_model(tmp_path, save, noise):
    """Writes the files of a model into a capture of two images, and loads and checks the capture."""
    for name in ("00.png", "01.png"):
        save(tmp_path / "images" / name, noise(0))
    (tmp_path / "sparse/0").mkdir(parents=True)

    def put(blobs: dict[str, bytes]):
        for name, blob in blobs.items():
            (tmp_path / "sparse/0" / name).write_bytes(blob)
        capture = load_capture(tmp_path)
        check_images(capture.views, workers=1)
        return capture

    return put


@pytest.fixture(scope="module")
def valid_binary() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        points = Points(np.arange(9.0).reshape(3, 3), np.zeros((3, 3), np.uint8))
        write_model(Path(folder), [camera("PINHOLE")], images(("id", 2)), points)
        blobs = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    observation = struct.pack("<Q2dq", 1, 3.0, 4.0, -1)  # one instead of none, of the last image
    return {**blobs, "images.bin": blobs["images.bin"][:-8] + observation}


VALID_TEXT = {
    "cameras.txt": "1 PINHOLE 12 8 10 11 6.5 3.5\n",
    "images.txt": "1 1 0 0 0 1 2 3 1 00.png\n1 2 3\n2 0 1 0 0 4 5 6 1 01.png\n\n",
    "points3D.txt": "# Number of points: 2, x\n1 2 3 4 255 0 0 0.5\n2 3 4 5 0 0 0 1 2 3\n",
}
fuzz = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)


def test_what_is_damaged_below_is_valid(put_model, valid_binary):
    assert len(put_model({name: text.encode() for name, text in VALID_TEXT.items()}).views) == 2
    assert len(put_model(valid_binary).views) == 2


@fuzz
@given(data=st.data())
def test_damaged_bytes_raise_nothing_but_input_errors(put_model, valid_binary, data):
    name = data.draw(st.sampled_from(sorted(valid_binary)))
    blob = bytearray(valid_binary[name])
    for _ in range(data.draw(st.integers(0, 3))):
        position = data.draw(st.integers(0, len(blob) - 1))
        blob[position] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from([0, 0x7F, 0xFF])))
    end = data.draw(st.one_of(st.just(len(blob)), st.integers(0, len(blob))))
    with suppress(InputError):
        put_model({**valid_binary, name: bytes(blob[:end])})


@fuzz
@given(data=st.data())
def test_damaged_text_raises_nothing_but_input_errors(put_model, data):
    name = data.draw(st.sampled_from(sorted(VALID_TEXT)))
    tokens = VALID_TEXT[name].split(" ")
    odd = st.sampled_from(["nan", "-inf", "1e999", "", "-1", "\n", "0", "9" * 400, "\0", "../x", "PINHOLE", "\x85"])
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(tokens) - 1))
        tokens[position] = data.draw(st.one_of(odd, st.text(st.characters(codec="utf-8"), max_size=5)))
    texts = {**VALID_TEXT, name: " ".join(tokens)}
    with suppress(InputError):
        put_model({name: text.encode() for name, text in texts.items()})
