"""An undistorted copy of a COLMAP capture, made by pycolmap (the extra `[colmap]`)."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image

from lanewise.errors import InputError, MissingDependencyError, StorageError
from lanewise.io.captures.capture import Capture
from lanewise.io.captures.colmap.capture import is_distorted, mask_of, relative_name
from lanewise.io.captures.colmap.locate import MODEL_FOLDERS, find_images, find_model, read_model
from lanewise.io.captures.images import decode_mask, has_transparency, image_size
from lanewise.io.captures.load import load_capture

JPEG_QUALITY = 97  # of the images that pycolmap writes


def require_pycolmap() -> Any:
    """The module pycolmap.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        return importlib.import_module("pycolmap")
    except ImportError as error:
        raise MissingDependencyError(
            "pycolmap", needed_for="undistortion and structure from motion", install="pip install 'lanewise[colmap]'"
        ) from error


def undistort(capture: Path, out: Path, *, images: str | Path | None = None) -> Capture:
    """Write an undistorted copy of a COLMAP capture.

    `out` gets `images/`, `sparse/0/` and, where there are masks, `masks/`. It appears whole or not at all; the capture
    is only read.

    Args:
        capture: folder with a COLMAP model and images.
        out: folder to make; it may exist when it is empty.
        images: another folder of the images than `capture/images`.

    Returns:
        the loaded copy, with what was lost among its warnings.

    Raises:
        InputError: the capture is not usable or not distorted, or `out` is not free.
        MissingDependencyError: pycolmap is not installed.
        StorageError: the copy cannot be written.
    """
    folder = find_model(capture)
    if folder is None:
        raise InputError(
            str(capture), got="no COLMAP model", expected="one in " + ", ".join(f"{f}/" for f in MODEL_FOLDERS)
        )
    model = read_model(folder)
    image_folder = find_images(capture, images)
    used = {image.camera_id for image in model.images}
    if not any(is_distorted(camera) for camera in model.cameras if camera.id in used):
        raise InputError(
            str(folder),
            got="pinhole cameras only, or no registered image",
            expected="a distorted camera",
            fix=f"train on {capture} as it is",
        )
    for image in model.images:  # pycolmap logs a missing image and goes on
        image_size(image_folder / relative_name(image, folder))
    with staging(out, apart_from=capture) as stage:
        write_undistorted(folder, image_folder, stage)
    copy = load_capture(out)
    transparent = sum(has_transparency(image_folder / image.name) for image in model.images)
    lost = [f"{transparent} image(s) lost their transparency when they were undistorted"] if transparent else []
    return replace(copy, warnings=(*copy.warnings, *lost))


def write_undistorted(model: Path, images: Path, out: Path) -> None:
    """Undistort images and masks of a model folder into the folder `out`, which exists.

    Raises:
        InputError: pycolmap cannot read the model or the images.
    """
    pycolmap = require_pycolmap()
    with quiet(pycolmap), tempfile.TemporaryDirectory(dir=out.parent, prefix=".lanewise-") as workspace:
        made = Path(workspace)
        try:
            # COLMAP leaves folders and scripts for its stereo stage beside what is needed here.
            pycolmap.undistort_images(made, model, images, jpeg_quality=JPEG_QUALITY)
            reconstruction = pycolmap.Reconstruction(model)
        except (RuntimeError, ValueError) as error:
            raise InputError(
                str(model), got=f"a model that pycolmap refuses ({error})", expected="a COLMAP model with its images"
            ) from error
        (out / "sparse").mkdir()
        (made / "sparse").rename(out / "sparse" / "0")
        (made / "images").rename(out / "images")
    _undistort_masks(pycolmap, reconstruction, images, out / "masks")


@contextmanager
def staging(out: Path, *, apart_from: Path) -> Iterator[Path]:
    """A folder that becomes `out` when the block ends well, and vanishes when it does not.

    Raises:
        InputError: `out` is not free, or lies inside `apart_from`, which must not be written into.
        StorageError: `out` cannot be written.
    """
    source, target = apart_from.resolve(), out.resolve()
    if target == source or source in target.parents:
        raise InputError(
            "--out", got=str(out), expected=f"a folder outside {apart_from}", why="a capture is never written into"
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("--out", got=f"{out}, which is not empty", expected="a new or empty folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
            stage = Path(scratch) / "stage"
            stage.mkdir()
            yield stage
            stage.replace(target)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(
            out, problem=f"cannot be written ({error})", fix="free space, or choose another --out"
        ) from error


@contextmanager
def quiet(pycolmap: Any) -> Iterator[None]:
    """Keep pycolmap's log to errors, which say what went wrong, for the length of the block."""
    level = pycolmap.logging.minloglevel
    pycolmap.logging.minloglevel = pycolmap.logging.ERROR.value
    try:
        yield
    finally:
        pycolmap.logging.minloglevel = level


def _undistort_masks(pycolmap: Any, reconstruction: Any, images: Path, out: Path) -> None:
    """Warp the masks as the images were. What is interpolated with an excluded pixel is excluded."""
    options = pycolmap.UndistortCameraOptions()
    for image in reconstruction.images.values():
        mask = mask_of(images.parent / "masks", image.name)
        if mask is None:
            continue
        camera = reconstruction.cameras[image.camera_id]
        counts = decode_mask(mask, camera.width, camera.height).astype(np.uint8) * 255  # [H, W]
        warped, _ = pycolmap.undistort_image(options, pycolmap.Bitmap.from_array(counts), camera)
        target = out / f"{image.name}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(np.where(warped.to_array().squeeze() == 255, 255, 0).astype(np.uint8)).save(target)
