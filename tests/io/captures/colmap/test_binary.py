"""The binary COLMAP model: what is written is read back, by this reader and by pycolmap."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lanewise.errors import InputError, StorageError
from lanewise.io.captures.colmap import CAMERA_MODELS, Camera, Image, Points, write_model
from lanewise.io.captures.colmap.binary import read_cameras, read_images, read_points
from lanewise.io.captures.geometry import quat_to_matrix, viewmat_from


def sample(seed: int = 0) -> tuple[list[Camera], list[Image], Points]:
    """A model with every camera model, an image each, and a few points."""
    rng = np.random.default_rng(seed)
    cameras = [
        Camera(7 + i, name, 640 + i, 480, tuple(rng.uniform(1, 500, len(model.params))))
        for i, (name, model) in enumerate(CAMERA_MODELS.items())
    ]
    images = [
        Image.from_viewmat(
            100 - i, viewmat_from(quat_to_matrix(rng.normal(size=4)), rng.normal(size=3)), camera.id, f"a b/ü{i}.png"
        )
        for i, camera in enumerate(cameras)
    ]
    return cameras, images, Points(rng.normal(size=(5, 3)), rng.integers(0, 256, (5, 3), dtype=np.uint8))


def test_round_trip_is_exact(tmp_path: Path):
    cameras, images, points = sample()
    write_model(tmp_path / "sparse" / "0", cameras, images, points)
    assert list(read_cameras(tmp_path / "sparse/0/cameras.bin")) == cameras
    read = read_images(tmp_path / "sparse/0/images.bin")
    assert [(i.id, i.camera_id, i.name) for i in read] == [(i.id, i.camera_id, i.name) for i in images]
    for ours, theirs in zip(read, images, strict=True):
        np.testing.assert_array_equal(ours.viewmat, theirs.viewmat)
    again = read_points(tmp_path / "sparse/0/points3D.bin")
    np.testing.assert_array_equal(again.xyz, points.xyz)
    np.testing.assert_array_equal(again.rgb, points.rgb)


def test_empty_model_round_trips(tmp_path: Path):
    write_model(tmp_path, [], [], Points(np.empty((0, 3)), np.empty((0, 3), np.uint8)))
    assert read_cameras(tmp_path / "cameras.bin") == ()
    assert read_images(tmp_path / "images.bin") == ()
    assert read_points(tmp_path / "points3D.bin").xyz.shape == (0, 3)


def test_pycolmap_reads_what_is_written(tmp_path: Path):
    pycolmap = pytest.importorskip("pycolmap", reason="pycolmap is the oracle: pip install 'lanewise[colmap]'")
    cameras, images, points = sample()
    write_model(tmp_path, cameras, images, points)
    oracle = pycolmap.Reconstruction(tmp_path)
    for camera in cameras:
        theirs = oracle.cameras[camera.id]
        assert (theirs.model.name, theirs.width, theirs.height) == (camera.model, camera.width, camera.height)
        assert tuple(theirs.params) == camera.params
    for image in images:
        theirs = oracle.images[image.id]
        assert (theirs.name, theirs.camera_id) == (image.name, image.camera_id)
        np.testing.assert_allclose(theirs.cam_from_world().matrix(), image.viewmat[:3], rtol=0, atol=1e-14)
    assert len(oracle.points3D) == len(points.xyz)
    for i, point in enumerate(oracle.points3D[id] for id in sorted(oracle.points3D)):
        np.testing.assert_array_equal(point.xyz, points.xyz[i])
        np.testing.assert_array_equal(point.color, points.rgb[i])


def test_unwritable_folder_is_a_storage_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="the model cannot be written"):
        write_model(tmp_path / "file" / "0", *sample())


@pytest.mark.parametrize(
    ("reader", "name"), [(read_cameras, "cameras.bin"), (read_images, "images.bin"), (read_points, "points3D.bin")]
)
def test_every_truncation_is_refused(tmp_path: Path, reader, name: str):
    write_model(tmp_path, *sample())
    path = tmp_path / name
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=name):
            reader(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(InputError, match="truncated or damaged"):
        reader(path)
