from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lanewise.io.captures import View, load_capture
from lanewise.io.scene import Gaussians
from lanewise.train import Renderer, TrainConfig
from lanewise.train.data import TrainingData, initial_gaussians, load_batch, load_data
from lanewise.train.evaluation import evaluate, picture_names, psnr


@pytest.fixture(scope="module")
def data(capture: Path) -> TrainingData:
    return load_data(capture, TrainConfig())


def scene(data: TrainingData) -> Gaussians:
    config = TrainConfig(random_points=60, sh_degree=1)
    return initial_gaussians(data, config, torch.Generator().manual_seed(1))


def test_psnr():
    truth = torch.zeros(4, 5, 3)
    assert psnr(truth + 0.1, truth) == pytest.approx(20, abs=1e-4)
    assert psnr(truth, truth) == pytest.approx(100)
    mask = torch.zeros(4, 5, dtype=torch.bool)
    mask[0, 0] = True
    other = truth + 1
    other[0, 0] = 0.01
    assert psnr(other, truth, mask) == pytest.approx(40, abs=1e-3)
    assert psnr(other, truth, mask & False) == pytest.approx(100)


def test_figures_and_files(data: TrainingData, tmp_path: Path):
    result = evaluate(scene(data), data, Renderer(), step=12, folder=tmp_path / "12")
    assert result == json.loads((tmp_path / "12" / "metrics.json").read_text())
    assert result["step"] == 12
    assert result["split"] == "test"
    assert result["views"] == 2
    assert result["gaussians"] == 60
    assert result["lpips"] is None
    assert result["lpips_status"] == "not computed"
    rows = result["per_image"]
    for key in ("psnr", "ssim", "baseline_psnr"):
        assert result[key] == pytest.approx(np.mean([row[key] for row in rows]))
    with (tmp_path / "12" / "per_image.csv").open() as stream:
        assert [row["name"] for row in csv.DictReader(stream)] == [view.name for view in data.test]

    pictures = sorted((tmp_path / "12").glob("*.png"))
    assert len(pictures) == 2
    strip = np.asarray(Image.open(pictures[0])).astype(int)
    assert strip.shape == (28, 3 * 36, 3)
    truth, render, error = strip[:, :36], strip[:, 36:72], strip[:, 72:]
    assert (truth == np.asarray(Image.open(data.test[0].path).convert("RGB"))).all()
    assert np.abs(error - np.minimum(255, 4 * np.abs(truth - render))).max() <= 5  # of rounding, four times brighter
    mse = np.mean((truth - render) ** 2) / 255**2
    assert rows[0]["psnr"] == pytest.approx(-10 * np.log10(mse), abs=0.02)


def test_baseline_is_the_nearest_training_photograph(data: TrainingData):
    result = evaluate(scene(data), data, Renderer(), step=1)
    for row, view in zip(result["per_image"], data.test, strict=True):
        centres = {v.name: np.linalg.inv(v.viewmat)[:3, 3] for v in data.train}
        here = np.linalg.inv(view.viewmat)[:3, 3]
        nearest = min(data.train, key=lambda v: np.linalg.norm(centres[v.name] - here))
        truth, other = data.photos[view].rgb, data.photos[nearest].rgb
        assert row["baseline_psnr"] == pytest.approx(
            -10 * torch.log10((truth - other).square().mean()).item(), abs=1e-4
        )


def test_baseline_of_another_size_is_resized(data: TrainingData, tmp_path: Path):
    flat = np.full((56, 72, 3), 128, np.uint8)
    train = []
    for view in data.train:
        path = tmp_path / Path(view.name).name
        Image.fromarray(flat).save(path)
        train.append(dataclasses.replace(view, path=path, width=72, height=56))
    result = evaluate(scene(data), dataclasses.replace(data, train=tuple(train)), Renderer(), step=1)
    truth = data.photos[data.test[0]].rgb
    expected = -10 * torch.log10((truth - 128 / 255).square().mean()).item()
    assert result["per_image"][0]["baseline_psnr"] == pytest.approx(expected, abs=1e-3)


def test_without_held_out_photographs_the_training_ones_are_measured(capture: Path):
    everything = load_data(capture, TrainConfig(test_every=0))
    result = evaluate(scene(everything), everything, Renderer(), step=1)
    assert result["split"] == "train"
    assert result["views"] == 9
    assert result["baseline_psnr"] < 60  # never the picture itself
    loaded = load_capture(capture)
    alone = load_data(dataclasses.replace(loaded, views=loaded.views[:1]), TrainConfig())
    assert evaluate(scene(alone), alone, Renderer(), step=1)["baseline_psnr"] is None


def test_pictures_too_small_for_ssim(capture: Path):
    small = load_data(capture, TrainConfig(downscale=3, ssim_weight=0.0))
    result = evaluate(scene(small), small, Renderer(), step=1)
    assert result["ssim"] is None
    assert result["psnr"] > 0


def test_masked_pixels_do_not_count(data: TrainingData, tmp_path: Path):
    mask = np.zeros((28, 36), np.uint8)
    mask[5:20, 5:20] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    view = dataclasses.replace(data.test[0], mask_path=tmp_path / "mask.png")
    masked = dataclasses.replace(data, test=(view,))
    row = evaluate(scene(data), masked, Renderer(), step=1)["per_image"][0]
    whole = evaluate(scene(data), dataclasses.replace(data, test=data.test[:1]), Renderer(), step=1)["per_image"][0]
    assert row["psnr"] != pytest.approx(whole["psnr"], abs=1e-3)
    batch = load_batch(data, [view], torch.device("cpu"))
    assert batch.mask is not None
    assert batch.mask.sum() == 225


def test_picture_names():
    def view(name: str) -> View:
        return View(name, Path(name), np.eye(4), np.eye(3), 1, 1, None, None)

    names = picture_names([view("a.jpg"), view("b/a.jpg"), view("c.jpg"), view("c.png")])
    assert list(names.values()) == ["a.png", "b__a.png", "c.jpg.png", "c.png.png"]
