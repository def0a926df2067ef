"""What Nerfstudio's `transforms.json` and Blender's `transforms_*.json` share: JSON fields, intrinsics, poses."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from lanewise.errors import InputError
from lanewise.io.captures.frame import Intrinsics
from lanewise.io.captures.geometry import check_finite, nearest_rotation, viewmat_from
from lanewise.io.captures.images import image_size, is_file

_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".PNG", ".JPG", ".JPEG")
_MISSING = object()


class Fields:
    """A JSON object whose fields are read by type; keys that it lacks are looked up in `defaults`.

    Errors name the file and the place in it.
    """

    def __init__(self, values: object, where: str, defaults: Fields | None = None) -> None:
        if not isinstance(values, Mapping):
            raise InputError(where, got=_short(values), expected="a JSON object")
        self.values, self.where, self.defaults = values, where, defaults

    def get(self, key: str, default: object = _MISSING) -> object:
        """The value of `key`, or the default; without a default a missing key is an InputError."""
        if self.values.get(key) is not None:
            return self.values[key]
        if self.defaults is not None:
            return self.defaults.get(key, default)
        if default is _MISSING:
            raise InputError(
                self.where, got=f"no {key!r}", expected="one", fix="export the capture again, or add the field"
            )
        return default

    def number(self, key: str, default: float | None = None) -> float:
        """A finite or non-finite number as float; booleans and texts are refused."""
        value = self.get(key, _MISSING if default is None else default)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                return float(value)
            except OverflowError:
                pass
        raise InputError(f"{self.where} {key!r}", got=_short(value), expected="a number")

    def text(self, key: str) -> str:
        """A text that is not empty."""
        value = self.get(key)
        if not isinstance(value, str) or not value:
            raise InputError(f"{self.where} {key!r}", got=_short(value), expected="a text")
        return value

    def has(self, key: str) -> bool:
        """Whether the key is there, here or in the defaults."""
        return self.get(key, None) is not None

    def objects(self, key: str) -> list[Fields]:
        """A list of JSON objects, each of which falls back to this one for keys that it lacks."""
        values = self.get(key)
        if not isinstance(values, list):
            raise InputError(f"{self.where} {key!r}", got=_short(values), expected="a list")
        return [Fields(value, f"{self.where} {key}[{i}]", self) for i, value in enumerate(values)]


def read_json(path: Path) -> Fields:
    """The JSON object in a file.

    Raises:
        InputError: the file is unreadable or no JSON object.
    """
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            str(path), got=f"broken JSON ({error})", expected="a JSON object", fix="export the capture again"
        ) from error
    return Fields(values, str(path))


def read_frames(meta: Fields) -> list[Fields]:
    """The frames of a transforms file.

    Raises:
        InputError: there is none.
    """
    frames = meta.objects("frames")
    if not frames:
        raise InputError(
            f"{meta.where} 'frames'",
            got="no registered image",
            expected="at least one",
            fix="reconstruct the cameras again",
        )
    return frames


def read_pose(frame: Fields) -> NDArray[np.float64]:
    """World-to-camera matrix [4, 4] in OpenCV axes of `transform_matrix`, camera-to-world in OpenGL axes.

    The matrix may have 3 or 4 rows; a uniform scale of its rotation is dropped (see `nearest_rotation`).

    Raises:
        InputError: the matrix is missing, malformed, not finite, singular or no rotation.
    """
    where = f"{frame.where} 'transform_matrix'"
    value = frame.get("transform_matrix")
    try:
        matrix = np.array(value, np.float64)
    except (ValueError, TypeError, OverflowError):
        matrix = np.empty(0)
    if matrix.shape not in ((3, 4), (4, 4)):
        raise InputError(where, got=_short(value), expected="3 or 4 rows of 4 numbers")
    check_finite(matrix, where=where, what="the matrix")
    if len(matrix) == 4 and np.abs(matrix[3] - (0, 0, 0, 1)).max() > 1e-6:
        raise InputError(where, got=f"the last row {matrix[3].tolist()}", expected="[0, 0, 0, 1]")
    rotation = nearest_rotation(matrix[:3, :3], where=where) * (1.0, -1.0, -1.0)  # OpenGL's y is up and z backward
    return viewmat_from(rotation.T, -rotation.T @ matrix[:3, 3])


def read_intrinsics(frame: Fields, image: Path) -> Intrinsics:
    """The pinhole camera of a frame, from focal lengths in pixels or from the horizontal angle of view.

    Without `w` and `h` the size is that of the image file; without `cx` and `cy` the centre is the image's.

    Raises:
        InputError: neither focal length nor angle, or values that are no camera.
    """
    if frame.has("w") and frame.has("h"):
        width, height = _side(frame, "w"), _side(frame, "h")
    else:
        width, height = image_size(image)
    if frame.has("fl_x"):
        fx = frame.number("fl_x")
    elif frame.has("camera_angle_x"):
        fx = _focal(frame, "camera_angle_x", width)
    else:
        raise InputError(frame.where, got="neither 'fl_x' nor 'camera_angle_x'", expected="one of them")
    if frame.has("fl_y"):
        fy = frame.number("fl_y")
    else:
        # An angle beside a focal length in pixels is only its copy; without one it is all there is.
        with_angle = not frame.has("fl_x") and frame.has("camera_angle_y")
        fy = _focal(frame, "camera_angle_y", height) if with_angle else fx
    cx, cy = frame.number("cx", width / 2), frame.number("cy", height / 2)
    intrinsics = Intrinsics(width, height, fx, fy, cx, cy)
    intrinsics.check(frame.where)
    return intrinsics


def resolve_file(folder: Path, stored: str) -> tuple[str, Path]:
    """Name and path of an image that a transforms file names relative to its folder, with or without a suffix.

    The name drops what leads out of the folder. A file that is missing is returned as written.
    """
    path = folder / stored
    if not is_file(path):
        with_suffix = (path.parent / (path.name + suffix) for suffix in _IMAGE_SUFFIXES)
        path = next((candidate for candidate in with_suffix if is_file(candidate)), path)
    parts = [part for part in PurePosixPath(stored).parts if part not in ("..", "/")]
    if not parts:
        return path.name, path
    return str(PurePosixPath(*parts[:-1], path.name)), path


def _side(frame: Fields, key: str) -> int:
    value = frame.number(key)
    if not (math.isfinite(value) and value == int(value)):
        raise InputError(f"{frame.where} {key!r}", got=value, expected="a whole number of pixels")
    return int(value)


def _focal(frame: Fields, key: str, side: int) -> float:
    angle = frame.number(key)
    if not 0 < angle < math.pi:
        raise InputError(f"{frame.where} {key!r}", got=angle, expected="an angle of view in radians, 0 to pi")
    return 0.5 * side / math.tan(0.5 * angle)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def names(meta: Fields, key: str) -> Sequence[str] | None:
    """The list of texts under `key`, or None when it is not there.

    Raises:
        InputError: it is something else.
    """
    values = meta.get(key, None)
    if values is None:
        return None
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InputError(f"{meta.where} {key!r}", got=_short(values), expected="a list of file names")
    return values
