"""A finished or unfinished run, opened for looking at it: its scene, its cameras, how its pictures are made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from lanewise.io.captures import View
from lanewise.io.files import atomic_write
from lanewise.io.scene import Gaussians
from lanewise.train import RunFolder, TrainConfig
from lanewise.train.data import TrainingData, load_data
from lanewise.train.render import render_view, resolve_device


@dataclass(frozen=True)
class RunScene:
    """What a picture of a run needs."""

    config: TrainConfig
    data: TrainingData
    gaussians: Gaussians

    @classmethod
    def open(cls, run: Path, capture: Path | None = None) -> RunScene:
        """Open a run folder.

        Args:
            run: the run folder.
            capture: where the capture is now; None when it is where it was at the training.

        Raises:
            InputError: there is no run, no checkpoint yet, or the capture has gone.
        """
        folder = RunFolder(run)
        config = folder.config()
        return cls(config, load_data(capture or folder.capture_path(), config), folder.scene())

    def picture(self, view: View, gaussians: Gaussians | None = None) -> Tensor:
        """Render a view as the trainer does, float32 [H, W, 3] on the CPU, in 0..1.

        Args:
            view: the camera.
            gaussians: another scene to render in the same way; the run's own when None.
        """
        picture = render_view(
            self.gaussians if gaussians is None else gaussians,
            view,
            background=self.data.background,
            backend=self.config.backend,
            device=resolve_device(self.config.device),
            antialiased=self.config.antialiased,
        )
        return picture.clamp(0, 1).cpu()


def save_png(path: Path, picture: Tensor) -> None:
    """Write a picture [H, W, 3] in 0..1 as an 8-bit PNG, whole or not at all; its folder is made.

    Raises:
        StorageError: the file cannot be written.
    """
    pixels = (picture.numpy() * 255 + 0.5).astype(np.uint8)
    with atomic_write(path) as stream:
        Image.fromarray(pixels).save(stream, format="PNG")
