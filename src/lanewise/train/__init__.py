"""Training splat scenes from photographs."""

from lanewise.train.config import TrainConfig
from lanewise.train.observer import Observer, Silent, StepRecord, silent
from lanewise.train.render import Renderer, render_view, resolve_device
from lanewise.train.run_folder import RunFolder
from lanewise.train.session import evaluate_run, resume, train
from lanewise.train.trainer import DivergedError

__all__ = [
    "DivergedError",
    "Observer",
    "Renderer",
    "RunFolder",
    "Silent",
    "StepRecord",
    "TrainConfig",
    "evaluate_run",
    "render_view",
    "resolve_device",
    "resume",
    "silent",
    "train",
]
