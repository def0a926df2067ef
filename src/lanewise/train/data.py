"""What a run trains on: photographs, cameras, background, and the Gaussians to begin with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lanewise.errors import InputError
from lanewise.io.captures import Capture, View, check_images, load_capture
from lanewise.io.scene import SH_C0, Gaussians
from lanewise.train.config import TrainConfig
from lanewise.train.dataset import ImageCache, initial_points, neighbour_distances, scene_scale
from lanewise.train.photometric.reference import WINDOW


@dataclass(frozen=True)
class TrainingData:
    """A capture, divided and checked.

    Attributes:
        capture: the capture.
        train: views to train on, at least one.
        test: views held out; empty when there are none.
        photos: their photographs.
        background: colour behind the scene, 0..1.
        scene_scale: how far the training cameras spread, world units.
    """

    capture: Capture
    train: tuple[View, ...]
    test: tuple[View, ...]
    photos: ImageCache
    background: tuple[float, float, float]
    scene_scale: float

    def digest(self) -> str:
        """Short digest of what training depends on, so that a run is not resumed on another capture."""
        digest = hashlib.sha256(repr(self.background).encode())
        for view in self.train:
            digest.update(f"{view.name} {view.width} {view.height} {view.mask_path is not None}".encode())
            digest.update(np.ascontiguousarray(view.viewmat).tobytes())
            digest.update(np.ascontiguousarray(view.K).tobytes())
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Batch:
    """Photographs of one step: rgb [B, H, W, 3], mask bool [B, H, W] or None, viewmats [B, 4, 4], Ks [B, 3, 3]."""

    rgb: Tensor
    mask: Tensor | None
    viewmats: Tensor
    Ks: Tensor


def load_data(
    capture: Capture | Path | str, config: TrainConfig, *, progress: Callable[[int, int], None] | None = None
) -> TrainingData:
    """Load a capture (unless it is loaded already), divide it, and decode every photograph once.

    Args:
        capture: a capture, or its folder.
        config: the settings.
        progress: called with (decoded, total) after every photograph.

    Raises:
        InputError: the capture cannot be used, or not with these settings.
    """
    if not isinstance(capture, Capture):
        capture = load_capture(capture, format=config.format, downscale=config.downscale, images=config.images)
    alone = len(capture.views) == 1 and not capture.has_own_split  # then it is for training
    train = capture.train_views(0 if alone else config.test_every)
    test = () if alone else capture.test_views(config.test_every)
    _check_settings(capture, train, config)
    check_images((*train, *test), progress=progress)
    background = config.background or capture.background or (0.0, 0.0, 0.0)
    scale = scene_scale(np.stack([view.viewmat for view in train]))
    return TrainingData(capture, train, test, ImageCache(background), background, scale)


def load_batch(data: TrainingData, views: Sequence[View], device: torch.device) -> Batch:
    """The photographs and cameras of views of one size, on the device."""
    photos = [data.photos[view] for view in views]
    masks = [photo.mask for photo in photos]
    mask = None
    if any(m is not None for m in masks):
        everything = torch.ones(photos[0].rgb.shape[:2], dtype=torch.bool)
        mask = torch.stack([everything if m is None else m for m in masks]).to(device, non_blocking=True)
    rgb = photos[0].rgb[None] if len(photos) == 1 else torch.stack([photo.rgb for photo in photos])
    viewmats = torch.from_numpy(np.stack([view.viewmat for view in views]).astype(np.float32))
    Ks = torch.from_numpy(np.stack([view.K for view in views]).astype(np.float32))
    return Batch(rgb.to(device, non_blocking=True), mask, viewmats.to(device), Ks.to(device))


def initial_gaussians(data: TrainingData, config: TrainConfig, generator: torch.Generator) -> Gaussians:
    """A Gaussian on every point of the capture (or on random ones): isotropic, of the point's colour, randomly rotated.

    Args:
        data: the capture.
        config: initial size and opacity, degree, and the cap, beyond which points are left out at random.
        generator: CPU generator.

    Returns:
        float32 Gaussians on the CPU.
    """
    points, colors = initial_points(data.capture, generator=generator, count=config.random_points)
    if config.max_gaussians is not None and len(points) > config.max_gaussians:
        chosen = torch.randperm(len(points), generator=generator)[: config.max_gaussians]
        points, colors = points[chosen], colors[chosen]
    n = len(points)
    scales = torch.log(neighbour_distances(points) * config.init_scale)  # [N]
    opacity = torch.logit(torch.tensor(config.init_opacity, dtype=torch.float64)).item()
    return Gaussians(
        means=points,
        quats=torch.rand(n, 4, generator=generator),
        scales=scales[:, None].repeat(1, 3),
        opacities=torch.full((n,), opacity),
        sh0=((colors - 0.5) / SH_C0)[:, None],
        shN=torch.zeros(n, (config.sh_degree + 1) ** 2 - 1, 3),
    )


def _check_settings(capture: Capture, train: tuple[View, ...], config: TrainConfig) -> None:
    sizes = sorted({(view.width, view.height) for view in train})
    if config.batch_size > 1 and len(sizes) > 1:
        raise InputError(
            "batch_size",
            got=f"{config.batch_size} with photographs of {len(sizes)} sizes",
            expected="1",
            why="the photographs of a step are rendered together",
            fix="use batch_size=1",
        )
    smallest = min(min(size) for size in sizes)
    if config.ssim_weight > 0 and smallest < WINDOW:
        raise InputError(
            "downscale",
            got=f"{config.downscale}, which leaves a photograph only {smallest} pixels wide or high",
            expected=f"photographs of at least {WINDOW} x {WINDOW} pixels",
            why="SSIM is taken over windows of that size",
            fix="use a smaller --downscale, or larger photographs",
        )
    if config.random_background and capture.background is not None:
        raise InputError(
            "random_background",
            got="true with a capture that defines its background",
            expected="false",
            why="its photographs are composited over one colour",
        )
