"""Poses and rotations in float64: quaternions, matrices, and the checks that every capture format shares."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lanewise.errors import InputError

ROTATION_TOLERANCE = 1e-3  # how far a stored rotation may be from orthonormal before it is no rotation
LARGEST = 1e18  # larger coordinates overflow float32 once squared


def quat_to_matrix(quat: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rotation matrix [3, 3] of a quaternion wxyz [4] of any non-zero length, float64."""
    w, x, y, z = quat / np.linalg.norm(quat)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def matrix_to_quat(rotation: NDArray[np.float64]) -> NDArray[np.float64]:
    """Unit quaternion wxyz [4] with w >= 0 of a rotation matrix [3, 3], float64.

    Each candidate below is the quaternion times four of its own components; the one with the largest factor is
    divided by no small number (Shepperd 1978).
    """
    m = rotation
    candidates = np.array(
        [
            [1 + m[0, 0] + m[1, 1] + m[2, 2], m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]],
            [m[2, 1] - m[1, 2], 1 + m[0, 0] - m[1, 1] - m[2, 2], m[0, 1] + m[1, 0], m[0, 2] + m[2, 0]],
            [m[0, 2] - m[2, 0], m[0, 1] + m[1, 0], 1 - m[0, 0] + m[1, 1] - m[2, 2], m[1, 2] + m[2, 1]],
            [m[1, 0] - m[0, 1], m[0, 2] + m[2, 0], m[1, 2] + m[2, 1], 1 - m[0, 0] - m[1, 1] + m[2, 2]],
        ]
    )
    quat = candidates[np.argmax(np.diagonal(candidates))]
    return quat / math.copysign(float(np.linalg.norm(quat)), quat[0])


def viewmat_from(rotation: NDArray[np.float64], translation: NDArray[np.float64]) -> NDArray[np.float64]:
    """World-to-camera matrix [4, 4] of a rotation [3, 3] and a translation [3]."""
    viewmat = np.eye(4)
    viewmat[:3, :3], viewmat[:3, 3] = rotation, translation
    return viewmat


def camera_centres(viewmats: NDArray[np.float64]) -> NDArray[np.float64]:
    """Camera centres in the world [N, 3] of world-to-camera matrices [N, 4, 4]."""
    return -np.einsum("nji,nj->ni", viewmats[:, :3, :3], viewmats[:, :3, 3])


def check_finite(values: NDArray[np.float64], *, where: str, what: str) -> None:
    """Refuse NaN, infinities and numbers that overflow float32 once squared.

    Raises:
        InputError: naming `where`, with `what` the values are.
    """
    if not (np.abs(values) <= LARGEST).all():
        raise InputError(
            where,
            got=f"{what} {values.ravel().tolist()}",
            expected=f"finite numbers of at most {LARGEST:g}",
            why="a camera at no finite place gives no finite gradient",
            fix="remove this camera from the capture, or reconstruct it again",
        )


def nearest_rotation(matrix: NDArray[np.float64], *, where: str) -> NDArray[np.float64]:
    """The rotation [3, 3] nearest to a stored matrix [3, 3] that may carry a uniform scale and rounding.

    A uniform scale is divided out, since it changes no pixel. What remains may differ from an orthonormal matrix by
    at most `ROTATION_TOLERANCE` in any entry of R^T R, and is then replaced by the nearest rotation (polar
    decomposition).

    Raises:
        InputError: the matrix is singular, mirrors, shears or scales the axes differently; the message names `where`.
    """
    largest = np.abs(matrix).max()
    normalised = matrix / largest if largest > 0 else matrix
    determinant = np.linalg.det(normalised)
    expected = f"a rotation, orthonormal to {ROTATION_TOLERANCE:g} up to a uniform scale"
    fix = "remove this camera from the capture, or export its pose again"
    if determinant < 1e-6:
        kind = "a mirroring" if determinant < -1e-6 else "a singular"
        raise InputError(where, got=f"{kind} camera matrix {matrix.tolist()}", expected=expected, fix=fix)
    unit = normalised / np.cbrt(determinant)
    error = np.abs(unit.T @ unit - np.eye(3)).max()
    if error > ROTATION_TOLERANCE:
        raise InputError(
            where, got=f"a matrix that is off by {error:.2g}: {matrix.tolist()}", expected=expected, fix=fix
        )
    u, _, vt = np.linalg.svd(unit)
    return u @ vt
