"""What a training run can be told: one flat dataclass, kept as YAML in the run folder."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from lanewise.errors import InputError
from lanewise.splat._backend import BACKENDS, Backend


@dataclass(kw_only=True)
class TrainConfig:
    """Settings of a training run. The defaults are those of gsplat 1.5.3's standard trainer.

    Steps are counted from 0 where a schedule is meant ("after step 500": from the 501st on), and as the number of
    completed steps where a result is named (`eval_at`, checkpoints, metrics).
    """

    # How long, and with what
    steps: int = 30_000
    """Number of training steps."""
    batch_size: int = 1
    """Photographs a step. Learning rates grow with its square root."""
    seed: int = 42
    """Seed of everything random: first rotations, order of the photographs, splits, random backgrounds."""
    device: str = "auto"
    """Where to train: auto (a GPU when there is one), cpu, cuda, cuda:1, ..."""
    backend: Backend = "auto"
    """Which implementation of the operators to use."""
    cuda_graph: bool = True
    """Capture training steps on a GPU into a graph; off: launch them one by one, with the same results."""

    # The capture
    format: Literal["auto", "colmap", "nerfstudio", "blender"] = "auto"
    """Layout of the capture folder."""
    images: str | None = None
    """Folder of the photographs, when it is not the one that the format names."""
    downscale: int = 1
    """Divide the size of the photographs by this."""
    test_every: int = 8
    """Hold out every n-th photograph by file name (0, n, ...) for evaluation, unless the capture has its own split."""
    background: tuple[float, float, float] | None = None
    """Colour behind the scene, each channel 0..1. Without it: the capture's own, else black."""
    random_background: bool = False
    """Render over a new random colour in every step, which discourages half-transparent surfaces."""
    random_points: int = 100_000
    """Number of random points to start from, when the capture has no points of its own."""

    # The Gaussians
    sh_degree: int = 3
    """Highest degree of the spherical harmonics, 0..4."""
    sh_degree_interval: int = 1_000
    """One more degree of the spherical harmonics after every so many steps, from 0 on."""
    init_opacity: float = 0.1
    """Opacity of the first Gaussians."""
    init_scale: float = 1.0
    """Size of the first Gaussians, in root mean square distances to the three nearest neighbours."""
    antialiased: bool = False
    """Compensate the opacity of small Gaussians for the low-pass filter of the projection."""
    max_gaussians: int | None = None
    """Never have more Gaussians than this: densification then takes those with the largest gradients."""

    # Loss and optimizer
    ssim_weight: float = 0.2
    """Weight w of the structural term: (1 - w) L1 + w (1 - SSIM)."""
    means_lr: float = 1.6e-4
    """Learning rate of the centres, in units of the scene's scale."""
    means_lr_final: float = 0.01
    """Factor that the centres' learning rate has decayed to after `means_lr_decay_steps`."""
    means_lr_decay_steps: int = 30_000
    """Steps over which the centres' learning rate decays, whatever `steps` is."""
    scales_lr: float = 5e-3
    """Learning rate of the logarithmic scales."""
    opacities_lr: float = 5e-2
    """Learning rate of the opacity logits."""
    quats_lr: float = 1e-3
    """Learning rate of the rotations."""
    sh0_lr: float = 2.5e-3
    """Learning rate of the colour (degree-0 coefficients)."""
    shN_lr: float = 2.5e-3 / 20  # noqa: N815  (named after the tensor)
    """Learning rate of the higher spherical-harmonics coefficients."""
    selective_adam: bool = False
    """A step changes only the Gaussians that one of its photographs sees, moments included (Taming 3DGS)."""

    # Densification
    strategy: Literal["default"] = "default"
    """How Gaussians come and go."""
    prune_opa: float = 0.005
    """Gaussians less opaque than this are pruned; an opacity reset leaves at most twice this."""
    grow_grad2d: float = 2e-4
    """Gaussians whose mean image-plane gradient (in half images) exceeds this are duplicated or split."""
    grow_scale3d: float = 0.01
    """Up to this size, in scene scales, they are duplicated; larger ones are split."""
    grow_scale2d: float = 0.05
    """Before step `refine_scale2d_stop`, Gaussians wider than this part of the image are split as well."""
    prune_scale3d: float = 0.1
    """Gaussians larger than this, in scene scales, are pruned once the first opacity reset is past."""
    prune_scale2d: float = 0.15
    """Before step `refine_scale2d_stop`, the same for Gaussians wider than this part of the image."""
    refine_scale2d_stop: int = 0
    """Use the two rules on image-plane size before this step; 0 never uses them."""
    refine_start: int = 500
    """Densify after this step."""
    refine_stop: int = 15_000
    """Densify, prune and reset before this step."""
    refine_every: int = 100
    """Densify and prune every so many steps."""
    reset_every: int = 3_000
    """Lower all opacities every so many steps."""
    pause_refine_after_reset: int = 0
    """Neither densify nor prune for so many steps after an opacity reset."""
    absgrad: bool = False
    """Densify by the sum of absolute per-pixel gradients; raise `grow_grad2d` to about 8e-4 with it."""
    revised_opacity: bool = False
    """Give the two halves of a split the opacity that keeps their combined transmittance."""

    # What is written
    eval_at: tuple[int, ...] = (7_000,)
    """Evaluate the held-out photographs after these steps; the last step is always evaluated."""
    checkpoint_every: int = 1_000
    """Write a checkpoint every so many steps; the last step always has one."""
    keep_checkpoints: int = 3
    """How many of the newest checkpoints to keep; two or more, so that a damaged one has a predecessor."""
    watch: bool = True
    """Watch the gradients while training (`lanewise.audit.watch`): findings are shown, and kept in watch.jsonl."""
    log_every: int = 10
    """Write a line of metrics every so many steps, at most 10."""

    def validate(self) -> None:
        """Raise `InputError` for the first field whose value cannot be used."""
        for name, (holds, expected) in _RULES.items():
            value = getattr(self, name)
            if not holds(value):
                raise InputError(name, got=repr(value), expected=expected)
        if self.refine_stop > self.refine_start and self.pause_refine_after_reset >= self.reset_every:
            raise InputError(
                "pause_refine_after_reset",
                got=self.pause_refine_after_reset,
                expected=f"less than reset_every = {self.reset_every}",
                why="densification would pause for ever",
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain values by field name, as in YAML or JSON (tuples become lists)."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any], *, source: Path | str = "config") -> TrainConfig:
        """The inverse of `to_dict`; fields that are missing keep their defaults.

        Raises:
            InputError: a field is unknown or its value cannot be used; `source` names where it stood.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        if unknown := sorted(set(values) - known):
            raise InputError(
                str(source),
                got=f"unknown field {', '.join(unknown)}",
                expected="fields of TrainConfig",
                fix="remove it, or use the version that wrote it",
            )
        plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        config = cls(**plain)
        config.validate()
        return config

    def to_yaml(self) -> str:
        """The settings as YAML text, in the order of the fields."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False)

    @classmethod
    def from_yaml(cls, text: str, *, source: Path | str = "config") -> TrainConfig:
        """The inverse of `to_yaml`. Raises `InputError` as `from_dict`, and for text that is not a YAML mapping."""
        return cls.from_dict(read_mapping(text, source=source), source=source)


def read_mapping(text: str, *, source: Path | str) -> dict[str, Any]:
    """Parse YAML text that must hold a mapping; `InputError` names `source` otherwise."""
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        first = str(error).splitlines()[0]
        raise InputError(str(source), got=f"text that is not YAML ({first})", expected="a YAML mapping") from None
    if not isinstance(values, dict):
        raise InputError(str(source), got=type(values).__name__, expected="a YAML mapping")
    return values


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _count(least: int, most: int | None = None) -> tuple[Any, str]:
    def holds(v: object) -> bool:
        return isinstance(v, int) and not isinstance(v, bool) and v >= least and (most is None or v <= most)

    return holds, f"a whole number, at least {least}" + (f" and at most {most}" if most is not None else "")


def _one_of(*values: object) -> tuple[Any, str]:
    return lambda v: v in values, " or ".join(map(str, values))


_FLAG = (lambda v: isinstance(v, bool), "true or false")
_POSITIVE = (lambda v: _number(v) and v > 0, "a number above 0")
_NOT_NEGATIVE = (lambda v: _number(v) and v >= 0, "a number, at least 0")
_PART = (lambda v: _number(v) and 0 <= v <= 1, "a number, 0..1")
_OPACITY = (lambda v: _number(v) and 0 < v < 1, "a number above 0 and below 1")

_RULES: dict[str, tuple[Any, str]] = {
    "steps": _count(1),
    "batch_size": _count(1),
    "seed": _count(0, 2**63 - 1),
    "device": (lambda v: isinstance(v, str) and bool(v), "auto, cpu, cuda, cuda:1, ..."),
    "backend": _one_of(*BACKENDS),
    "cuda_graph": _FLAG,
    "watch": _FLAG,
    "format": _one_of("auto", "colmap", "nerfstudio", "blender"),
    "images": (lambda v: v is None or (isinstance(v, str) and bool(v)), "a folder, or nothing"),
    "downscale": _count(1),
    "test_every": _count(0),
    "background": (
        lambda v: v is None or (isinstance(v, tuple) and len(v) == 3 and all(_number(c) and 0 <= c <= 1 for c in v)),
        "three numbers, 0..1, or nothing",
    ),
    "random_background": _FLAG,
    "random_points": _count(1),
    "sh_degree": _count(0, 4),
    "sh_degree_interval": _count(1),
    "init_opacity": _OPACITY,
    "init_scale": _POSITIVE,
    "antialiased": _FLAG,
    "max_gaussians": (lambda v: v is None or _count(1)[0](v), "a whole number, at least 1, or nothing"),
    "ssim_weight": _PART,
    "means_lr": _NOT_NEGATIVE,
    "means_lr_final": (lambda v: _number(v) and 0 < v <= 1, "a number above 0, at most 1"),
    "means_lr_decay_steps": _count(1),
    "scales_lr": _NOT_NEGATIVE,
    "opacities_lr": _NOT_NEGATIVE,
    "quats_lr": _NOT_NEGATIVE,
    "sh0_lr": _NOT_NEGATIVE,
    "shN_lr": _NOT_NEGATIVE,
    "selective_adam": _FLAG,
    "strategy": _one_of("default"),
    "prune_opa": (lambda v: _number(v) and 0 < v < 0.5, "a number above 0 and below 0.5"),
    "grow_grad2d": _NOT_NEGATIVE,
    "grow_scale3d": _NOT_NEGATIVE,
    "grow_scale2d": _NOT_NEGATIVE,
    "prune_scale3d": _NOT_NEGATIVE,
    "prune_scale2d": _NOT_NEGATIVE,
    "refine_scale2d_stop": _count(0),
    "refine_start": _count(0),
    "refine_stop": _count(0),
    "refine_every": _count(1),
    "reset_every": _count(1),
    "pause_refine_after_reset": _count(0),
    "absgrad": _FLAG,
    "revised_opacity": _FLAG,
    "eval_at": (lambda v: isinstance(v, tuple) and all(_count(1)[0](s) for s in v), "whole numbers, at least 1"),
    "checkpoint_every": _count(1),
    "keep_checkpoints": _count(2),
    "log_every": _count(1, 10),
}
