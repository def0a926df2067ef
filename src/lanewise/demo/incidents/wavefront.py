"""The wavefront incident replayed: each of its causes alone in a training run, beside the healthy run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lanewise.audit.catalogue.own import SPECS
from lanewise.audit.finding import Finding
from lanewise.audit.runner import audit_specs
from lanewise.audit.spec import Spec
from lanewise.demo import DEMO_TRAIN_OVERRIDES, write_capture
from lanewise.demo.incidents.lanes import CAUSES, BrokenRenderer, Cause
from lanewise.demo.incidents.prediction import Prediction
from lanewise.errors import InputError
from lanewise.train import DivergedError, TrainConfig, train
from lanewise.train.data import TrainingData, initial_gaussians, load_batch, load_data
from lanewise.train.observer import Silent, StepRecord
from lanewise.train.photometric import photometric_loss
from lanewise.train.render import Renderer

HEALTHY = "healthy"
WATCHED = 100  # steps in which the trainer's watch is to name a cause
AUDITED = {"rasterization": "rasterization (colors)", "projection": "project_gaussians"}  # names in the catalogue
NOTICEABLE = 0.1  # relative error of a gradient that lost about half of its terms, at least
LEAST_LOSS = 0.5  # dB
# A failed probe where all are too small alike; dead rows where their siblings live; where NaN begins.
WATCH_CODES = {"tile": "LW404", "lane-mask": "LW401", "block-64": "LW403"}
_CALLED = {"rasterization": "rasterization(", "projection": "project_gaussians("}

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Scale:
    """How large a replay is.

    Attributes:
        width, height, views, points: of the capture (`write_capture`).
        steps: of each training run.
        audit: budget of each audit.
    """

    width: int = 96
    height: int = 72
    views: int = 24
    points: int = 4000
    steps: int = 400
    audit: str = "1 cases"

    def config(self) -> TrainConfig:
        """Settings of the demo, with a schedule for so few steps."""
        schedule = {"refine_start": 50, "refine_stop": self.steps - self.steps // 6, "refine_every": 100}
        return TrainConfig(
            **{**DEMO_TRAIN_OVERRIDES, **schedule},
            steps=self.steps,
            checkpoint_every=self.steps,
            device="cpu",
        )


@dataclass(frozen=True)
class Watched:
    """Findings of one code in one step (from 1) by the trainer's watch: the tensors, and what is said of the first."""

    code: str
    arguments: tuple[str, ...]
    step: int
    cause: str


@dataclass(frozen=True)
class Run:
    """What came of one training run.

    Attributes:
        name: of the cause, or `HEALTHY`.
        psnr: of the held-out views, dB.
        before, after: number of Gaussians at the first and after the last step.
        born: Gaussians that came by splitting or duplicating.
        pruned: Gaussians that went.
        same_picture: whether the first rendering has the healthy one's bits.
        errors: relative error of the gradients of the first step, by tensor; NaN where they are not finite.
        ended: why the run has no scene to keep; "" where it has.
        watched: what the trainer's watch found.
        audited: the audit's findings, as "LW103 of colors".
    """

    name: str
    psnr: float
    before: int
    after: int
    born: int
    pruned: int
    same_picture: bool
    errors: Mapping[str, float]
    ended: str
    watched: Sequence[Watched]
    audited: Sequence[str]


class _Notes(Silent):
    """Keeps what a run tells."""

    def __init__(self) -> None:
        self.before = self.after = self.born = self.pruned = 0
        self.psnr = float("nan")
        self._findings: list[Finding] = []

    def on_start(self, info: dict[str, Any]) -> None:
        self.before = info["gaussians"]

    def on_step(self, record: StepRecord) -> None:
        self.after = record.gaussians
        self.born += record.split + record.duplicated
        self.pruned += record.pruned

    def on_eval(self, result: dict[str, Any]) -> None:
        self.psnr = result["psnr"]

    def on_finding(self, finding: Finding) -> None:
        self._findings.append(finding)

    @property
    def watched(self) -> list[Watched]:
        """The findings, those of one code and step as one."""
        groups: dict[tuple[str, int], list[Finding]] = {}
        for finding in self._findings:
            groups.setdefault((finding.code, finding.evidence["step"] + 1), []).append(finding)
        return [
            Watched(code, tuple(f.argument for f in found), step, found[0].cause or "")
            for (code, step), found in groups.items()
        ]


