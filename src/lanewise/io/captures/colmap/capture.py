"""A COLMAP project as a capture: pinhole cameras only, distorted ones are refused with the command that undistorts."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import numpy as np

from lanewise.errors import InputError
from lanewise.io.captures.colmap.locate import MODEL_FOLDERS, find_images, find_model, read_model
from lanewise.io.captures.colmap.model import CAMERA_MODELS, Camera, Image, Model
from lanewise.io.captures.frame import Frame, Intrinsics, RawCapture, drop_unusable_points
from lanewise.io.captures.geometry import ROTATION_TOLERANCE, check_finite
from lanewise.io.captures.images import is_file

_FOCAL_AND_CENTRE = ("f", "fx", "fy", "cx", "cy")


def read_colmap(capture: Path, images: str | Path | None = None) -> RawCapture:
    """Frames and points of the COLMAP project in `capture`.

    A mask of `images/NAME.jpg` is `masks/NAME.jpg.png` or `masks/NAME.png` beside the image folder.

    Raises:
        InputError: no model, no images, a damaged model, a camera that is no pinhole, a pose that is none.
    """
    folder = find_model(capture)
    if folder is None:
        raise InputError(
            str(capture), got="no COLMAP model", expected="one in " + ", ".join(f"{f}/" for f in MODEL_FOLDERS)
        )
    model = read_model(folder)
    cameras = _checked_cameras(model, folder, capture)
    image_folder = find_images(capture, images)
    masks = image_folder.parent / "masks"
    frames = [_frame(image, cameras[image.camera_id], folder, image_folder, masks) for image in model.images]
    xyz, rgb, warnings = drop_unusable_points(model.points.xyz, model.points.rgb, where=folder)
    if masks.is_dir() and not any(frame.mask_path for frame in frames):
        warnings.append(f"{masks}: no mask belongs to an image (expected NAME.jpg.png or NAME.png)")
    if folder.name == "0" and (folder.parent / "1").is_dir():
        warnings.append(f"{folder.parent}: the reconstruction fell into several models; only {folder} is used")
    return RawCapture(frames, xyz, rgb, warnings=warnings)


def is_distorted(camera: Camera) -> bool:
    """Whether the camera is anything but a pinhole: a fisheye, or a distortion that is not zero."""
    distortion = [value for name, value in camera.named().items() if name not in _FOCAL_AND_CENTRE]
    return not CAMERA_MODELS[camera.model].pinhole_at_zero or any(distortion)


def relative_name(image: Image, folder: Path) -> PurePosixPath:
    """The image's name as a path inside the image folder.

    Raises:
        InputError: it is empty, absolute or leads out of the folder.
    """
    name = PurePosixPath(image.name)
    if name.is_absolute() or ".." in name.parts or not name.parts:
        raise InputError(
            f"{folder} image {image.id}",
            got=f"the name {image.name!r}",
            expected="a path relative to the image folder and inside it",
        )
    return name


def mask_of(masks: Path, name: str) -> Path | None:
    """The mask of an image in the folder `masks`, or None: `NAME.jpg.png` as COLMAP has it, or `NAME.png`."""
    candidates = (masks / f"{name}.png", (masks / name).with_suffix(".png"))
    return next((path for path in candidates if is_file(path)), None)


def undistort_fix(capture: Path) -> str:
    """The two commands that make an undistorted copy of a capture."""
    command = f"lanewise sfm --undistort {shlex.quote(str(capture))} --out DIR"
    return f"`pip install 'lanewise[colmap]'`, then `{command}` writes an undistorted copy to train on"


def _checked_cameras(model: Model, folder: Path, capture: Path) -> dict[int, Intrinsics]:
    """The pinhole camera by number of every camera that an image uses."""
    if not model.images:
        raise InputError(
            str(folder),
            got="no registered image",
            expected="at least one",
            why="the reconstruction failed, or the model is empty",
            fix="take more photographs that overlap, then reconstruct again with `lanewise sfm IMAGES --out DIR`",
        )
    _check_unique((camera.id for camera in model.cameras), "camera", folder)
    _check_unique((image.id for image in model.images), "image", folder)
    by_id = {camera.id: camera for camera in model.cameras}
    used = {image.camera_id: image for image in model.images}
    for camera_id, image in used.items():
        if camera_id not in by_id:
            raise InputError(
                f"{folder} image {image.name!r}",
                got=f"camera {camera_id}",
                expected="a camera of the model",
                why="the model's files do not belong together",
                fix="copy the whole model again",
            )
    return {id: _pinhole(by_id[id], folder, capture) for id in used}


def _pinhole(camera: Camera, folder: Path, capture: Path) -> Intrinsics:
    where = f"{folder} camera {camera.id}"
    check_finite(np.array(camera.params), where=where, what="parameters")
    if is_distorted(camera):
        raise InputError(
            where,
            got=f"a distorted camera, {camera.model} {camera.named()}",
            expected="a pinhole camera",
            why="splats are rendered through a pinhole, and a capture folder is never written into",
            fix=undistort_fix(capture),
        )
    named = camera.named()
    fx, fy = (named["f"],) * 2 if "f" in named else (named["fx"], named["fy"])
    intrinsics = Intrinsics(camera.width, camera.height, fx, fy, named["cx"], named["cy"])
    intrinsics.check(where)
    return intrinsics


def _frame(image: Image, camera: Intrinsics, folder: Path, image_folder: Path, masks: Path) -> Frame:
    where = f"{folder} image {image.name!r}"
    name = relative_name(image, folder)
    check_finite(np.concatenate([image.quat, image.translation]), where=where, what="pose qw qx qy qz tx ty tz")
    if abs(np.linalg.norm(image.quat) - 1) > ROTATION_TOLERANCE:
        raise InputError(
            where,
            got=f"the quaternion {image.quat.tolist()}",
            expected=f"one of length 1 to {ROTATION_TOLERANCE:g}",
            why="another length means a damaged pose",
            fix="remove this image from the model, or reconstruct it again",
        )
    return Frame(str(name), image_folder / name, mask_of(masks, image.name), image.viewmat, camera)


def _check_unique(ids: Iterable[int], what: str, folder: Path) -> None:
    for id, times in Counter(ids).items():
        if times > 1:
            raise InputError(f"{folder} {what} {id}", got=f"{times} entries", expected="every number once")
