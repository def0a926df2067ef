"""Undistorted copies: right pixels, right folder, nothing written into the capture."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from lanewise.errors import InputError, MissingDependencyError, StorageError
from lanewise.io.captures import check_images, load_capture
from lanewise.io.captures.colmap import Camera, Image, Points, read_model, write_model
from lanewise.io.captures.images import decode_image, decode_mask
from lanewise.io.captures.undistort import require_pycolmap, staging, undistort

WIDTH, HEIGHT = 96, 64
PARAMS = (60.0, 60.0, 48.0, 32.0, -0.25, 0.05, 0.002, -0.001)  # OPENCV: fx fy cx cy k1 k2 p1 p2


def distort(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """OpenCV's distortion of points on the plane z = 1."""
    *_, k1, k2, p1, p2 = PARAMS
    r2 = x * x + y * y
    radial = 1 + k1 * r2 + k2 * r2 * r2
    return (
        x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
        y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y,
    )


def scene(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A smooth picture on the plane z = 1, in 0..255."""
    return np.stack([128 + 90 * np.sin(5 * x), 128 + 90 * np.cos(6 * y), 128 + 80 * np.sin(4 * (x + y))], axis=-1)


def pixel_centres(width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    return x, y


@pytest.fixture
def distorted(tmp_path, save) -> Path:
    """A capture whose images show `scene` through the distorted camera, and a mask that excludes its left edge."""
    px, py = pixel_centres(WIDTH, HEIGHT)
    fx, fy, cx, cy = PARAMS[:4]
    xd, yd = (px - cx) / fx, (py - cy) / fy
    x, y = xd.copy(), yd.copy()
    for _ in range(100):  # fixed point: the ray whose distorted image is (xd, yd)
        dx, dy = distort(x, y)
        x, y = x + xd - dx, y + yd - dy
    folder = tmp_path / "capture"
    names = ["a.png", "sub/b.png"]
    for name in names:
        save(folder / "images" / name, np.round(scene(x, y)).astype(np.uint8))
    mask = np.full((HEIGHT, WIDTH), 255, np.uint8)
    mask[:, :40] = 0
    save(folder / "masks/a.png", mask)
    quat = np.array([1.0, 0, 0, 0])
    images = [Image(i + 1, quat, np.array([0.1 * i, 0, 0]), 1, name) for i, name in enumerate(names)]
    points = Points(np.array([[0.0, 0, 1], [0.2, 0.1, 1]]), np.array([[1, 2, 3], [4, 5, 6]], np.uint8))
    write_model(folder / "sparse/0", [Camera(1, "OPENCV", WIDTH, HEIGHT, PARAMS)], images, points)
    return folder


def test_copy_shows_the_scene_through_a_pinhole(tmp_path, distorted, pycolmap):
    before = {p: (p.stat().st_mtime_ns, p.is_file() and p.read_bytes()) for p in [distorted, *distorted.rglob("*")]}
    capture = undistort(distorted, tmp_path / "out")
    assert {p: (p.stat().st_mtime_ns, p.is_file() and p.read_bytes()) for p in before} == before
    assert sorted(p.name for p in distorted.iterdir()) == ["images", "masks", "sparse"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["images", "masks", "sparse"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["capture", "out"]
    check_images(capture.views)
    assert [view.name for view in capture.views] == ["a.png", "sub/b.png"]
    view = capture.views[0]
    px, py = pixel_centres(view.width, view.height)
    expected = scene((px - view.K[0, 2]) / view.K[0, 0], (py - view.K[1, 2]) / view.K[1, 1])
    found = decode_image(view.path, view.width, view.height).astype(float)
    # Half a pixel of shift would cost about 4 grey levels on average here.
    assert np.abs(found - expected)[2:-2, 2:-2].mean() < 1.0
    np.testing.assert_array_equal(capture.views[1].viewmat[:3, 3], [0.1, 0, 0])
    np.testing.assert_array_equal(capture.points, [[0, 0, 1], [0.2, 0.1, 1]])


def test_masks_follow_the_images(tmp_path, distorted, pycolmap):
    view = undistort(distorted, tmp_path / "out").views[0]
    assert view.mask_path is not None
    assert view.mask_path == tmp_path / "out/masks/a.png.png"
    counts = decode_mask(view.mask_path, view.width, view.height)
    px, py = pixel_centres(view.width, view.height)
    xd, _ = distort((px - view.K[0, 2]) / view.K[0, 0], (py - view.K[1, 2]) / view.K[1, 1])
    column = xd * PARAMS[0] + PARAMS[2]  # where each pixel lies in the distorted image
    assert not counts[column < 40].any()
    assert counts[column > 42].all()


def test_lost_transparency_is_a_warning(tmp_path, distorted, pycolmap, save, noise):
    save(distorted / "images/a.png", noise(0, WIDTH, HEIGHT, 4))
    assert "1 image(s) lost their transparency" in undistort(distorted, tmp_path / "out").warnings[0]


def test_pinhole_capture_needs_no_copy(tmp_path, write_colmap, pycolmap):
    with pytest.raises(InputError, match=r"got pinhole cameras only.*Fix: train on .* as it is"):
        undistort(write_colmap(tmp_path / "capture"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_model(tmp_path):
    with pytest.raises(InputError, match="got no COLMAP model"):
        undistort(tmp_path, tmp_path.parent / "out")


def test_missing_image_and_names_that_leave(tmp_path, distorted, pycolmap):
    (distorted / "images/a.png").unlink()
    with pytest.raises(InputError, match=r"a\.png: got no such file"):
        undistort(distorted, tmp_path / "out")
    model = read_model(distorted / "sparse/0")
    image = model.images[0]
    leaving = Image(image.id, image.quat, image.translation, 1, "../../b.png")
    write_model(distorted / "sparse/0", model.cameras, [leaving], model.points)
    with pytest.raises(InputError, match=r"got the name '\.\./\.\./b\.png'"):
        undistort(distorted, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_out_must_be_free_and_outside(tmp_path, distorted, pycolmap):
    with pytest.raises(InputError, match=r"--out: got .*expected a folder outside .*never written into"):
        undistort(distorted, distorted / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(InputError, match=r"--out: got .*full, which is not empty"):
        undistort(distorted, tmp_path / "full")
    (tmp_path / "empty").mkdir()
    assert len(undistort(distorted, tmp_path / "empty").views) == 2


def test_staging_leaves_nothing_behind(tmp_path):
    def fail() -> None:
        with staging(tmp_path / "out", apart_from=tmp_path / "in") as stage:
            (stage / "file").touch()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(tmp_path.iterdir()) == []
    with staging(tmp_path / "new/out", apart_from=tmp_path / "in") as stage:
        (stage / "file").touch()
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["out"]
    assert [p.name for p in (tmp_path / "new/out").iterdir()] == ["file"]


def test_unwritable_out(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(StorageError, match=r"cannot be written.*Fix: free space"),
        staging(tmp_path / "file/out", apart_from=tmp_path / "in"),
    ):
        pass


def test_missing_pycolmap_names_the_command(monkeypatch):
    def no_pycolmap(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", no_pycolmap)
    with pytest.raises(MissingDependencyError, match=r"pycolmap is not installed.*pip install 'lanewise\[colmap\]'"):
        require_pycolmap()


def test_real_capture(tmp_path, sample_data, pycolmap):
    """A few images of the distorted set get the poses, size and intrinsics that COLMAP gave the whole set before."""
    folder = sample_data("miku")
    with pytest.raises(InputError, match="lanewise sfm --undistort"):
        load_capture(folder)
    model = read_model(folder / "sparse/0")
    some = sorted(model.images, key=lambda image: image.name)[:4]
    write_model(tmp_path / "some/sparse/0", model.cameras, some, model.points)
    capture = undistort(tmp_path / "some", tmp_path / "out", images=folder / "images")
    known = load_capture(sample_data("miku_undist"))
    assert capture.points is not None
    np.testing.assert_array_equal(capture.points, known.points)
    for view, other in zip(capture.views, known.views[:4], strict=True):
        assert (view.name, view.width, view.height) == (other.name, other.width, other.height)
        np.testing.assert_allclose(view.viewmat, other.viewmat, atol=1e-12)
        np.testing.assert_allclose(view.K, other.K, rtol=1e-12)
