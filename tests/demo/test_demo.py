from lanewise.demo import DEMO_STEPS, DEMO_TRAIN_OVERRIDES, write_capture
from lanewise.train import TrainConfig, train


def test_the_demos_settings_are_settings_of_a_run():
    TrainConfig(steps=DEMO_STEPS, **DEMO_TRAIN_OVERRIDES).validate()
    assert DEMO_TRAIN_OVERRIDES["refine_stop"] < DEMO_STEPS
    defaults = TrainConfig()
    assert all(getattr(defaults, name) != value for name, value in DEMO_TRAIN_OVERRIDES.items())


def test_a_few_steps_on_a_small_capture_beat_the_nearest_photograph(tmp_path):
    """The way of the demo in small; wrong cameras, colours or points would not get there."""
    capture = write_capture(tmp_path / "capture", width=96, height=72, views=24, points=4000)
    config = TrainConfig(steps=60, checkpoint_every=60, device="cpu", **DEMO_TRAIN_OVERRIDES)
    summary = train(capture, tmp_path / "run", config)
    assert summary["psnr"] > summary["baseline_psnr"] + 3
