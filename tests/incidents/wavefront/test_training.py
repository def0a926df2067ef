"""The incident in a training run: what each of its causes does by itself, and whether the trainer's watch names it."""

from __future__ import annotations

import pytest

from lanewise.demo.incidents import came_true
from lanewise.demo.incidents import wavefront as waves
from lanewise.errors import InputError

# Too short to see what tile and lane-mask cost in PSNR; the first densification is in it.
SHORT = waves.Scale(width=48, height=36, views=9, points=1200, steps=130)


def test_a_short_run_shows_which_cause_stops_densification_and_watch_names_each(tmp_path, monkeypatch):
    monkeypatch.setattr(waves, "audit_of", lambda cause, budget: [])
    runs = waves.replay(tmp_path, SHORT)
    healthy, tile, masks, block = runs
    assert block.born == 0
    assert "NaN" in block.ended
    assert min(healthy.born, tile.born, masks.born) > 0
    assert block.psnr < min(healthy.psnr, tile.psnr, masks.psnr) - 3
    assert not healthy.watched
    for run in (tile, masks, block):
        assert run.same_picture
        assert waves.WATCH_CODES[run.name] in {found.code for found in run.watched}
        assert min(found.step for found in run.watched) <= waves.WATCHED
    arguments = {name for found in masks.watched for name in found.arguments}
    assert arguments == {"means", "quats", "scales"}
    assert waves.predictions(runs)[4].holds  # which gradients suffer


def test_a_folder_that_holds_a_run_is_refused_and_not_a_symptom(tmp_path):
    (tmp_path / waves.HEALTHY).mkdir()
    (tmp_path / waves.HEALTHY / "config.yaml").write_text("steps: 1")
    with pytest.raises(InputError):
        waves.replay(tmp_path, SHORT)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_all_is_as_predicted(tmp_path):
    found = waves.predictions(waves.replay(tmp_path))
    assert came_true(found), [prediction for prediction in found if not prediction.holds]
