"""Structure from motion: from a folder of photographs to an undistorted capture, by pycolmap (the extra `[colmap]`)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from lanewise.errors import InputError
from lanewise.io.captures.capture import Capture
from lanewise.io.captures.images import image_size
from lanewise.io.captures.load import load_capture
from lanewise.io.captures.undistort import quiet, require_pycolmap, staging, write_undistorted

Matching = Literal["exhaustive", "sequential"]
CameraModel = Literal["SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV", "OPENCV_FISHEYE"]
Sharing = Literal["single", "per-folder", "per-image"]
_SUFFIXES = {".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".webp"}
_SMALLEST_MODEL = 3  # images


@dataclass(frozen=True)
class SfmOptions:
    """How to reconstruct."""

    matching: Matching = "exhaustive"
    """Compare all pairs of photographs, or neighbours by file name (the frames of a video)."""
    camera_model: CameraModel = "OPENCV"
    """COLMAP's camera model to estimate."""
    cameras: Sharing = "single"
    """Whether all photographs, those of a folder, or none share their intrinsics."""
    seed: int = 0
    """Seed of COLMAP's random choices."""


def reconstruct(
    images: Path, out: Path, options: SfmOptions | None = None, *, report: Callable[[str], None] = lambda stage: None
) -> Capture:
    """Estimate the cameras of the photographs in `images` and write an undistorted capture into `out`.

    `out` appears whole or not at all; `images` is only read. Of several models the one with most images is kept.

    Args:
        images: folder of photographs, subfolders included.
        out: folder to make; it may exist when it is empty.
        options: how to reconstruct.
        report: called with the name of every stage that begins.

    Returns:
        the loaded capture; photographs that could not be registered are counted among its warnings.

    Raises:
        InputError: fewer than 3 photographs, unreadable ones, or none that could be registered; `out` is not free.
        MissingDependencyError: pycolmap is not installed.
        StorageError: `out` cannot be written.
    """
    options = options or SfmOptions()
    pycolmap = require_pycolmap()
    names = _photographs(images, options.cameras)
    with (
        staging(out, apart_from=images) as stage,
        tempfile.TemporaryDirectory(dir=stage.parent) as workspace,
        quiet(pycolmap),
    ):
        model = _map(pycolmap, images, names, Path(workspace), options, report)
        report("undistortion")
        write_undistorted(model, images, stage)
    capture = load_capture(out)
    left_out = len(names) - len(capture.views)
    warnings = [f"{left_out} of {len(names)} photographs could not be registered"] if left_out else []
    return replace(capture, warnings=(*capture.warnings, *warnings))


def _photographs(images: Path, cameras: Sharing) -> list[str]:
    """Names of the photographs relative to the folder, sorted; their headers are read."""
    if not images.is_dir():
        raise InputError(str(images), got="no such folder", expected="a folder of photographs", fix="check the path")
    paths = sorted(path for path in images.rglob("*") if path.suffix.lower() in _SUFFIXES and path.is_file())
    if len(paths) < _SMALLEST_MODEL:
        raise InputError(
            str(images),
            got=f"{len(paths)} photographs",
            expected=f"at least {_SMALLEST_MODEL} that overlap",
            fix="name the folder that holds the images themselves",
        )
    sizes = {image_size(path): path for path in paths}
    if cameras == "single" and len(sizes) > 1:
        raise InputError(
            str(images),
            got="sizes " + ", ".join(f"{w} x {h} ({path.name})" for (w, h), path in list(sizes.items())[:4]),
            expected="one size",
            why="photographs of several sizes cannot share one camera",
            fix="--cameras per-folder or --cameras per-image",
        )
    return [path.relative_to(images).as_posix() for path in paths]


def _map(
    pycolmap: Any,
    images: Path,
    names: list[str],
    workspace: Path,
    options: SfmOptions,
    report: Callable[[str], None],
) -> Path:
    """The folder of the largest model that incremental mapping finds."""
    database = workspace / "database.db"
    mode = {"single": "SINGLE", "per-folder": "PER_FOLDER", "per-image": "PER_IMAGE"}[options.cameras]
    pycolmap.set_random_seed(options.seed)
    report("features")
    pycolmap.extract_features(
        database,
        images,
        image_names=names,
        camera_mode=getattr(pycolmap.CameraMode, mode),
        reader_options=pycolmap.ImageReaderOptions(camera_model=options.camera_model),
    )
    report("matching")
    {"exhaustive": pycolmap.match_exhaustive, "sequential": pycolmap.match_sequential}[options.matching](database)
    report("mapping")
    pipeline = pycolmap.IncrementalPipelineOptions(min_model_size=_SMALLEST_MODEL, random_seed=options.seed)
    models = pycolmap.incremental_mapping(database, images, workspace, pipeline)
    if not models:
        raise InputError(
            str(images),
            got="photographs from which no camera could be estimated",
            expected="sharp photographs that overlap, taken from different places",
            fix="take more photographs with more overlap, or try --matching exhaustive",
        )
    largest = max(models, key=lambda index: models[index].num_reg_images())
    return workspace / str(largest)
