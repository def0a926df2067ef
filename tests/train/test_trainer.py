from __future__ import annotations

import dataclasses
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lanewise.errors import InputError, StorageError
from lanewise.io.captures import load_capture
from lanewise.train import DivergedError, RunFolder, Silent, StepRecord, TrainConfig, resume, silent, step, train
from lanewise.train.checkpoint import load_checkpoint
from lanewise.train.data import load_data
from lanewise.train.trainer import Trainer

# A short run with everything in it: densification from step 11 on, an opacity reset, an evaluation on the way.
QUICK = TrainConfig(
    steps=40, random_points=120, sh_degree=1, sh_degree_interval=15, refine_start=10, refine_every=10, reset_every=25,
    checkpoint_every=12, eval_at=(20,), grow_grad2d=1e-5,
)  # fmt: skip


class Notes(Silent):
    """Keeps the news."""

    def __init__(self) -> None:
        self.info: dict[str, Any] = {}
        self.records: list[StepRecord] = []
        self.evaluations: list[int] = []
        self.summary: dict[str, Any] = {}

    def on_start(self, info: dict[str, Any]) -> None:
        self.info = info

    def on_step(self, record: StepRecord) -> None:
        self.records.append(record)

    def on_eval(self, result: dict[str, Any]) -> None:
        self.evaluations.append(result["step"])

    def on_done(self, summary: dict[str, Any]) -> None:
        self.summary = summary


def change(**values: Any) -> TrainConfig:
    return dataclasses.replace(QUICK, **values)


def begin(capture: Path, out: Path, config: TrainConfig) -> Trainer:
    run = RunFolder(out)
    run.prepare()
    return Trainer(load_data(capture, config), config, run, torch.device("cpu"), silent)


@pytest.fixture(scope="module")
def finished(capture: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, Notes, dict[str, Any]]:
    notes = Notes()
    out = tmp_path_factory.mktemp("finished") / "run"
    summary = train(capture, out, QUICK, observer=notes)
    return RunFolder(out), notes, summary


def test_the_loss_falls(finished: tuple[RunFolder, Notes, dict[str, Any]]):
    _, notes, _ = finished
    assert notes.records[-1].loss < 0.8 * notes.records[0].loss


def test_what_the_folder_holds(finished: tuple[RunFolder, Notes, dict[str, Any]], capture: Path):
    run, notes, summary = finished
    assert {path.name for path in run.path.iterdir()} == {
        "config.yaml", "metrics.jsonl", "watch.jsonl", "eval", "checkpoints", "scene.ply", "summary.json"
    }  # fmt: skip
    assert run.config() == dataclasses.replace(QUICK, format="nerfstudio")
    assert run.capture_path() == capture
    assert {path.name for path in (run.path / "eval").iterdir()} == {"20", "40"}
    assert [path.stem for path in run.checkpoints()] == ["step_40", "step_36", "step_24"]
    assert run.summary() == summary == notes.summary
    assert not list(run.path.rglob(".*"))
    expected = {"psnr", "ssim", "baseline_psnr", "seconds", "gaussians", "backend", "device", "steps", "versions"}
    assert expected <= summary.keys()
    assert summary["lpips"] is None
    assert (summary["split"], summary["backend"], summary["device"], summary["steps"]) == ("test", "cpu", "cpu", 40)
    assert summary["gaussians"] == len(run.scene())
    assert summary["versions"]["torch"] == torch.__version__


def test_metrics_account_for_every_gaussian(finished: tuple[RunFolder, Notes, dict[str, Any]]):
    run, notes, _ = finished
    lines = run.metrics()
    assert [line["step"] for line in lines] == [10, 20, 30, 40]
    assert [record.step for record in notes.records] == [10, 20, 30, 40]
    count = notes.info["gaussians"]
    assert count == 120
    for line, record in zip(lines, notes.records, strict=True):
        count += line["split"] + line["duplicated"] - line["pruned"]
        assert line["gaussians"] == count
        for name in ("loss", "psnr", "gaussians", "split", "duplicated", "pruned"):
            assert line[name] == getattr(record, name)
    assert sum(line["split"] + line["duplicated"] for line in lines) > 0
    assert notes.evaluations == [20, 40]
    assert notes.records[-1].eta_s == 0
    assert notes.records[0].eta_s > 0
    assert all(record.memory_bytes > 1 << 20 for record in notes.records)


def test_harmonics_wait_for_their_step(capture: Path, tmp_path: Path):
    run = begin(capture, tmp_path, QUICK)
    for _ in range(15):
        run._advance()
    assert not run.optimizer.params["shN"].any()
    run._advance()
    assert run.optimizer.params["shN"].any()


def test_every_round_shows_every_photograph_once(capture: Path, tmp_path: Path):
    run = begin(capture, tmp_path, change(batch_size=3))
    shown = [view for _ in range(14) for view in run._next_views()]
    rounds = [shown[i : i + 7] for i in range(0, 42, 7)]
    assert all(sorted(views) == list(range(7)) for views in rounds)
    assert len({tuple(views) for views in rounds}) > 1


