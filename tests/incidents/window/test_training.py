"""The incident in a training run: the layer does not learn, watch and audit name it, protect cures it."""

from __future__ import annotations

import pytest

from lanewise.demo.incidents import came_true
from lanewise.demo.incidents.window import FITTING, IMAGES, predictions, replay


def test_a_short_run_shows_it_and_watch_names_the_layer():
    healthy, nothing, wrapped, protected = replay(100, audit=False)
    assert nothing.moved == 0
    assert nothing.error == 1
    assert min(healthy.moved, wrapped.moved, protected.moved) > 0.1
    assert healthy.losses[-1] < min(nothing.losses[-1], wrapped.losses[-1])
    assert protected.losses[-1] == pytest.approx(healthy.losses[-1], rel=0.05)
    assert protected.launches <= FITTING < nothing.launches == IMAGES
    assert "LW401" in {code for code, *_ in nothing.watched}
    assert "LW404" in {code for code, *_ in wrapped.watched}
    assert {where for _, where, *_ in (*nothing.watched, *wrapped.watched)} == {"0 (Conv2d)"}
    assert not healthy.watched
    assert not protected.watched


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
def test_all_is_as_predicted():
    found = predictions(replay())
    assert came_true(found), [prediction for prediction in found if not prediction.holds]
