from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lanewise.errors import InputError
from lanewise.io.captures import load_capture
from lanewise.io.scene import SH_C0
from lanewise.train import TrainConfig
from lanewise.train.data import initial_gaussians, load_batch, load_data

CPU = torch.device("cpu")


def test_every_eighth_photograph_is_held_out(capture: Path):
    data = load_data(capture, TrainConfig())
    assert [view.path.name for view in data.test] == ["00.png", "08.png"]
    assert len(data.train) == 7
    assert not {view.name for view in data.test} & {view.name for view in data.train}
    assert data.background == (0.0, 0.0, 0.0)
    assert len(load_data(capture, TrainConfig(test_every=0)).train) == 9


def test_a_single_photograph_is_for_training(capture: Path, tmp_path: Path):
    loaded = load_capture(capture)
    data = load_data(dataclasses.replace(loaded, views=loaded.views[:1]), TrainConfig())
    assert len(data.train) == 1
    assert data.test == ()


def test_batch(capture: Path):
    data = load_data(capture, TrainConfig())
    batch = load_batch(data, data.train[:2], CPU)
    assert batch.rgb.shape == (2, 28, 36, 3)
    assert batch.mask is None
    truth = np.asarray(Image.open(data.train[1].path).convert("RGB"))
    torch.testing.assert_close(batch.rgb[1], torch.from_numpy(truth.astype(np.float32) / 255))
    torch.testing.assert_close(
        batch.viewmats[1].double(), torch.from_numpy(data.train[1].viewmat), rtol=1e-6, atol=1e-6
    )
    torch.testing.assert_close(batch.Ks[1].double(), torch.from_numpy(data.train[1].K))


def test_masks_of_some_photographs(capture: Path, tmp_path: Path):
    data = load_data(capture, TrainConfig())
    mask = np.zeros((28, 36), np.uint8)
    mask[:, :9] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    masked = dataclasses.replace(data.train[0], mask_path=tmp_path / "mask.png")
    batch = load_batch(data, [masked, data.train[1]], CPU)
    assert batch.mask is not None
    assert torch.equal(batch.mask[0], torch.from_numpy(mask > 0))
    assert batch.mask[1].all()


def test_first_gaussians(capture: Path):
    loaded = load_capture(capture)
    points = np.random.default_rng(0).normal(size=(50, 3))
    loaded = dataclasses.replace(loaded, points=points, colors=np.full((50, 3), 51, np.uint8))
    config = TrainConfig(init_opacity=0.2, init_scale=2.0, sh_degree=2)
    gaussians = initial_gaussians(load_data(loaded, config), config, torch.Generator().manual_seed(0))
    torch.testing.assert_close(gaussians.means, torch.from_numpy(points).float())
    torch.testing.assert_close(gaussians.opacities.sigmoid(), torch.full((50,), 0.2))
    torch.testing.assert_close(gaussians.sh0 * SH_C0 + 0.5, torch.full((50, 1, 3), 0.2))
    assert gaussians.shN.shape == (50, 8, 3)
    assert not gaussians.shN.any()
    assert (gaussians.scales == gaussians.scales[:, :1]).all()
    distance = torch.cdist(gaussians.means, gaussians.means).topk(4, largest=False).values[:, 1:]
    torch.testing.assert_close(gaussians.scales[:, 0].exp(), 2 * distance.square().mean(-1).sqrt(), rtol=1e-4, atol=0)


def test_cap_holds_from_the_start(capture: Path):
    config = TrainConfig(random_points=100, max_gaussians=30)
    data = load_data(capture, config)
    gaussians = initial_gaussians(data, config, torch.Generator().manual_seed(0))
    assert len(gaussians) == 30
    assert len(gaussians.means.unique(dim=0)) == 30


def test_digest_follows_what_training_depends_on(capture: Path, tmp_path: Path):
    data = load_data(capture, TrainConfig())
    assert data.digest() == load_data(shutil.copytree(capture, tmp_path / "moved"), TrainConfig()).digest()
    assert data.digest() != load_data(capture, TrainConfig(test_every=4)).digest()
    assert data.digest() != load_data(capture, TrainConfig(background=(1.0, 1.0, 1.0))).digest()
    transforms = json.loads((tmp_path / "moved" / "transforms.json").read_text())
    transforms["fl_x"] += 0.5
    (tmp_path / "moved" / "transforms.json").write_text(json.dumps(transforms))
    assert data.digest() != load_data(tmp_path / "moved", TrainConfig()).digest()


def test_settings_that_do_not_suit_the_capture(capture: Path):
    loaded = load_capture(capture)
    views = list(loaded.views)
    Image.new("RGB", (36, 24)).save(capture.parent / "other.png")
    views[1] = dataclasses.replace(views[1], path=capture.parent / "other.png", height=24)
    mixed = dataclasses.replace(loaded, views=tuple(views))
    with pytest.raises(InputError, match=r"^batch_size: got 2 with photographs of 2 sizes"):
        load_data(mixed, TrainConfig(batch_size=2))
    with pytest.raises(InputError, match=r"^downscale: got 3, which leaves a photograph only 9 pixels wide or high"):
        load_data(capture, TrainConfig(downscale=3))
    load_data(capture, TrainConfig(downscale=3, ssim_weight=0.0))
    with pytest.raises(InputError, match=r"^random_background: "):
        load_data(dataclasses.replace(loaded, background=(1.0, 1.0, 1.0)), TrainConfig(random_background=True))


def test_a_damaged_photograph_is_found_before_training(capture: Path, tmp_path: Path):
    copy = shutil.copytree(capture, tmp_path / "copy")
    photo = copy / "images" / "05.png"
    photo.write_bytes(photo.read_bytes()[:-40])
    with pytest.raises(InputError, match=r"05\.png"):
        load_data(copy, TrainConfig())
