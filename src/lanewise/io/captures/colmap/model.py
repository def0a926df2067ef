"""What a COLMAP model consists of: the camera models, and one small structure each for cameras, images and points.

Source: COLMAP's documentation of its output format and `src/colmap/sensor/models.h`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lanewise.io.captures.geometry import matrix_to_quat, quat_to_matrix, viewmat_from


class CameraModel(NamedTuple):
    """One of COLMAP's camera models.

    Attributes:
        number: its number in a binary model.
        params: the names of its parameters, in the stored order.
        pinhole_at_zero: whether zero distortion makes it the pinhole camera (no fisheye model becomes one).
    """

    number: int
    params: tuple[str, ...]
    pinhole_at_zero: bool


_SINGLE, _DOUBLE = ("f", "cx", "cy"), ("fx", "fy", "cx", "cy")
CAMERA_MODELS = {
    "SIMPLE_PINHOLE": CameraModel(0, _SINGLE, True),
    "PINHOLE": CameraModel(1, _DOUBLE, True),
    "SIMPLE_RADIAL": CameraModel(2, (*_SINGLE, "k"), True),
    "RADIAL": CameraModel(3, (*_SINGLE, "k1", "k2"), True),
    "OPENCV": CameraModel(4, (*_DOUBLE, "k1", "k2", "p1", "p2"), True),
    "OPENCV_FISHEYE": CameraModel(5, (*_DOUBLE, "k1", "k2", "k3", "k4"), False),
    "FULL_OPENCV": CameraModel(6, (*_DOUBLE, "k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6"), True),
    "FOV": CameraModel(7, (*_DOUBLE, "omega"), True),
    "SIMPLE_RADIAL_FISHEYE": CameraModel(8, (*_SINGLE, "k"), False),
    "RADIAL_FISHEYE": CameraModel(9, (*_SINGLE, "k1", "k2"), False),
    "THIN_PRISM_FISHEYE": CameraModel(10, (*_DOUBLE, "k1", "k2", "p1", "p2", "k3", "k4", "sx1", "sy1"), False),
    "RAD_TAN_THIN_PRISM_FISHEYE": CameraModel(
        11, (*_DOUBLE, "k0", "k1", "k2", "k3", "k4", "k5", "p0", "p1", "s0", "s1", "s2", "s3"), False
    ),
    "SIMPLE_DIVISION": CameraModel(12, (*_SINGLE, "k"), True),
    "DIVISION": CameraModel(13, (*_DOUBLE, "k"), True),
    "SIMPLE_FISHEYE": CameraModel(14, _SINGLE, False),
    "FISHEYE": CameraModel(15, _DOUBLE, False),
    "EUCM": CameraModel(16, (*_DOUBLE, "alpha", "beta"), False),
    "EQUIRECTANGULAR": CameraModel(17, ("w", "h"), False),
}


@dataclass(frozen=True)
class Camera:
    """The intrinsics that images share.

    Attributes:
        id: number of the camera, unique in the model.
        model: a key of `CAMERA_MODELS`.
        width: image width in pixels.
        height: image height in pixels.
        params: the model's parameters in COLMAP's order, pixels (centres at +0.5) where they are lengths.
    """

    id: int
    model: str
    width: int
    height: int
    params: tuple[float, ...]

    def named(self) -> dict[str, float]:
        """The parameters by name."""
        return dict(zip(CAMERA_MODELS[self.model].params, self.params, strict=True))


@dataclass(frozen=True)
class Image:
    """A registered image: which camera took it, and from where.

    Attributes:
        id: number of the image, unique in the model.
        quat: world-to-camera rotation, wxyz, [4] float64.
        translation: world-to-camera translation in world units, [3] float64.
        camera_id: the `Camera.id` it was taken with.
        name: path of the file relative to the image folder, with forward slashes.
    """

    id: int
    quat: NDArray[np.float64]
    translation: NDArray[np.float64]
    camera_id: int
    name: str

    @staticmethod
    def from_viewmat(id: int, viewmat: NDArray[np.float64], camera_id: int, name: str) -> Image:
        """The image of a world-to-camera matrix [4, 4] (OpenCV axes: x right, y down, z forward)."""
        viewmat = np.asarray(viewmat, np.float64)
        return Image(id, matrix_to_quat(viewmat[:3, :3]), viewmat[:3, 3].copy(), camera_id, name)

    @property
    def viewmat(self) -> NDArray[np.float64]:
        """World-to-camera matrix [4, 4] float64."""
        return viewmat_from(quat_to_matrix(self.quat), self.translation)


@dataclass(frozen=True)
class Points:
    """The sparse points.

    Attributes:
        xyz: positions in world units, [P, 3] float64.
        rgb: colours, [P, 3] uint8.
    """

    xyz: NDArray[np.float64]
    rgb: NDArray[np.uint8]


@dataclass(frozen=True)
class Model:
    """A whole sparse model, in file order."""

    cameras: tuple[Camera, ...]
    images: tuple[Image, ...]
    points: Points
