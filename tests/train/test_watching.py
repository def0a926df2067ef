from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lanewise.audit.faults import Fault, find_fault, planted
from lanewise.audit.finding import Finding
from lanewise.audit.watching import Watch
from lanewise.train import DivergedError, Renderer, RunFolder, Silent, TrainConfig, resume, train

QUICK = TrainConfig(
    steps=24, random_points=300, sh_degree=1, sh_degree_interval=9, refine_start=10, refine_every=10,
    checkpoint_every=12, eval_at=(), grow_grad2d=1e-5, device="cpu",
)  # fmt: skip


class Notes(Silent):
    def __init__(self) -> None:
        self.found: list[Finding] = []

    def on_finding(self, finding: Finding) -> None:
        self.found.append(finding)


@dataclasses.dataclass(frozen=True)
class Faulty:
    """A renderer whose gradients of some tensors are faulty."""

    fault: Fault
    names: tuple[str, ...]

    def __call__(self, params: Mapping[str, Tensor], *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor, dict]:
        faulty = {name: planted(t, self.fault) if name in self.names else t for name, t in params.items()}
        return Renderer()(faulty, *args, **kwargs)


def test_a_healthy_run_is_watched_and_says_nothing(capture: Path, tmp_path: Path):
    notes = Notes()
    summary = train(capture, tmp_path / "run", QUICK, observer=notes)
    assert notes.found == summary["findings"] == []
    lines = [json.loads(line) for line in RunFolder(tmp_path / "run").watch_path.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["start", "norms", "norms", "end"]


def test_watching_can_be_switched_off_and_changes_no_bit(capture: Path, tmp_path: Path):
    seen, unseen = (RunFolder(tmp_path / name) for name in ("seen", "unseen"))
    train(capture, seen.path, QUICK)
    summary = train(capture, unseen.path, dataclasses.replace(QUICK, watch=False))
    assert summary["findings"] is None
    assert not unseen.watch_path.exists()
    for a, b in zip(seen.checkpoints(), unseen.checkpoints(), strict=True):
        assert a.read_bytes() == b.read_bytes()


def test_a_resumed_run_goes_on_in_the_log(capture: Path, tmp_path: Path):
    run = RunFolder(tmp_path / "run")
    train(capture, run.path, dataclasses.replace(QUICK, steps=12))
    resume(run.path, steps=24)
    lines = [json.loads(line) for line in run.watch_path.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["start", "norms", "norms", "end", "start", "norms", "end"]
    assert (lines[3]["step"], lines[-1]["step"]) == (12, 24)


@pytest.mark.parametrize(
    ("fault", "names", "expected"),
    [
        ("odd-waves", ("means", "scales"), {("LW401", "means"), ("LW401", "scales"), ("LW404", "means")}),
        ("zero", ("opacities",), {("LW404", "opacities"), ("LW401", "opacities")}),
        ("window-zero", ("means",), {("LW401", "means")}),
        ("scaled", ("sh0",), {("LW404", "sh0")}),
    ],
)
def test_a_fault_is_found(capture: Path, tmp_path: Path, fault: str, names: tuple[str, ...], expected: set):
    notes = Notes()
    train(capture, tmp_path / "run", QUICK, observer=notes, renderer=Faulty(find_fault(fault), names))
    found = {(finding.code, finding.argument) for finding in notes.found}
    assert expected <= found
    assert {argument for _, argument in found} == set(names)


def test_nan_is_found_before_the_loss_diverges(capture: Path, tmp_path: Path):
    notes = Notes()
    with pytest.raises(DivergedError):
        train(capture, tmp_path / "run", QUICK, observer=notes, renderer=Faulty(find_fault("nan"), ("sh0",)))
    (finding,) = [f for f in notes.found if f.code == "LW403"]
    assert (finding.argument, finding.evidence["step"]) == ("sh0", 0)
    assert finding.evidence["finite"] == 4  # shN has no gradient yet


def test_a_step_whose_lists_did_not_fit_says_nothing(tmp_path: Path):
    params = {name: torch.nn.Parameter(torch.randn(200, 3)) for name in ("means", "scales")}
    with Watch(params, [], every=1, on_finding="ignore") as watch:
        for step in range(12):
            broken = {"means": torch.full((200, 3), float("nan")), "scales": torch.zeros(200, 3)}
            lost = {"means": find_fault("odd-waves").apply(torch.randn(200, 3)), "scales": torch.randn(200, 3)}
            watch.before_step(lost if step % 2 else broken, valid=torch.tensor(False))
            watch.after_step()  # and the parameters are what they were
    assert watch.findings == []
    assert watch.notes == {}
