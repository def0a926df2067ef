"""The capacity of lists, with a renderer that needs what it is told to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lanewise.train import Renderer, TrainConfig
from lanewise.train.data import load_data
from lanewise.train.lists import Lists
from lanewise.train.plan import Plan

PLAN = Plan(0, (1, 3), 0, torch.zeros(2, 3))


class Told(Renderer):
    """Needs `isects` and `coarse` entries, and checks what it is asked to render."""

    isects, coarse = 1000, 300

    def __call__(self, params: Any, viewmats: Any, Ks: Any, width: int, height: int, **options: Any):
        assert (viewmats.shape, Ks.shape, width, height) == ((2, 4, 4), (2, 3, 3), 36, 28)
        assert options == {"sh_degree": 0, "isect_capacity": (1, 1)}
        return (
            torch.empty(0),
            torch.empty(0),
            {"n_isects": torch.tensor(self.isects), "n_coarse": torch.tensor(self.coarse)},
        )


@pytest.fixture
def lists(capture: Path) -> Lists:
    return Lists(Told(), load_data(capture, TrainConfig()), torch.device("cpu"))


def of(count: int) -> dict[str, torch.Tensor]:
    return {"means": torch.zeros(count, 3)}


def test_new_lists_have_a_quarter_to_spare(lists: Lists):
    lists.fit(of(50), PLAN)
    assert lists.capacity == (1250, 375)


def test_what_steps_needed_grows_with_the_gaussians(lists: Lists):
    lists.fit(of(50), PLAN)
    lists.saw((1200, 100))
    lists.saw((1100, 310))
    assert lists.capacity == (1250, 375)  # which does not change between two fits
    lists.fit(of(100), PLAN)
    assert lists.capacity == (3000, 775)
    lists.fit(of(100), PLAN)  # nothing was seen since: what the look says
    assert lists.capacity == (1250, 375)


def test_making_room_never_takes_any_away(lists: Lists):
    lists.fit(of(50), PLAN)
    lists.enlarge((2000, 200))
    assert lists.capacity == (2500, 375)
    lists.fit(of(50), PLAN)
    assert lists.capacity == (2500, 375)  # the lists that overflowed count as seen


def test_no_gaussians(lists: Lists, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Told, "isects", 0)
    monkeypatch.setattr(Told, "coarse", 0)
    lists.fit(of(0), PLAN)
    assert lists.capacity == (1, 1)
