"""Where a capture keeps its COLMAP model and its images, and reading the model whichever way it is stored."""

from __future__ import annotations

from pathlib import Path

from lanewise.errors import InputError
from lanewise.io.captures.colmap import binary, text
from lanewise.io.captures.colmap.model import Model

MODEL_FOLDERS = ("sparse/0", "sparse", "colmap/sparse/0")
_STEMS = ("cameras", "images", "points3D")


def find_model(capture: Path) -> Path | None:
    """The first folder of `MODEL_FOLDERS` that holds a file of a model, or None."""
    folders = (capture / folder for folder in MODEL_FOLDERS)
    return next((folder for folder in folders if _holds(folder, ".bin") or _holds(folder, ".txt")), None)


def find_images(capture: Path, images: str | Path | None = None) -> Path:
    """The folder of the images: `images` inside the capture (or as given), by default `CAPTURE/images`.

    Raises:
        InputError: there is no such folder.
    """
    inside = capture / (images or "images")
    if inside.is_dir():
        return inside
    if images is not None and Path(images).is_dir():
        return Path(images)
    raise InputError(
        str(inside),
        got="no such folder",
        expected="the folder of the capture's images",
        fix="name the folder with --images",
    )


def read_model(folder: Path) -> Model:
    """The model in `folder`: binary where there is a `.bin` file, else text.

    Raises:
        InputError: a file is missing, unreadable, truncated or damaged; the message names it.
    """
    suffix, reader = (".bin", binary) if _holds(folder, ".bin") else (".txt", text)
    for stem in _STEMS:
        if not (folder / (stem + suffix)).is_file():
            raise InputError(
                str(folder / (stem + suffix)),
                got="no such file",
                expected="the three files of a COLMAP model: " + ", ".join(stem + suffix for stem in _STEMS),
                fix="copy the whole model, or reconstruct it with `lanewise sfm IMAGES --out DIR`",
            )
    return Model(
        reader.read_cameras(folder / f"cameras{suffix}"),
        reader.read_images(folder / f"images{suffix}"),
        reader.read_points(folder / f"points3D{suffix}"),
    )


def _holds(folder: Path, suffix: str) -> bool:
    return any((folder / (stem + suffix)).is_file() for stem in _STEMS)
