"""COLMAP's binary model: `cameras.bin`, `images.bin`, `points3D.bin`, little-endian.

Source: COLMAP's documentation of its output format and `src/colmap/scene/reconstruction_io_binary.cc`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from lanewise.errors import InputError, StorageError
from lanewise.io.captures.colmap.model import CAMERA_MODELS, Camera, Image, Points

_COUNT = struct.Struct("<Q")
_CAMERA = struct.Struct("<IiQQ")  # id, model, width, height; then the parameters
_IMAGE = struct.Struct("<I7dI")  # id, quaternion wxyz, translation, camera id; then the name, zero-terminated
_POINT = struct.Struct("<Q3d3BdQ")  # id, xyz, rgb, error, track length; then the track
_OBSERVATION_BYTES = 24  # x, y (f8), point id (u8)
_TRACK_BYTES = 8  # image id, index of the observation (u4 each)
_MODEL_NAMES = {model.number: name for name, model in CAMERA_MODELS.items()}


class _Cursor:
    """Walks through the bytes of a file and refuses to read past their end."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.data, self.offset = path, data, 0

    def damaged(self, got: str, expected: str) -> InputError:
        return InputError(
            str(self.path),
            got=got,
            expected=expected,
            why="the file is truncated or damaged",
            fix="copy the model again or reconstruct it",
        )

    def skip(self, size: int) -> int:
        """Offset of the next `size` bytes, which are then behind the cursor."""
        start = self.offset
        if size > len(self.data) - start:
            raise self.damaged(f"{len(self.data)} bytes", f"{size} more bytes at offset {start}")
        self.offset += size
        return start

    def read(self, layout: struct.Struct) -> tuple:
        return layout.unpack_from(self.data, self.skip(layout.size))

    def count(self, smallest: int) -> int:
        """A number of records of at least `smallest` bytes each: more than the file can hold is refused."""
        (count,) = self.read(_COUNT)
        if count * smallest > len(self.data) - self.offset:
            raise self.damaged(f"a count of {count} in a file of {len(self.data)} bytes", "that many records")
        return count

    def text(self) -> str:
        """The zero-terminated UTF-8 text at the cursor."""
        end = self.data.find(b"\0", self.offset)
        if end < 0:
            raise self.damaged("no end of an image name", "a zero byte after it")
        raw = self.data[self.skip(end + 1 - self.offset) : end]
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.damaged(f"the image name {raw[:80]!r}", "UTF-8") from None

    def finish(self) -> None:
        if self.offset != len(self.data):
            raise self.damaged(f"{len(self.data)} bytes", f"{self.offset} bytes")


def read_cameras(path: Path) -> tuple[Camera, ...]:
    """Cameras of a `cameras.bin`, in file order.

    Raises:
        InputError: the file is unreadable, truncated or damaged.
    """
    cursor = _open(path)
    cameras = []
    for _ in range(cursor.count(_CAMERA.size)):
        id, number, width, height = cursor.read(_CAMERA)
        if number not in _MODEL_NAMES:
            raise cursor.damaged(f"camera model number {number} of camera {id}", f"0 to {max(_MODEL_NAMES)}")
        model = _MODEL_NAMES[number]
        params = cursor.read(struct.Struct(f"<{len(CAMERA_MODELS[model].params)}d"))
        cameras.append(Camera(id, model, width, height, params))
    cursor.finish()
    return tuple(cameras)


def read_images(path: Path) -> tuple[Image, ...]:
    """Registered images of an `images.bin`, in file order; their observations are passed over.

    Raises:
        InputError: the file is unreadable, truncated or damaged.
    """
    cursor = _open(path)
    images = []
    for _ in range(cursor.count(_IMAGE.size + 1 + _COUNT.size)):
        id, *pose, camera_id = cursor.read(_IMAGE)
        name = cursor.text()
        cursor.skip(cursor.count(_OBSERVATION_BYTES) * _OBSERVATION_BYTES)
        images.append(Image(id, np.array(pose[:4]), np.array(pose[4:]), camera_id, name))
    cursor.finish()
    return tuple(images)


def read_points(path: Path) -> Points:
    """Points of a `points3D.bin`, by their number (COLMAP writes them in no order); their tracks are passed over.

    Raises:
        InputError: the file is unreadable, truncated or damaged.
    """
    cursor = _open(path)
    count = cursor.count(_POINT.size)
    ids, xyz, rgb = np.empty(count, np.uint64), np.empty((count, 3)), np.empty((count, 3), np.uint8)
    for i in range(count):
        ids[i], x, y, z, r, g, b, _, track_length = cursor.read(_POINT)
        xyz[i], rgb[i] = (x, y, z), (r, g, b)
        cursor.skip(track_length * _TRACK_BYTES)
    cursor.finish()
    order = np.argsort(ids, kind="stable")
    return Points(xyz[order], rgb[order])


def write_model(folder: Path, cameras: Iterable[Camera], images: Iterable[Image], points: Points) -> None:
    """Write `cameras.bin`, `images.bin` and `points3D.bin` into `folder` (made where it is missing).

    The model holds no observations: every image has none and every point an empty track, which COLMAP reads.

    Args:
        folder: the model's folder, usually `CAPTURE/sparse/0`.
        cameras: `Camera(id, model, width, height, params)`, for instance
            `Camera(1, "PINHOLE", 640, 480, (fx, fy, cx, cy))` with pixel centres at +0.5.
        images: `Image.from_viewmat(id, viewmat, camera_id, name)`, with `viewmat` world-to-camera [4, 4] in OpenCV
            axes and `name` relative to the image folder.
        points: `Points(xyz [P, 3] float64, rgb [P, 3] uint8)`; P may be 0.

    Raises:
        StorageError: the folder cannot be written.
    """
    cameras, images = list(cameras), list(images)
    blobs = {
        "cameras.bin": [_COUNT.pack(len(cameras)), *map(_pack_camera, cameras)],
        "images.bin": [_COUNT.pack(len(images)), *map(_pack_image, images)],
        "points3D.bin": _pack_points(points),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, parts in blobs.items():
            (folder / name).write_bytes(b"".join(parts))
    except OSError as error:
        raise StorageError(folder, problem=f"the model cannot be written ({error})") from error


def _open(path: Path) -> _Cursor:
    try:
        return _Cursor(path, path.read_bytes())
    except OSError as error:
        raise InputError(str(path), got=f"an unreadable file ({error})", expected="a COLMAP model file") from error


def _pack_camera(camera: Camera) -> bytes:
    head = _CAMERA.pack(camera.id, CAMERA_MODELS[camera.model].number, camera.width, camera.height)
    return head + struct.pack(f"<{len(camera.params)}d", *camera.params)


def _pack_image(image: Image) -> bytes:
    head = _IMAGE.pack(image.id, *image.quat, *image.translation, image.camera_id)
    return head + image.name.encode() + b"\0" + _COUNT.pack(0)


def _pack_points(points: Points) -> Sequence[bytes]:
    rows = zip(points.xyz.tolist(), points.rgb.tolist(), strict=True)
    records = [_POINT.pack(id, *xyz, *rgb, 0.0, 0) for id, (xyz, rgb) in enumerate(rows, start=1)]
    return [_COUNT.pack(len(records)), *records]
