"""Load a capture: find out its format, read its cameras, look at its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lanewise.errors import InputError
from lanewise.io.captures.blender import read_blender
from lanewise.io.captures.capture import Capture
from lanewise.io.captures.colmap.capture import read_colmap
from lanewise.io.captures.colmap.locate import MODEL_FOLDERS, find_model
from lanewise.io.captures.frame import RawCapture, make_views
from lanewise.io.captures.nerfstudio import read_nerfstudio

# In the order in which they are looked for: the more telling file first.
_IS_THERE: dict[str, Callable[[Path], bool]] = {
    "blender": lambda path: (path / "transforms_train.json").is_file(),
    "nerfstudio": lambda path: (path / "transforms.json").is_file(),
    "colmap": lambda path: find_model(path) is not None,
}
FORMATS = tuple(_IS_THERE)


def load_capture(
    path: str | Path, *, format: str = "auto", downscale: int = 1, images: str | Path | None = None
) -> Capture:
    """Load a capture folder; nothing is ever written into it.

    Args:
        path: the folder.
        format: "colmap", "nerfstudio", "blender", or "auto" to find out.
        downscale: divide width and height of the images by this whole number; the intrinsics follow.
        images: another folder of the images than the format's own, inside the capture or anywhere.

    Raises:
        InputError: the folder is no capture, or a camera, pose, image header or model file in it is not usable. Pixels
            are not looked at: `check_images` does.
    """
    path = Path(path)
    if isinstance(downscale, bool) or not isinstance(downscale, int) or downscale < 1:
        raise InputError("downscale", got=repr(downscale), expected="a whole number of at least 1")
    if format not in (*FORMATS, "auto"):
        raise InputError("format", got=repr(format), expected=" or ".join(repr(name) for name in (*FORMATS, "auto")))
    if not path.is_dir():
        raise InputError(
            str(path),
            got="a file" if path.exists() else "nothing there",
            expected="a capture folder",
            fix="check the path",
        )
    found = _found(path)
    chosen = found[0] if format == "auto" else format
    raw = _read(path, chosen, images)
    views, rescaled = make_views(raw.frames, downscale)
    ambiguous = [f"{path}: found {', '.join(found)}; read as {chosen}"] if format == "auto" and len(found) > 1 else []
    return Capture(
        path=path,
        format=chosen,
        views=tuple(views),
        points=raw.points,
        colors=raw.colors,
        background=raw.background,
        has_own_split=raw.has_own_split,
        warnings=(*ambiguous, *raw.warnings, *rescaled),
    )


def _found(path: Path) -> list[str]:
    found = [name for name, is_there in _IS_THERE.items() if is_there(path)]
    if found:
        return found
    raise InputError(
        str(path),
        got="no cameras",
        expected=f"a COLMAP model ({', '.join(MODEL_FOLDERS)}), transforms.json or transforms_train.json",
        why="photographs alone say nothing about where they were taken from",
        fix="name the folder that holds these, or estimate the cameras with `lanewise sfm IMAGES --out DIR`",
    )


def _read(path: Path, format: str, images: str | Path | None) -> RawCapture:
    if format == "colmap":
        return read_colmap(path, images)
    if format == "nerfstudio":
        return read_nerfstudio(path, images)
    if images is not None:
        raise InputError(
            "images", got=str(images), expected="nothing for a Blender capture", why="its files name their images"
        )
    return read_blender(path)
