"""A tiny capture: coloured balls seen by cameras on a ring, as transforms.json."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

WIDTH, HEIGHT, FOCAL = 36, 28, 32.0
_RNG = np.random.default_rng(7)
BALLS = _RNG.uniform(-0.7, 0.7, (12, 3))
COLORS = _RNG.integers(60, 255, (12, 3))


def look_at_origin(angle: float) -> np.ndarray:
    """Camera-to-world matrix in OpenGL axes (x right, y up, z backward), on a ring around the origin."""
    position = np.array([3 * np.cos(angle), 0.6, 3 * np.sin(angle)])
    backward = position / np.linalg.norm(position)
    right = np.cross([0.0, 1.0, 0.0], backward)
    right /= np.linalg.norm(right)
    matrix = np.eye(4)
    matrix[:3, :4] = np.stack([right, np.cross(backward, right), backward, position], axis=1)
    return matrix


def photograph(camera_to_world: np.ndarray) -> np.ndarray:
    """The balls as discs, nearest last, uint8 [HEIGHT, WIDTH, 3]."""
    local = (np.linalg.inv(camera_to_world) @ np.c_[BALLS, np.ones(len(BALLS))].T)[:3].T
    y, x = np.mgrid[:HEIGHT, :WIDTH] + 0.5
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    for i in np.argsort(local[:, 2]):
        depth = -local[i, 2]
        u, v = WIDTH / 2 + FOCAL * local[i, 0] / depth, HEIGHT / 2 - FOCAL * local[i, 1] / depth
        image[(x - u) ** 2 + (y - v) ** 2 < (0.25 * FOCAL / depth) ** 2] = COLORS[i]
    return image


def write_capture(folder: Path, count: int = 9) -> Path:
    (folder / "images").mkdir(parents=True)
    frames = []
    for i in range(count):
        camera = look_at_origin(2 * np.pi * i / count)
        Image.fromarray(photograph(camera)).save(folder / "images" / f"{i:02d}.png")
        frames.append({"file_path": f"images/{i:02d}.png", "transform_matrix": camera.tolist()})
    intrinsics = {"fl_x": FOCAL, "fl_y": FOCAL, "cx": WIDTH / 2, "cy": HEIGHT / 2, "w": WIDTH, "h": HEIGHT}
    (folder / "transforms.json").write_text(json.dumps({**intrinsics, "frames": frames}))
    return folder
