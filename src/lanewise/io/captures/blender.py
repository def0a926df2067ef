"""Blender's layout (NeRF-synthetic): `transforms_{train,test,val}.json`, transparent renders, white background."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from lanewise.errors import InputError
from lanewise.io.captures.capture import Split
from lanewise.io.captures.frame import Frame, RawCapture
from lanewise.io.captures.transforms import read_frames, read_intrinsics, read_json, read_pose, resolve_file

WHITE = (1.0, 1.0, 1.0)


def read_blender(capture: Path) -> RawCapture:
    """Frames of a Blender capture, with its own split.

    An image that "val" repeats from "test" stays in "test".

    Raises:
        InputError: `transforms_train.json` is missing or one of the files is damaged; an image is both trained on and
            held out.
    """
    frames: dict[str, Frame] = {}
    warnings = []
    for split in get_args(Split):
        path = capture / f"transforms_{split}.json"
        if split != "train" and not path.is_file():
            continue
        for fields in read_frames(read_json(path)):
            name, image = resolve_file(capture, fields.text("file_path"))
            earlier = frames.get(name)
            if earlier is None:
                frames[name] = Frame(name, image, None, read_pose(fields), read_intrinsics(fields, image), split)
            elif not (split == "val" and earlier.split == "test"):
                raise InputError(
                    f"{fields.where} image {name!r}",
                    got=f"listed under {earlier.split} and {split}",
                    expected="every image once",
                    why="an image that is trained on cannot be held out",
                    fix="remove one of the two entries",
                )
    if all(frame.split == "train" for frame in frames.values()):
        warnings.append(f"{capture}: no transforms_test.json and no transforms_val.json, so no image is held out")
    return RawCapture(list(frames.values()), background=WHITE, has_own_split=True, warnings=warnings)
