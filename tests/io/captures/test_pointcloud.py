"""Point clouds in PLY files."""

from __future__ import annotations

import numpy as np
import pytest
from plyfile import PlyData, PlyElement

from lanewise.errors import InputError
from lanewise.io.captures.pointcloud import read_point_cloud

XYZ = [("x", "f4"), ("y", "f4"), ("z", "f4")]
RGB = ("red", "green", "blue")


def write(path, layout, rows, text=False):
    PlyData([PlyElement.describe(np.array(rows, layout), "vertex")], text=text).write(path)
    return path


@pytest.mark.parametrize("text", [True, False])
def test_positions_and_colours(tmp_path, text):
    path = write(tmp_path / "a.ply", XYZ + [(c, "u1") for c in RGB], [(1, 2, 3, 255, 0, 7)], text)
    xyz, rgb = read_point_cloud(path)
    np.testing.assert_array_equal(xyz, [[1, 2, 3]])
    np.testing.assert_array_equal(rgb, [[255, 0, 7]])
    assert (xyz.dtype, rgb.dtype) == (np.float64, np.uint8)


def test_floating_point_colours(tmp_path):
    path = write(tmp_path / "a.ply", XYZ + [(c, "f4") for c in RGB], [(1, 2, 3, 1.0, 0.5, np.nan)])
    np.testing.assert_array_equal(read_point_cloud(path)[1], [[255, 128, 0]])


def test_without_colours_it_is_grey(tmp_path):
    np.testing.assert_array_equal(read_point_cloud(write(tmp_path / "a.ply", XYZ, [(1, 2, 3)]))[1], [[127] * 3])


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match=r"a\.ply: got no such file.*Fix: put the file there, or remove"):
        read_point_cloud(tmp_path / "a.ply")


def test_truncations(tmp_path):
    path = write(tmp_path / "a.ply", XYZ, [(1, 2, 3)] * 5)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"a\.ply: got an unreadable point cloud"):
            read_point_cloud(path)


@pytest.mark.parametrize("count", ["99999999999", "9" * 30, "-1", "x"])
@pytest.mark.parametrize("encoding", ["ascii", "binary_little_endian"])
def test_forged_counts(tmp_path, count, encoding):
    header = f"ply\nformat {encoding} 1.0\nelement vertex {count}\nproperty float x\nend_header\n"
    (tmp_path / "a.ply").write_text(header)
    with pytest.raises(InputError, match=r"a\.ply: got an unreadable point cloud"):
        read_point_cloud(tmp_path / "a.ply")


def test_no_vertices_at_all(tmp_path):
    (tmp_path / "a.ply").write_text("ply\nformat ascii 1.0\nend_header\n")
    with pytest.raises(InputError, match=r"a\.ply: got an unreadable point cloud"):
        read_point_cloud(tmp_path / "a.ply")