def test_same_seed_same_bits_and_another_seed_not(capture: Path, tmp_path: Path):
    states = []
    for config in (QUICK, QUICK, change(seed=1)):
        run = begin(capture, tmp_path, config)
        for _ in range(12):
            run._advance()
        states.append(run.state()[0])
    first, again, other = states
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["optimizer.params.quats"], other["optimizer.params.quats"])
    assert not torch.equal(first["random.round"], other["random.round"])


@pytest.mark.parametrize(
    "options",
    [{"batch_size": 2}, {"random_background": True}, {"antialiased": True}, {"ssim_weight": 0.0}],
)
def test_options_have_an_effect(
    capture: Path, tmp_path: Path, options: dict[str, Any], finished: tuple[RunFolder, Notes, dict[str, Any]]
):
    plain, notes = finished[1], Notes()
    train(capture, tmp_path / "run", change(steps=30, **options), observer=notes)
    assert notes.records[0].loss != plain.records[0].loss or notes.records[2].gaussians != plain.records[2].gaussians
    assert all(np.isfinite(record.loss) for record in notes.records)


def test_absolute_gradients_are_at_least_the_others(capture: Path, tmp_path: Path):
    sums = []
    for absgrad in (False, True):
        run = begin(capture, tmp_path, change(absgrad=absgrad))
        run._advance()
        sums.append(run.strategy.state()["grad2d"])
    plain, absolute = sums
    assert (absolute >= plain * (1 - 1e-5)).all()
    assert absolute.sum() > 1.2 * plain.sum()


def test_cap_on_gaussians(capture: Path, tmp_path: Path):
    summary = train(capture, tmp_path / "run", change(max_gaussians=130))
    assert summary["gaussians"] <= 130


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_the_run(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float
):
    honest, calls = step.photometric_loss, []

    def poisoned(*args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(None)
        return honest(*args, **kwargs) * (value if len(calls) == 17 else 1.0)

    monkeypatch.setattr(step, "photometric_loss", poisoned)
    with pytest.raises(DivergedError, match=r"in step 17, .*step_12\.safetensors"):
        train(capture, tmp_path / "run", QUICK)
    checkpoint = load_checkpoint(tmp_path / "run" / "checkpoints" / "step_12.safetensors")
    assert all(torch.isfinite(v).all() for k, v in checkpoint.tensors.items() if k.startswith("optimizer."))


def test_nothing_left(capture: Path, tmp_path: Path):
    """Every Gaussian is pruned at the first refinement; the run goes on and ends as any other."""
    summary = train(capture, tmp_path / "run", change(prune_opa=0.45))
    assert summary["gaussians"] == 0
    assert len(RunFolder(tmp_path / "run").scene()) == 0
    assert summary["psnr"] > 0
    assert resume(tmp_path / "run", steps=45)["gaussians"] == 0


def test_nothing_visible(capture: Path, tmp_path: Path):
    """All points are far behind every camera."""
    loaded = load_capture(capture)
    behind = np.array([[0.0, 50.0, 0.0]]) + np.random.default_rng(0).normal(scale=0.1, size=(40, 3))
    loaded = dataclasses.replace(loaded, points=behind, colors=np.full((40, 3), 200, np.uint8))
    summary = train(loaded, tmp_path / "run", QUICK)
    assert summary["gaussians"] == 40


def test_interrupt_waits_for_the_step_and_leaves_a_checkpoint(
    capture: Path, tmp_path: Path, finished: tuple[RunFolder, Notes, dict[str, Any]]
):
    class Impatient(Silent):
        def on_step(self, record: StepRecord) -> None:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(capture, tmp_path / "run", QUICK, observer=Impatient())
    run = RunFolder(tmp_path / "run")
    assert [path.stem for path in run.checkpoints()] == ["step_10"]
    resume(run.path)
    assert run.checkpoint_path(40).read_bytes() == finished[0].checkpoint_path(40).read_bytes()


def test_full_disk_at_the_start(capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10_000))
    with pytest.raises(StorageError, match="and this run needs"):
        train(capture, tmp_path / "run", QUICK)


def test_full_disk_on_the_way_keeps_the_last_checkpoint(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: tuple[RunFolder, Notes, dict[str, Any]]
):
    class Filling(Silent):
        def on_step(self, record: StepRecord) -> None:
            if record.step == 20:
                monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=10_000))

    with pytest.raises(StorageError, match="a checkpoint needs"):
        train(capture, tmp_path / "run", QUICK, observer=Filling())
    monkeypatch.undo()
    run = RunFolder(tmp_path / "run")
    assert [path.stem for path in run.checkpoints()] == ["step_12"]
    resume(run.path)
    assert run.checkpoint_path(40).read_bytes() == finished[0].checkpoint_path(40).read_bytes()


def test_another_capture_is_refused(capture: Path, tmp_path: Path, finished: tuple[RunFolder, Notes, dict[str, Any]]):
    other = begin(capture, tmp_path, change(background=(1.0, 1.0, 1.0)))
    with pytest.raises(InputError, match=r"^capture: .* Fix: put the capture back"):
        other.restore(load_checkpoint(finished[0].checkpoint_path(40)))
