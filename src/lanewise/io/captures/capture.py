"""A capture: views (a photograph and its camera each) and, where the format has them, sparse points."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lanewise.errors import InputError

Split = Literal["train", "test", "val"]


@dataclass(frozen=True)
class View:
    """One photograph and its camera.

    Attributes:
        name: file name relative to the image folder, with forward slashes; unique in the capture.
        path: the image file.
        viewmat: world-to-camera matrix [4, 4] float64, OpenCV axes (x right, y down, z forward).
        K: intrinsics [3, 3] float64 in pixels of (width, height), pixel centres at +0.5.
        width: image width in pixels as trained, that is after downscaling.
        height: image height in pixels as trained.
        mask_path: image whose zero pixels do not count, or None.
        split: the part that the format itself assigns, or None.
    """

    name: str
    path: Path
    viewmat: NDArray[np.float64]
    K: NDArray[np.float64]
    width: int
    height: int
    mask_path: Path | None
    split: Split | None


@dataclass(frozen=True)
class Capture:
    """All views of a scene.

    Attributes:
        path: the capture's folder.
        format: "colmap", "nerfstudio" or "blender".
        views: sorted by file name.
        points: sparse points in world units [P, 3] float64, or None when the format has none.
        colors: their colours [P, 3] uint8, or None.
        background: colour in 0..1 behind the scene that the format itself defines (Blender: white), or None.
        has_own_split: whether the format says what is trained on and what is held out.
        warnings: what was repaired or is odd, one sentence each.
    """

    path: Path
    format: str
    views: tuple[View, ...]
    points: NDArray[np.float64] | None
    colors: NDArray[np.uint8] | None
    background: tuple[float, float, float] | None
    has_own_split: bool
    warnings: tuple[str, ...]

    def train_views(self, test_every: int = 8) -> tuple[View, ...]:
        """The views to train on: the format's own choice, else all but every `test_every`th by file name.

        Args:
            test_every: hold out views 0, test_every, 2 test_every, ...; 0 holds out none.

        Raises:
            InputError: `test_every` is negative or leaves nothing to train on.
        """
        held_out = {view.name for view in self._every(test_every)}
        views = tuple(v for v in self.views if (v.split == "train" if self.has_own_split else v.name not in held_out))
        if not views:
            raise InputError(
                "test_every",
                got=f"{test_every} with {len(self.views)} images",
                expected="at least one image left for training",
                fix="test_every=0 trains on all images and holds none out",
            )
        return views

    def test_views(self, test_every: int = 8) -> tuple[View, ...]:
        """The views held out: the format's own "test" (or, without one, "val"), else every `test_every`th by file name.

        Raises:
            InputError: `test_every` is negative.
        """
        if not self.has_own_split:
            return self._every(test_every)
        by_split = {split: tuple(v for v in self.views if v.split == split) for split in ("test", "val")}
        return by_split["test"] or by_split["val"]

    def _every(self, test_every: int) -> tuple[View, ...]:
        if test_every < 0:
            raise InputError("test_every", got=test_every, expected="0 (hold out none) or a positive number")
        return self.views[::test_every] if test_every else ()