def replay(folder: Path, scale: Scale | None = None, tell: Tell = lambda line: None) -> list[Run]:
    """Train the healthy run and one for each cause, from the same start in the same order, and audit their operators.

    Args:
        folder: gets the capture and a run folder for each.
        scale: how large; the demo's when None.
        tell: called with a line before each part.

    Raises:
        InputError, StorageError: as of `write_capture` and `train`.
    """
    scale = scale or Scale()
    tell("the capture")
    capture = write_capture(
        folder / "capture", width=scale.width, height=scale.height, views=scale.views, points=scale.points
    )
    config = scale.config()
    first = FirstStep(load_data(capture, config), config)
    runs = []
    for cause in (None, *CAUSES):
        name = HEALTHY if cause is None else cause.name
        tell(f"{name}: training")
        notes, ended = _trained(capture, folder / name, config, cause)
        tell(f"{name}: audit")
        audited = audit_of(cause, scale.audit)
        same, errors = first.beside_healthy(cause)
        counts = (notes.before, notes.after, notes.born, notes.pruned)
        runs.append(Run(name, notes.psnr, *counts, same, errors, ended, notes.watched, audited))
    return runs


def _trained(capture: Path, folder: Path, config: TrainConfig, cause: Cause | None) -> tuple[_Notes, str]:
    notes, ended = _Notes(), ""
    try:
        train(capture, folder, config, observer=notes, renderer=BrokenRenderer(Renderer.of(config), cause))
    except (InputError, DivergedError) as error:
        if not notes.after:  # the folder or the settings cannot be used
            raise
        ended = str(error)  # a scene of NaN is not written
    return notes, ended


class FirstStep:
    """The gradients of a run's first step, with and without a cause.

    Args:
        data: of the run.
        config: of the run.
    """

    def __init__(self, data: TrainingData, config: TrainConfig) -> None:
        self._gaussians = initial_gaussians(data, config, torch.Generator().manual_seed(config.seed))
        self._batch = load_batch(data, data.train[:1], torch.device("cpu"))
        self._config = config
        self._picture, self._healthy = self.gradients(None)

    def gradients(self, cause: Cause | None) -> tuple[Tensor, dict[str, Tensor]]:
        """The picture [1, H, W, 3], and the loss's gradients by tensor: the trained ones, means2d and viewmats."""
        params = {name: tensor.clone().requires_grad_() for name, tensor in self._gaussians.tensors().items()}
        viewmats = self._batch.viewmats.clone().requires_grad_()
        height, width = self._batch.rgb.shape[1:3]
        render = BrokenRenderer(Renderer.of(self._config), cause)
        colors, _, meta = render(params, viewmats, self._batch.Ks, width, height, sh_degree=0)
        inputs = {"means2d": meta["means2d"], **params, "viewmats": viewmats}
        del inputs["shN"]  # not used at degree 0
        loss = photometric_loss(colors, self._batch.rgb, ssim_weight=self._config.ssim_weight)
        return colors.detach(), dict(zip(inputs, torch.autograd.grad(loss, list(inputs.values())), strict=True))

    def beside_healthy(self, cause: Cause | None) -> tuple[bool, dict[str, float]]:
        """Whether the picture has the same bits, and the relative L2 error of each gradient."""
        picture, gradients = self.gradients(cause)
        errors = {}
        for name, right in self._healthy.items():
            errors[name] = float((gradients[name].double() - right.double()).norm() / right.double().norm())
        return torch.equal(picture, self._picture), errors


def audit_of(cause: Cause | None, budget: str) -> list[str]:
    """What the audit finds in the operator that has the cause (in both without one): "LW103 of colors"."""
    found = []
    for place in AUDITED if cause is None else (cause.place,):
        report = audit_specs([spec_of(cause, place)], device="cpu", budget=budget)
        found += [f"{f.code} of {f.argument}" for f in report.findings]
    return found


