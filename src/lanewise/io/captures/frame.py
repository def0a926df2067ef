"""What the formats have in common: a frame as stored, and the view that is made of it once its files are looked at."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lanewise.errors import InputError
from lanewise.io.captures.capture import Split, View
from lanewise.io.captures.geometry import LARGEST, check_finite
from lanewise.io.captures.images import image_size

LARGEST_SIDE = 1_000_000  # pixels; no image is larger
_FOCAL_RANGE = (1e-3, 1e6)  # focal length over image side: 179.9 degrees to a fifth of an arc second


@dataclass(frozen=True)
class Intrinsics:
    """A pinhole camera for images of one size, in pixels, pixel centres at +0.5."""

    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float

    def check(self, where: str) -> None:
        """Refuse what is no camera.

        Raises:
            InputError: a size that is no image's, a focal length that is not positive, NaN or infinity.
        """
        check_finite(np.array([self.fx, self.fy, self.cx, self.cy]), where=where, what="intrinsics fx, fy, cx, cy")
        if not (0 < self.width <= LARGEST_SIDE and 0 < self.height <= LARGEST_SIDE):
            raise InputError(
                where, got=f"an image size of {self.width} x {self.height}", expected=f"1 to {LARGEST_SIDE} pixels"
            )
        low, high = _FOCAL_RANGE
        if not (low <= self.fx / self.width <= high and low <= self.fy / self.height <= high):
            raise InputError(
                where,
                got=f"focal lengths {self.fx:g}, {self.fy:g} for {self.width} x {self.height} pixels",
                expected=f"positive ones, {low:g} to {high:g} times the image size",
                fix="check the intrinsics, they are in pixels",
            )

    def resized(self, width: int, height: int) -> Intrinsics:
        """The same camera for its image resized to (width, height)."""
        sx, sy = width / self.width, height / self.height
        return Intrinsics(width, height, self.fx * sx, self.fy * sy, self.cx * sx, self.cy * sy)

    def matrix(self) -> NDArray[np.float64]:
        """Intrinsics matrix [3, 3]."""
        return np.array([[self.fx, 0.0, self.cx], [0.0, self.fy, self.cy], [0.0, 0.0, 1.0]])


@dataclass(frozen=True)
class Frame:
    """A photograph and its camera as the format stores them; see `View` for the fields of the same name."""

    name: str
    path: Path
    mask_path: Path | None
    viewmat: NDArray[np.float64]
    intrinsics: Intrinsics
    split: Split | None = None


@dataclass(frozen=True)
class RawCapture:
    """What a format's reader returns, before the image files are looked at; see `Capture` for the fields."""

    frames: list[Frame]
    points: NDArray[np.float64] | None = None
    colors: NDArray[np.uint8] | None = None
    background: tuple[float, float, float] | None = None
    has_own_split: bool = False
    warnings: list[str] = field(default_factory=list)


def make_views(frames: Iterable[Frame], downscale: int) -> tuple[list[View], list[str]]:
    """Views sorted by name, their intrinsics adapted to the images as they are and to `downscale`; and warnings.

    Raises:
        InputError: an image or mask is missing, unreadable or of a size that contradicts the intrinsics; two frames
            have the same name.
    """
    views: list[View] = []
    rescaled: Counter[tuple[int, int, int, int]] = Counter()
    for frame in sorted(frames, key=lambda frame: frame.name):
        if views and views[-1].name == frame.name:
            raise InputError(
                f"image {frame.name!r}", got="listed twice", expected="every image once", fix="remove one entry"
            )
        camera, (width, height) = frame.intrinsics, image_size(frame.path)
        if (camera.width, camera.height) != (width, height):
            _check_same_shape(frame.path, (width, height), "the intrinsics", (camera.width, camera.height))
            rescaled[camera.width, camera.height, width, height] += 1
        if frame.mask_path is not None:
            _check_same_shape(frame.mask_path, image_size(frame.mask_path), f"{frame.path.name}", (width, height))
        camera = camera.resized(_divided(width, downscale), _divided(height, downscale))
        views.append(
            View(
                frame.name,
                frame.path,
                frame.viewmat,
                camera.matrix(),
                camera.width,
                camera.height,
                frame.mask_path,
                frame.split,
            )
        )
    return views, [
        f"{count} image(s) of {width} x {height} pixels have intrinsics for {camera_width} x {camera_height}: "
        f"the intrinsics were scaled"
        for (camera_width, camera_height, width, height), count in rescaled.items()
    ]


def drop_unusable_points(
    xyz: NDArray[np.float64], rgb: NDArray[np.uint8], *, where: object
) -> tuple[NDArray[np.float64], NDArray[np.uint8], list[str]]:
    """Points without those that are not finite (or overflow float32), and a warning when there were some."""
    usable = np.all(np.abs(xyz) <= LARGEST, axis=1)  # NaN compares false
    dropped = int(np.count_nonzero(~usable))
    warnings = [f"{where}: dropped {dropped} point(s) whose position is not finite"] if dropped else []
    return xyz[usable], rgb[usable], warnings


def plain_factor(size: tuple[int, int], reference: tuple[int, int]) -> bool:
    """Whether `size` is `reference` times one factor, both sides rounded the same way (down, to nearest or up).

    A factor within 2% of 1 is no reduction that anyone makes but a crop of a few pixels, and counts only when it is 1.
    """
    for lowest in (0.0, -0.5, -1.0):  # a side n came from the interval [n + lowest, n + lowest + 1]
        low = max((n + lowest) / r for n, r in zip(size, reference, strict=True))
        high = min((n + lowest + 1) / r for n, r in zip(size, reference, strict=True))
        if low < high and not (low < 1.02 and high > 0.98):
            return True
    return size == reference


def _divided(side: int, downscale: int) -> int:
    return max(1, math.floor(side / downscale + 0.5))


def _check_same_shape(path: Path, size: tuple[int, int], other: str, expected: tuple[int, int]) -> None:
    if plain_factor(size, expected):
        return
    turned = plain_factor(size, (expected[1], expected[0]))
    raise InputError(
        str(path),
        got=f"{size[0]} x {size[1]} pixels",
        expected=f"{expected[0]} x {expected[1]} as {other} say{'' if other.startswith('the') else 's'}, or a multiple",
        why="the image is turned by 90 degrees" if turned else "it was cropped, or belongs to another camera",
        fix="put back the images that the cameras were estimated from (a viewer may have turned or cropped them)",
    )
