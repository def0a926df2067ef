"""Photographs on a device give what the host gives, resident or streamed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lanewise.io.captures import load_capture
from lanewise.train import TrainConfig
from lanewise.train.data import Batch, TrainingData, load_batch, load_data
from lanewise.train.photos import DevicePhotos, HostPhotos

CPU = torch.device("cpu")
ALL = 1 << 30


@pytest.fixture
def mixed(capture: Path, tmp_path: Path) -> TrainingData:
    """Views of two sizes; of those of the first, one has a mask and one is transparent in places."""
    loaded = load_capture(capture)
    random = np.random.default_rng(0)
    Image.fromarray(random.integers(0, 256, (28, 36, 4), np.uint8)).save(tmp_path / "alpha.png")
    Image.fromarray(random.integers(0, 2, (28, 36), np.uint8) * 255).save(tmp_path / "mask.png")
    Image.fromarray(random.integers(0, 256, (24, 36, 3), np.uint8)).save(tmp_path / "low.png")
    views = list(loaded.views)
    views[1] = dataclasses.replace(views[1], path=tmp_path / "alpha.png")
    views[2] = dataclasses.replace(views[2], mask_path=tmp_path / "mask.png")
    for i in (3, 5):
        views[i] = dataclasses.replace(views[i], path=tmp_path / "low.png", height=24)
    config = TrainConfig(background=(0.2, 0.6, 1.0))
    return load_data(dataclasses.replace(loaded, views=tuple(views)), config)


def expect(batch: Batch, data: TrainingData, views: list[int]) -> None:
    truth = load_batch(data, [data.train[i] for i in views], CPU)
    torch.testing.assert_close(batch.rgb, truth.rgb, rtol=0, atol=1.2e-7)
    assert torch.equal(batch.viewmats, truth.viewmats)
    assert torch.equal(batch.Ks, truth.Ks)
    everything = torch.ones(truth.rgb.shape[:3], dtype=torch.bool)
    got, wanted = (everything if mask is None else mask for mask in (batch.mask, truth.mask))
    assert torch.equal(got, wanted)


def numbers(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize("budget", [ALL, 0], ids=["resident", "streamed"])
def test_every_photograph(mixed: TrainingData, budget: int):
    photos = DevicePhotos(mixed, CPU, budget, flight=4)
    assert photos.how == ("resident" if budget else "streamed")
    order = np.random.default_rng(1).integers(0, len(mixed.train), 24).tolist()
    for begin in range(0, len(order), 4):
        flight = [[i] for i in order[begin : begin + 4]]
        slots = photos.reserve(flight)
        for views, places in zip(flight, slots, strict=True):
            photos.load(views, places)
            view = mixed.train[views[0]]
            expect(photos.batch((view.height, view.width), numbers(views), numbers(places)), mixed, views)


@pytest.mark.parametrize("budget", [ALL, 0], ids=["resident", "streamed"])
def test_several_photographs_a_step(capture: Path, budget: int):
    data = load_data(capture, TrainConfig())
    photos = DevicePhotos(data, CPU, budget, flight=6)
    flight = [[3, 1, 3], [0, 6, 2]]
    slots = photos.reserve(flight)
    for views, places in zip(flight, slots, strict=True):
        photos.load(views, places)
    for views, places in zip(flight, slots, strict=True):  # all of a flight are there together
        batch = photos.batch((28, 36), numbers(views), numbers(places))
        expect(batch, data, views)
        assert batch.mask is None
        truth = load_batch(data, [data.train[i] for i in views], CPU)
        assert torch.equal(batch.rgb, truth.rgb), "opaque pixels have the same bits"


def test_the_flight_before_stays_while_the_next_one_is_loaded(capture: Path):
    data = load_data(capture, TrainConfig())
    photos = DevicePhotos(data, CPU, 0, flight=2)
    first = photos.reserve([[0], [1]])
    for views, places in zip([[0], [1]], first, strict=True):
        photos.load(views, places)
    for views, places in zip([[2], [3]], photos.reserve([[2], [3]]), strict=True):
        photos.load(views, places)
    expect(photos.batch((28, 36), numbers([1]), numbers(first[1])), data, [1])


def test_the_budget_counts_bytes(capture: Path):
    data = load_data(capture, TrainConfig())
    size = 7 * 28 * 36 * 3
    assert DevicePhotos(data, CPU, size, flight=1).resident
    assert not DevicePhotos(data, CPU, size - 1, flight=1).resident


def test_photographs_of_the_host(mixed: TrainingData):
    photos = HostPhotos(mixed, CPU)
    for views in ([0], [2], [1]):
        (places,) = photos.reserve([views])
        photos.load(views, places)
        view = mixed.train[views[0]]
        expect(photos.batch((view.height, view.width), numbers(views), numbers(places)), mixed, views)
