"""Nerfstudio's layout: one `transforms.json`, camera-to-world poses in OpenGL axes.

Source: Nerfstudio's documentation of its data conventions and `nerfstudio_dataparser.py`.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from lanewise.errors import InputError
from lanewise.io.captures.capture import Split
from lanewise.io.captures.colmap.capture import undistort_fix
from lanewise.io.captures.colmap.locate import find_model
from lanewise.io.captures.frame import Frame, RawCapture, drop_unusable_points
from lanewise.io.captures.pointcloud import read_point_cloud
from lanewise.io.captures.transforms import (
    Fields,
    names,
    read_frames,
    read_intrinsics,
    read_json,
    read_pose,
    resolve_file,
)

_DISTORTION = ("k1", "k2", "k3", "k4", "k5", "k6", "p1", "p2")
_PINHOLE_AT_ZERO = ("PINHOLE", "SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV", "FULL_OPENCV")
_SPLITS: tuple[Split, ...] = ("train", "test", "val")


def read_nerfstudio(capture: Path, images: str | Path | None = None) -> RawCapture:
    """Frames and points of a Nerfstudio capture.

    `images` replaces the first folder of every `file_path` (`images/a.png` becomes `images_2/a.png`).

    Raises:
        InputError: broken JSON, missing fields, distorted cameras, poses that are none, splits that contradict each
            other.
    """
    meta = read_json(capture / "transforms.json")
    splits = _read_splits(meta, capture)
    frames = []
    for fields in read_frames(meta):
        _check_pinhole(fields, capture)
        stored = fields.text("file_path")
        name, image = resolve_file(capture, _moved(stored, images))
        mask = capture / fields.text("mask_path") if fields.has("mask_path") else None
        split = splits.pop(_key(stored), None) if splits is not None else None
        frames.append(Frame(name, image, mask, read_pose(fields), read_intrinsics(fields, image), split))
    warnings = []
    if splits is not None:
        _check_splits(meta, frames, splits)
        unused = sum(frame.split is None for frame in frames)
        warnings += [f"{meta.where}: {unused} image(s) are in no split and are not used"] if unused else []
    if not meta.has("ply_file_path"):
        return RawCapture(frames, has_own_split=splits is not None, warnings=warnings)
    path = capture / meta.text("ply_file_path")
    xyz, rgb, dropped = drop_unusable_points(*read_point_cloud(path), where=path)
    return RawCapture(frames, xyz, rgb, has_own_split=splits is not None, warnings=warnings + dropped)


def _moved(stored: str, images: str | Path | None) -> str:
    """`stored` with its first folder replaced by `images`."""
    if images is None:
        return stored
    parts = PurePosixPath(stored).parts
    return str(PurePosixPath(Path(images).as_posix(), *(parts[1:] if len(parts) > 1 else parts)))


def _key(stored: str) -> str:
    """A file name as the split lists and the frames may both write it: `./images/a.png` is `images/a.png`."""
    return str(PurePosixPath(stored))


def _read_splits(meta: Fields, capture: Path) -> dict[str, Split] | None:
    """The part of every listed file name, or None when the capture has no lists. What "val" repeats stays in "test"."""
    lists = {split: names(meta, f"{split}_filenames") for split in _SPLITS}
    if all(listed is None for listed in lists.values()):
        return None
    splits: dict[str, Split] = {}
    for split in _SPLITS:
        for key in map(_key, lists[split] or ()):
            earlier = splits.setdefault(key, split)
            if earlier == "train" and split != "train":
                raise InputError(
                    f"{meta.where} '{split}_filenames'",
                    got=f"{key!r}, which 'train_filenames' lists too",
                    expected="files that are not trained on",
                    why="an image that is trained on cannot be held out",
                    fix="remove one of the two entries",
                )
    return splits


def _check_splits(meta: Fields, frames: list[Frame], left: dict[str, Split]) -> None:
    """Refuse split lists that name files without a frame, or nothing to train on."""
    if left:
        name, split = next(iter(left.items()))
        raise InputError(
            f"{meta.where} '{split}_filenames'",
            got=f"{name!r}, which no frame has as its file_path",
            expected="files of the capture",
            fix="remove the entry, or add the frame",
        )
    if not any(frame.split == "train" for frame in frames):
        raise InputError(
            f"{meta.where} 'train_filenames'",
            got="no file",
            expected="at least one image to train on",
            fix="list the training images, or remove all the lists to hold out every 8th image",
        )


def _check_pinhole(frame: Fields, capture: Path) -> None:
    model = frame.text("camera_model") if frame.has("camera_model") else "OPENCV"
    distortion = {key: frame.number(key, 0.0) for key in _DISTORTION}
    distorted = {key: value for key, value in distortion.items() if value != 0}  # NaN counts as distorted
    is_fisheye = frame.get("is_fisheye", False) is True
    if model in _PINHOLE_AT_ZERO and not distorted and not is_fisheye:
        return
    has_model = find_model(capture) is not None
    raise InputError(
        frame.where,
        got=f"a distorted camera, {'fisheye' if is_fisheye else model} {distorted}",
        expected="a pinhole camera",
        why="splats are rendered through a pinhole, and a capture folder is never written into",
        fix=undistort_fix(capture)
        if has_model
        else "`pip install 'lanewise[colmap]'`, then `lanewise sfm IMAGES --out DIR` estimates the cameras and "
        "undistorts the photographs; for an existing COLMAP model, `lanewise sfm --undistort CAPTURE --out DIR`",
    )
