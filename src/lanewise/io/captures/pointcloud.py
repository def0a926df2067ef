"""Sparse points from a PLY file, as Nerfstudio's captures carry them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from plyfile import PlyData

from lanewise.errors import InputError
from lanewise.io.captures.images import is_file

_GREY = 127
_HEADER_BYTES = 1 << 16


def read_point_cloud(path: Path) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Positions [P, 3] and colours [P, 3] (grey where the file has none) of a PLY file's vertices.

    Raises:
        InputError: the file is missing, truncated or no point cloud.
    """
    if not is_file(path):
        raise InputError(
            str(path),
            got="no such file",
            expected="the capture's point cloud",
            fix="put the file there, or remove 'ply_file_path'",
        )
    try:
        _check_counts(path)
        vertices = PlyData.read(path)["vertex"]
        xyz = np.stack([np.asarray(vertices[axis], np.float64) for axis in "xyz"], axis=1)
        properties = {property.name for property in vertices.properties}
        if not {"red", "green", "blue"} <= properties:
            return xyz, np.full(xyz.shape, _GREY, np.uint8)
        rgb = np.stack([np.asarray(vertices[channel]) for channel in ("red", "green", "blue")], axis=1)
    except Exception as error:  # the parser raises its own errors, KeyError, ValueError, MemoryError, ... on damage
        raise InputError(
            str(path),
            got=f"an unreadable point cloud ({error})",
            expected="a PLY file whose vertices have x, y, z and perhaps red, green, blue",
            fix="export the point cloud again",
        ) from error
    if rgb.dtype.kind == "f":  # colours in 0..1
        rgb = np.nan_to_num(rgb).clip(0, 1) * 255 + 0.5
    return xyz, rgb.astype(np.uint8)


def _check_counts(path: Path) -> None:
    """Refuse a header that announces more elements than the file has bytes, before memory is taken for them."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    for count in re.findall(rb"^element\s+\S+\s+(\d+)", header, re.MULTILINE):
        if len(count) > 18 or int(count) > size:
            raise ValueError(f"{count.decode()} elements in {size} bytes")
