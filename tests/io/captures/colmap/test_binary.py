"""The binary COLMAP model: what is written is read back, by this reader and by pycolmap."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from lanewise.errors import InputError, StorageError
from lanewise.io.captures.colmap import Points, write_model
from lanewise.io.captures.colmap.binary import read_cameras, read_images, read_points


def test_round_trip_is_exact(tmp_path: Path, sample):
    cameras, images, points = sample
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


def test_pycolmap_reads_what_is_written(tmp_path: Path, sample, pycolmap):
    cameras, images, points = sample
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


def test_unwritable_folder_is_a_storage_error(tmp_path: Path, sample):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="the model cannot be written"):
        write_model(tmp_path / "file" / "0", *sample)


@pytest.mark.parametrize(
    ("reader", "name"), [(read_cameras, "cameras.bin"), (read_images, "images.bin"), (read_points, "points3D.bin")]
)
def test_every_truncation_is_refused(tmp_path: Path, sample, reader, name: str):
    write_model(tmp_path, *sample)
    path = tmp_path / name
    whole = path.read_bytes()
    for size in {*range(0, len(whole), 7), len(whole) - 1}:
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=name):
            reader(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(InputError, match="truncated or damaged"):
        reader(path)


@pytest.mark.parametrize(
    ("reader", "name"), [(read_cameras, "cameras.bin"), (read_images, "images.bin"), (read_points, "points3D.bin")]
)
def test_forged_count_takes_no_memory(tmp_path: Path, sample, reader, name: str):
    write_model(tmp_path, *sample)
    path = tmp_path / name
    path.write_bytes(struct.pack("<Q", 1 << 40) + path.read_bytes()[8:])
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=f"{name}: got a count of {1 << 40}"):
            reader(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_points_come_by_number(tmp_path: Path):
    record = struct.Struct("<Q3d3BdQ")
    tracks = struct.pack("<4I", 1, 2, 3, 4)  # two observations
    rows = [record.pack(id, id, 0, 0, id, 0, 0, 0.5, 2) + tracks for id in (9, 2, 5)]
    (tmp_path / "points3D.bin").write_bytes(struct.pack("<Q", 3) + b"".join(rows))
    points = read_points(tmp_path / "points3D.bin")
    assert points.xyz[:, 0].tolist() == [2, 5, 9]
    assert points.rgb[:, 0].tolist() == [2, 5, 9]


def test_names_that_are_no_utf8(tmp_path: Path, sample):
    write_model(tmp_path, *sample)
    path = tmp_path / "images.bin"
    path.write_bytes(path.read_bytes().replace(b"a b/", b"\xff\xfe/ ", 1))
    with pytest.raises(InputError, match=r"images\.bin: got the image name b'\\xff"):
        read_images(path)
