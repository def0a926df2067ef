"""Which views are trained on and which are held out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lanewise.errors import InputError
from lanewise.io.captures import Capture, View


def capture(splits) -> Capture:
    views = tuple(
        View(f"{i:02d}.png", Path(f"{i:02d}.png"), np.eye(4), np.eye(3), 1, 1, None, split)
        for i, split in enumerate(splits)
    )
    return Capture(Path(), "colmap", views, None, None, None, any(splits), ())


def names(views) -> list[int]:
    return [int(view.name[:2]) for view in views]


def test_every_eighth_is_held_out():
    made = capture([None] * 18)
    assert names(made.test_views()) == [0, 8, 16]
    assert names(made.train_views()) == [i for i in range(18) if i % 8]
    assert names(made.test_views(5)) == [0, 5, 10, 15]


def test_zero_holds_out_none():
    made = capture([None] * 3)
    assert made.test_views(0) == ()
    assert names(made.train_views(0)) == [0, 1, 2]


def test_own_split_wins():
    made = capture(["train", "test", "val", "train", None])
    assert names(made.train_views(2)) == [0, 3]
    assert names(made.test_views(2)) == [1]


def test_val_stands_in_for_test():
    assert names(capture(["train", "val"]).test_views()) == [1]


def test_nothing_left_to_train_on():
    with pytest.raises(InputError, match=r"test_every: got 8 with 1 images.*Fix: test_every=0"):
        capture([None]).train_views()
    with pytest.raises(InputError, match="test_every: got 1 "):
        capture([None] * 4).train_views(1)


def test_negative_is_refused():
    with pytest.raises(InputError, match="test_every: got -1"):
        capture([None]).test_views(-1)
