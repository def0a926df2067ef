"""Structure from motion on rendered photographs whose cameras are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from scipy.spatial.transform import Rotation

from lanewise.errors import InputError
from lanewise.io.captures.geometry import camera_centres
from lanewise.io.captures.sfm import SfmOptions, reconstruct

WIDTH, HEIGHT, FOCAL = 240, 180, 200.0
CENTRES = [np.array([x, -1.5, 0.3 * x]) for x in (-0.6, -0.2, 0.2, 0.6)]
YAWS = [0.2, 0.05, -0.1, -0.25]  # about the y axis, which points down: without rotation the focal length is not seen


def camera_to_world(yaw: float) -> np.ndarray:
    return Rotation.from_rotvec([0, yaw, 0]).as_matrix()


def photograph(centre: np.ndarray, yaw: float, texture: np.ndarray) -> np.ndarray:
    """The view [H, W, 3] of a textured floor y = 0 and wall z = 4: each pixel's ray meets the nearer of the two."""
    px, py = np.meshgrid(np.arange(WIDTH) + 0.5, np.arange(HEIGHT) + 0.5)
    rays = np.stack([(px - WIDTH / 2) / FOCAL, (py - HEIGHT / 2) / FOCAL, np.ones_like(px)], axis=-1)
    rays = rays @ camera_to_world(yaw).T  # [H, W, 3] world
    to_floor = np.where(rays[..., 1] > 1e-9, -centre[1] / np.maximum(rays[..., 1], 1e-9), np.inf)
    to_wall = (4 - centre[2]) / rays[..., 2]
    hit = centre + rays * np.minimum(to_floor, to_wall)[..., None]
    along = np.where(to_floor < to_wall, hit[..., 2], 4 - hit[..., 1])  # unrolled: along the floor, then up the wall
    rows, columns = (
        np.floor(c * 100).astype(int) % n for c, n in zip((along, hit[..., 0]), texture.shape, strict=False)
    )
    return texture[rows, columns]


@pytest.fixture
def photographs(tmp_path, save) -> Path:
    rng = np.random.default_rng(0)
    coarse = PIL.Image.fromarray(rng.integers(0, 256, (160, 200, 3), dtype=np.uint8))
    texture = np.asarray(coarse.resize((1000, 800), PIL.Image.Resampling.BICUBIC))
    for i, (centre, yaw) in enumerate(zip(CENTRES, YAWS, strict=True)):
        save(tmp_path / "photos" / f"{i}.png", photograph(centre, yaw, texture))
    return tmp_path / "photos"


@pytest.mark.parametrize("matching", ["exhaustive", "sequential"])
def test_known_cameras_are_found(tmp_path, photographs, pycolmap, matching):
    stages = []
    options = SfmOptions(matching=matching, camera_model="SIMPLE_PINHOLE")
    capture = reconstruct(photographs, tmp_path / "out", options, report=stages.append)
    assert stages == ["features", "matching", "mapping", "undistortion"]
    assert len(capture.views) == 4
    viewmats = np.stack([view.viewmat for view in capture.views])
    # The world is known up to a similarity: rotations between cameras and ratios of distances do not depend on it.
    for i in range(1, 4):
        between = viewmats[i, :3, :3] @ viewmats[0, :3, :3].T
        expected = camera_to_world(YAWS[i]).T @ camera_to_world(YAWS[0])
        assert np.degrees(Rotation.from_matrix(between @ expected.T).magnitude()) < 1
    found, true = (np.linalg.norm(c[1:] - c[0], axis=1) for c in (camera_centres(viewmats), np.stack(CENTRES)))
    np.testing.assert_allclose(found / found[-1], true / true[-1], atol=0.03)
    assert capture.views[0].K[0, 0] == pytest.approx(FOCAL, rel=0.05)
    assert capture.points is not None
    assert len(capture.points) > 50
    assert {p.name for p in tmp_path.iterdir()} == {"photos", "out"}
    assert len(list(photographs.iterdir())) == 4


def test_photographs_without_features(tmp_path, save, pycolmap):
    for i in range(3):
        save(tmp_path / "photos" / f"{i}.png", np.full((48, 64, 3), 90, np.uint8))
    with pytest.raises(InputError, match=r"photos: got photographs from which no camera could be estimated.*Fix: "):
        reconstruct(tmp_path / "photos", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_too_few_and_nowhere(tmp_path, save, noise, pycolmap):
    with pytest.raises(InputError, match="none: got no such folder, expected a folder of photographs"):
        reconstruct(tmp_path / "none", tmp_path / "out")
    save(tmp_path / "photos/a.png", noise(0))
    with pytest.raises(InputError, match="photos: got 1 photographs, expected at least 3"):
        reconstruct(tmp_path / "photos", tmp_path / "out")


def test_sizes_must_agree_for_one_camera(tmp_path, save, noise, pycolmap):
    for i in range(3):
        save(tmp_path / f"photos/{i}.png", noise(i, width=12 + i // 2))
    with pytest.raises(InputError, match=r"sizes 12 x 8 .*13 x 8.*Fix: --cameras per-folder"):
        reconstruct(tmp_path / "photos", tmp_path / "out")


def test_damaged_photograph_is_named(tmp_path, save, noise, pycolmap):
    for i in range(3):
        save(tmp_path / f"photos/{i}.png", noise(i))
    (tmp_path / "photos/1.png").write_text("no image")
    with pytest.raises(InputError, match=r"1\.png: got an unreadable image"):
        reconstruct(tmp_path / "photos", tmp_path / "out")
