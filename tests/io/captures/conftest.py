"""Small captures on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from scipy.spatial.transform import Rotation

from lanewise.io.captures.colmap import CAMERA_MODELS, Camera, Image, Points, write_model

WIDTH, HEIGHT = 12, 8


def _noise(seed: int, width: int = WIDTH, height: int = HEIGHT, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def _save(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def noise() -> Callable[..., np.ndarray]:
    """`noise(seed, width, height, channels)`: pixels [height, width, channels] uint8."""
    return _noise


@pytest.fixture
def save() -> Callable[[Path, np.ndarray], Path]:
    """`save(path, pixels)` writes an image file, and its folder where that is missing."""
    return _save


@pytest.fixture
def write_colmap() -> Callable[..., Path]:
    """Writes a COLMAP capture of `count` images; keywords replace the camera, the poses, the names or the points."""

    def write(
        folder: Path, count: int = 3, *, camera=None, images=None, names=None, points=None, sparse="sparse/0"
    ) -> Path:
        rng = np.random.default_rng(0)
        names = names or [f"{i:02d}.png" for i in range(count)]
        for i, name in enumerate(names):
            _save(folder / "images" / name, _noise(i))
        rotations = Rotation.random(len(names), rng=rng).as_quat(scalar_first=True)
        images = images or [Image(i + 1, rotations[i], rng.normal(size=3), 1, name) for i, name in enumerate(names)]
        points = points or Points(rng.normal(size=(4, 3)), rng.integers(0, 256, (4, 3), dtype=np.uint8))
        camera = camera or Camera(1, "PINHOLE", WIDTH, HEIGHT, (10.0, 11.0, 6.5, 3.5))
        write_model(folder / sparse, [camera], images, points)
        return folder

    return write


@pytest.fixture
def write_transforms() -> Callable[..., Path]:
    """Writes images and a transforms file; `meta` and `frame` are merged into the file's top and into every frame."""

    def write(folder: Path, count: int = 3, *, file="transforms.json", prefix="images/", meta=None, frame=None) -> Path:
        frames = []
        for i in range(count):
            _save(folder / f"{prefix}{i:02d}.png", _noise(i))
            pose = np.eye(4)
            pose[:3, 3] = (i, 0, 5)
            frames.append({"file_path": f"./{prefix}{i:02d}.png", "transform_matrix": pose.tolist(), **(frame or {})})
        base = {"fl_x": 10.0, "fl_y": 11.0, "cx": 6.5, "cy": 3.5, "w": WIDTH, "h": HEIGHT}
        (folder / file).write_text(json.dumps({**base, "frames": frames, **(meta or {})}))
        return folder

    return write


@pytest.fixture
def sample() -> tuple[list[Camera], list[Image], Points]:
    """A model with every camera model, an image each, and a few points."""
    rng = np.random.default_rng(0)
    cameras = [
        Camera(7 + i, name, 640 + i, 480, tuple(rng.uniform(1, 500, len(model.params))))
        for i, (name, model) in enumerate(CAMERA_MODELS.items())
    ]
    rotations = Rotation.random(len(cameras), rng=rng).as_quat(scalar_first=True)
    images = [
        Image(100 - i, rotations[i], rng.normal(size=3), camera.id, f"a b/ü{i}.png") for i, camera in enumerate(cameras)
    ]
    return cameras, images, Points(rng.normal(size=(5, 3)), rng.integers(0, 256, (5, 3), dtype=np.uint8))


@pytest.fixture
def sample_data() -> Callable[[str], Path]:
    """`sample_data(name)`: a set of the sample data beside the repository; the test is skipped where it is not."""

    def find(name: str) -> Path:
        folder = Path(__file__).parents[4] / "shared" / "data" / name
        if not folder.exists():
            pytest.skip(f"sample data {name} is not beside the repository")
        return folder

    return find


@pytest.fixture
def pycolmap():
    """pycolmap, the oracle; the test is skipped where it is not installed."""
    return pytest.importorskip("pycolmap", reason="pycolmap is the oracle: pip install 'lanewise[colmap]'")
