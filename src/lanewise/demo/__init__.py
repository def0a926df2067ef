"""A procedural capture with known cameras, so that the whole path can be tried without photographs."""

from typing import Any

from lanewise.demo.capture import write_capture

__all__ = ["DEMO_STEPS", "DEMO_TRAIN_OVERRIDES", "write_capture"]

DEMO_STEPS = 700
"""Training steps after which the capture of `write_capture` is seen well: about 28.7 dB on its held-out views."""

DEMO_TRAIN_OVERRIDES: dict[str, Any] = {
    # The standard settings are made for 30,000 steps. In a fraction of them, growth must begin and end earlier, the
    # learning rates of sizes and colours may be higher, and the first Gaussians may be small and half opaque, since the
    # sparse cloud is dense for the size of the pictures. The cap bounds the time of a step.
    "refine_start": 150,
    "refine_stop": 600,
    "max_gaussians": 30_000,
    "init_opacity": 0.5,
    "init_scale": 0.7,
    "scales_lr": 1e-2,
    "sh0_lr": 5e-3,
    "sh_degree": 2,
    "sh_degree_interval": 200,
    "shN_lr": 5e-4,
}
"""Fields of `lanewise.train.TrainConfig` that differ from their defaults in the demo."""
