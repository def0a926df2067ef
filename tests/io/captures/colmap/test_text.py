"""The text COLMAP model, as pycolmap writes it, and damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lanewise.errors import InputError
from lanewise.io.captures.colmap.binary import write_model
from lanewise.io.captures.colmap.text import read_cameras, read_images, read_points

CAMERAS = "# a comment\n\n3 PINHOLE 640 480 500 501 320.5 240\n"
IMAGES = "# comment\n2 1 0 0 0 1 2 3 3 a b.png\n\n1 0 1 0 0 4 5 6 3 c.png\n1.5 2.5 7 3 4 -1\n"
POINTS = "9 1 2 3 10 20 30 0.5 1 2 3 4\n4 -1 -2 -3 255 0 7 0.1\n"


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_reads_a_small_model(tmp_path):
    (camera,) = read_cameras(put(tmp_path, "cameras.txt", CAMERAS))
    assert (camera.id, camera.model, camera.width, camera.height) == (3, "PINHOLE", 640, 480)
    assert camera.params == (500, 501, 320.5, 240)
    first, second = read_images(put(tmp_path, "images.txt", IMAGES))
    assert (first.id, first.name, first.camera_id) == (2, "a b.png", 3)
    np.testing.assert_array_equal(first.viewmat, [[1, 0, 0, 1], [0, 1, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]])
    np.testing.assert_array_equal(second.viewmat[:3, :3], np.diag([1, -1, -1]))  # half a turn about x
    points = read_points(put(tmp_path, "points3D.txt", POINTS))
    np.testing.assert_array_equal(points.xyz, [[-1, -2, -3], [1, 2, 3]])  # by number
    np.testing.assert_array_equal(points.rgb, [[255, 0, 7], [10, 20, 30]])


def test_last_observation_line_may_be_missing(tmp_path):
    assert len(read_images(put(tmp_path, "images.txt", "1 1 0 0 0 1 2 3 3 a.png"))) == 1


def test_windows_line_ends(tmp_path):
    path = tmp_path / "images.txt"
    path.write_bytes(IMAGES.replace("\n", "\r\n").encode())
    assert [image.name for image in read_images(path)] == ["a b.png", "c.png"]


def test_text_of_pycolmap_is_read_as_its_binary(tmp_path, sample, pycolmap):
    write_model(tmp_path, *sample)
    pycolmap.Reconstruction(tmp_path).write_text(tmp_path)
    cameras, images, points = sample
    assert sorted(read_cameras(tmp_path / "cameras.txt"), key=lambda c: c.id) == cameras
    by_id = {image.id: image for image in read_images(tmp_path / "images.txt")}
    assert len(by_id) == len(images)
    for image in images:
        assert (by_id[image.id].name, by_id[image.id].camera_id) == (image.name, image.camera_id)
        np.testing.assert_allclose(by_id[image.id].viewmat, image.viewmat, rtol=0, atol=1e-15)
    read = read_points(tmp_path / "points3D.txt")
    np.testing.assert_array_equal(read.xyz, points.xyz)
    np.testing.assert_array_equal(read.rgb, points.rgb)


@pytest.mark.parametrize(
    ("reader", "text", "line"),
    [
        (read_cameras, "1 PINHOLE 640 480 500 501 320", 1),
        (read_cameras, "\n1 NO_SUCH_MODEL 640 480 500", 2),
        (read_cameras, "1 PINHOLE 640.5 480 500 501 320 240", 1),
        (read_images, "1 1 0 0 0 1 2 3 3", 1),
        (read_images, "1 1 0 0 zero 1 2 3 3 a.png\n\n", 1),
        (read_images, "1 1 0 0 0 1 2 3 3 a.png\n2 1 0 0 0 1 2 3 3 b.png\n", 2),  # no observation lines at all
        (read_points, "1 2 3 4 255 0 0", 1),
        (read_points, "1 2 3 4 256 0 0 0.5", 1),
        (read_points, f"1 {'9' * 5000}x 3 4 255 0 0 0.5", 1),
    ],
)
def test_damaged_lines_are_named(tmp_path, reader, text, line):
    with pytest.raises(InputError, match=rf"model\.txt line {line}: got .*expected .*Fix: "):
        reader(put(tmp_path, "model.txt", text))


@pytest.mark.parametrize(
    ("reader", "text", "what"),
    [
        (read_cameras, "# Number of cameras: 2\n" + CAMERAS, "1 cameras, expected the 2"),
        (read_images, "# Number of images: 5, mean observations per image: 1\n" + IMAGES, "2 images, expected the 5"),
        (read_points, "# Number of points: 3, mean track length: 1\n" + POINTS, "2 points, expected the 3"),
    ],
)
def test_file_cut_at_the_end_of_a_line(tmp_path, reader, text, what):
    with pytest.raises(InputError, match=what):
        reader(put(tmp_path, "model.txt", text))


def test_not_utf8(tmp_path):
    (tmp_path / "images.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"images\.txt: got an unreadable file"):
        read_images(tmp_path / "images.txt")
