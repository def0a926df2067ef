"""The demo's capture on disk: pictures, poses and a sparse point cloud, as a COLMAP project."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

from lanewise.demo.cameras import Camera, rings
from lanewise.demo.landmarks import landmarks
from lanewise.demo.scene import still_life
from lanewise.demo.shapes import Array
from lanewise.demo.tracer import picture
from lanewise.errors import InputError, StorageError
from lanewise.io.captures import colmap
from lanewise.io.files import storage_error

MARKER = "lanewise-demo.json"  # written with a capture; tells it from a folder of the user's own
VERSION = 1  # counts up when the capture changes, so that an old one is not taken for it
_SEED = 7


def write_capture(
    folder: Path | str,
    *,
    width: int = 240,
    height: int = 180,
    views: int = 48,
    points: int = 12_000,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write the procedural capture of `lanewise demo`; the same bytes every time on one machine.

    The folder appears complete or not at all: the files are written beside it and moved at the end.

    Args:
        folder: becomes a COLMAP project, `images/*.png` and `sparse/0/*.bin`. A capture that an earlier call wrote with
            the same settings is kept as it is.
        width, height: size of the pictures in pixels.
        views: number of pictures.
        points: surface points to draw for the sparse cloud; the few that fewer than three views see are left out.
        progress: called as `progress(done, views)` after each picture.

    Returns:
        The folder, absolute.

    Raises:
        InputError: `folder` is a file, or holds something else; a size or a number is not positive.
        StorageError: `folder` cannot be written.
    """
    settings = {"version": VERSION, "width": width, "height": height, "views": views, "points": points}
    for name, value in settings.items():
        if value < 1:
            raise InputError(name, got=value, expected="a positive number")
    folder = Path(folder).resolve()
    if _is_written(folder, settings):
        return folder
    partial = folder.parent / f".{folder.name}.{os.getpid()}.partial"
    try:
        (partial / "images").mkdir(parents=True)
        _write_files(partial, settings, rings(views, width, height), points, progress or (lambda done, total: None))
        if folder.exists():
            folder.rmdir()  # empty, as `_is_written` found
        partial.rename(folder)
    except StorageError:
        raise
    except OSError as error:
        raise storage_error(folder, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _is_written(folder: Path, settings: dict[str, int]) -> bool:
    """Whether the capture is there already; False where the folder is free to be written."""
    if folder.is_dir():
        names = {entry.name for entry in folder.iterdir()}
        if not names:
            return False
        if MARKER in names and (folder / MARKER).read_text() == json.dumps(settings):
            return True
        got = "another demo capture" if MARKER in names else f"a folder that holds {sorted(names)[0]!r}"
    elif folder.exists():
        got = "a file"
    else:
        return False
    raise InputError(
        str(folder), got=got, expected="a new or empty folder", why="the demo overwrites nothing",
        fix="choose another folder, or remove this one",
    )  # fmt: skip


def _write_files(
    folder: Path, settings: dict[str, int], cameras: Sequence[Camera], points: int, progress: Callable[[int, int], None]
) -> None:
    """Fill an empty folder that has `images/`."""
    scene = still_life()
    names = [f"view_{i:03d}.png" for i in range(len(cameras))]
    pictures: list[Array] = []
    distances: list[Array] = []
    pool = ThreadPoolExecutor(os.cpu_count())  # threads serve, since numpy's loops run without the interpreter's lock
    try:
        traced = pool.map(lambda camera: picture(scene, camera), cameras)
        for name, (rgb, distance) in zip(names, traced, strict=True):
            Image.fromarray(rgb).save(folder / "images" / name)
            pictures.append(rgb)
            distances.append(distance)
            progress(len(pictures), len(cameras))
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupt waits for the pictures in work alone

    xyz, rgb = landmarks(cameras, pictures, distances, points, _SEED)
    K, first = cameras[0].K, cameras[0]
    pinhole = colmap.Camera(1, "PINHOLE", first.width, first.height, (K[0, 0], K[1, 1], K[0, 2], K[1, 2]))
    images = [
        colmap.Image.from_viewmat(i, c.viewmat, 1, n) for i, (c, n) in enumerate(zip(cameras, names, strict=True), 1)
    ]
    colmap.write_model(folder / "sparse" / "0", [pinhole], images, colmap.Points(xyz, rgb))
    (folder / MARKER).write_text(json.dumps(settings))