def spec_of(cause: Cause | None, place: str) -> Spec:
    """The catalogue's entry of an operator, with the cause in its backward pass; all sizes but N stay."""
    spec = next(spec for spec in SPECS if spec.name == AUDITED[place])
    stay = {name: (size,) for name, size in spec.sizes.items() if name != "N"}
    inputs = tuple(dataclasses.replace(t, dims=_numbered(t.dims, spec.sizes)) for t in spec.inputs)
    spec = dataclasses.replace(spec, inputs=inputs, sizes={"N": spec.sizes["N"]}, options={**spec.options, **stay})
    if cause is None:
        return spec
    called = f"broken_{place}"
    setup = f"from lanewise.demo.incidents.lanes import {called}"
    source = spec.source.replace(_CALLED[place], f"{called}({cause.name!r}, ")
    # The report's library sums the background's gradient outside of its kernels.
    inputs = tuple(dataclasses.replace(t, kind="constant") if t.name == "backgrounds" else t for t in spec.inputs)
    linear = tuple(name for name in spec.linear if name != "backgrounds")
    return dataclasses.replace(spec, setup=setup, source=source, inputs=inputs, linear=linear)


def _numbered(dims: str, sizes: Mapping[str, int]) -> str:
    return " ".join(str(sizes.get(dim, dim)) if dim != "N" else dim for dim in dims.split())


def predictions(runs: Sequence[Run]) -> list[Prediction]:
    """What the incident's report and the arithmetic of the lanes foretell of `replay`."""
    healthy, tile, masks, block = runs
    broken = (tile, masks, block)
    lost = {run.name: run.psnr - healthy.psnr for run in broken}
    every, none = set(healthy.errors), set()
    in_projection = {"means", "quats", "scales", "viewmats"}
    suffering = {run.name: {name for name, error in run.errors.items() if not error <= NOTICEABLE} for run in runs}
    untouched = {run.name: {name for name, error in run.errors.items() if error == 0} for run in runs}
    return [
        Prediction(
            "nothing shows in the picture: before the first update all causes render the healthy bits",
            all(run.same_picture for run in broken),
        ),
        Prediction(
            "block-64 stops densification: not one Gaussian is split or duplicated",
            healthy.born > 0 and block.born == 0,
            f"{healthy.born:,} healthy, {block.born:,}",
        ),
        Prediction(
            "tile and lane-mask do not stop it: at least half as many come as in the healthy run",
            min(tile.born, masks.born) >= healthy.born / 2 > 0,
            f"{healthy.born:,} healthy, {tile.born:,} and {masks.born:,}",
        ),
        Prediction(
            f"tile and lane-mask lower the PSNR, by more than {LEAST_LOSS} dB each",
            max(lost["tile"], lost["lane-mask"]) < -LEAST_LOSS,
            f"{lost['tile']:+.2f} and {lost['lane-mask']:+.2f} dB",
        ),
        Prediction(
            "tile spoils every gradient, lane-mask those that pass the projection and no other, block-64 makes all NaN",
            suffering["tile"] == every
            and suffering["lane-mask"] == in_projection
            and untouched["lane-mask"] == every - in_projection
            and all(math.isnan(error) for error in block.errors.values())
            and suffering[HEALTHY] == none,
        ),
        Prediction(
            f"watch names each within {WATCHED} steps, by its kind, and nothing in the healthy run",
            not healthy.watched and all(WATCH_CODES[run.name] in _codes(run.watched) for run in broken),
            ", ".join(f"{run.name} in step {run.watched[0].step}" for run in broken if run.watched),
        ),
        Prediction(
            "the audit finds each in its operator, and nothing in the healthy ones",
            not healthy.audited and all(run.audited for run in broken),
            ", ".join(f"{run.name} {' '.join(run.audited)}" for run in broken),
        ),
    ]


def _codes(found: Sequence[Watched]) -> set[str]:
    return {finding.code for finding in found if finding.step <= WATCHED}
