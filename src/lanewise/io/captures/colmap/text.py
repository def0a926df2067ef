"""COLMAP's text model: `cameras.txt`, `images.txt`, `points3D.txt`.

Source: COLMAP's documentation of its output format and `src/colmap/scene/reconstruction_io_text.cc`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from lanewise.errors import InputError
from lanewise.io.captures.colmap.model import CAMERA_MODELS, Camera, Image, Points


def read_cameras(path: Path) -> tuple[Camera, ...]:
    """Cameras of a `cameras.txt`, in file order.

    Raises:
        InputError: the file is unreadable, truncated or damaged; the message names the line.
    """
    cameras = []
    for number, line in _records(_lines(path)):
        with _parsing(path, number, line, "CAMERA_ID MODEL WIDTH HEIGHT PARAMS[]"):
            id, model, width, height, *params = line.split()
            if len(params) != len(CAMERA_MODELS[model].params):
                raise ValueError
            cameras.append(Camera(int(id), model, int(width), int(height), tuple(map(float, params))))
    _check_announced(path, "cameras", len(cameras))
    return tuple(cameras)


def read_images(path: Path) -> tuple[Image, ...]:
    """Registered images of an `images.txt`, in file order; their observations are passed over.

    Raises:
        InputError: the file is unreadable, truncated or damaged; the message names the line.
    """
    lines = _lines(path)
    images = []
    for number, line in _records(lines):
        with _parsing(path, number, line, "IMAGE_ID QW QX QY QZ TX TY TZ CAMERA_ID NAME"):
            id, qw, qx, qy, qz, tx, ty, tz, camera_id, name = line.split(maxsplit=9)
            quat, translation = np.array([qw, qx, qy, qz], np.float64), np.array([tx, ty, tz], np.float64)
            images.append(Image(int(id), quat, translation, int(camera_id), name))
        # The line after a pose belongs to it, also when it is empty; the last one may be missing.
        number, observations = next(lines, (number + 1, ""))
        with _parsing(path, number, observations, "the observations (X Y POINT3D_ID)[] of the image above or nothing"):
            if len(observations.split()) % 3:
                raise ValueError
    _check_announced(path, "images", len(images))
    return tuple(images)


def read_points(path: Path) -> Points:
    """Points of a `points3D.txt`, by their number (COLMAP writes them in no order); their tracks are passed over.

    Raises:
        InputError: the file is unreadable, truncated or damaged; the message names the line.
    """
    rows: list[tuple[int, tuple[float, float, float], bytes]] = []
    for number, line in _records(_lines(path)):
        with _parsing(path, number, line, "POINT3D_ID X Y Z R G B ERROR TRACK[]"):
            id, x, y, z, r, g, b, _ = line.split(maxsplit=8)[:8]
            color = bytes((int(r), int(g), int(b)))  # bytes refuse what is not 0..255
            rows.append((int(id), (float(x), float(y), float(z)), color))
    _check_announced(path, "points", len(rows))
    rows.sort(key=lambda row: row[0])
    xyz = np.array([xyz for _, xyz, _ in rows], np.float64).reshape(-1, 3)
    rgb = np.frombuffer(b"".join(color for *_, color in rows), np.uint8).reshape(-1, 3)
    return Points(xyz, rgb)


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            str(path),
            got=f"an unreadable file ({error})",
            expected="a COLMAP text model file in UTF-8",
            fix="copy the model again or reconstruct it",
        ) from error


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The file's lines with their numbers from 1. Only a line feed ends a line: a name may hold other separators."""
    return ((number, line.strip()) for number, line in enumerate(_text(path).split("\n"), start=1))


def _records(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line in lines if line and not line.startswith("#"))


@contextmanager
def _parsing(path: Path, number: int, line: str, layout: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, OverflowError):
        raise InputError(
            f"{path} line {number}",
            got=repr(line[:100]),
            expected=layout,
            why="the file is truncated or damaged",
            fix="copy the model again or reconstruct it",
        ) from None


def _check_announced(path: Path, what: str, count: int) -> None:
    """COLMAP writes the number of records in a comment: the only trace of a file cut at the end of a line."""
    announced = re.search(rf"^# Number of {what}: (\d{{1,18}})\b", _text(path), re.MULTILINE)
    if announced and int(announced[1]) != count:
        raise InputError(
            str(path),
            got=f"{count} {what}",
            expected=f"the {announced[1]} that its header announces",
            why="the file is truncated, or was edited",
            fix=f"copy the model again; after an edit on purpose, delete the line '# Number of {what}'",
        )
