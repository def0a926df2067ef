from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from lanewise.errors import InputError, StorageError
from lanewise.train import RunFolder, TrainConfig, evaluate_run, resume, train

QUICK = TrainConfig(
    steps=45, random_points=150, sh_degree=1, sh_degree_interval=20, refine_start=10, refine_every=10, reset_every=25,
    checkpoint_every=4, eval_at=(22,), grow_grad2d=1e-5,
)  # fmt: skip


@pytest.fixture(scope="module")
def uninterrupted(capture: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    out = tmp_path_factory.mktemp("uninterrupted") / "run"
    train(capture, out, QUICK)
    return RunFolder(out)


def same_result(run: RunFolder, other: RunFolder) -> None:
    """Checkpoint, scene and metrics agree to the bit; only the times differ."""
    assert run.checkpoint_path(45).read_bytes() == other.checkpoint_path(45).read_bytes()
    assert run.scene_path.read_bytes() == other.scene_path.read_bytes()
    timeless = [[{**line, "seconds": 0} for line in folder.metrics()] for folder in (run, other)]
    assert timeless[0] == timeless[1]
    for name in ("eval/22/metrics.json", "eval/45/metrics.json"):
        assert (run.path / name).read_bytes() == (other.path / name).read_bytes()


def start(target: Any, arguments: tuple[Any, ...]) -> Any:
    """Run a function in a new process, forked in milliseconds from a server that has imported everything."""
    context = multiprocessing.get_context("forkserver")  # which has run nothing in parallel: OpenMP does not fork
    context.set_forkserver_preload(["lanewise.train"])
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def killed(target: Any, arguments: tuple[Any, ...], after: float) -> bool:
    """Run a function in a new process and kill it after so many seconds; whether it was killed before its end."""
    process = start(target, arguments)
    process.join(after)
    alive = process.is_alive()
    process.kill()
    process.join()
    assert process.exitcode in ((-9,) if alive else (0,)), process.exitcode
    return alive


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_random_moments_and_resumed_gives_the_same_bits(
    capture: Path, tmp_path: Path, uninterrupted: RunFolder, seed: int
):
    run, chance = RunFolder(tmp_path / "run"), random.Random(seed)
    kills = 0
    while not (run.path / "summary.json").exists():
        target, arguments = (resume, (run.path,)) if run.exists() else (train, (capture, run.path, QUICK))
        patience = chance.uniform(0.02, 0.6) if kills < 12 else 600.0
        kills += killed(target, arguments, patience)
    assert kills > 2
    same_result(run, uninterrupted)


def test_killed_while_a_checkpoint_is_written(capture: Path, tmp_path: Path, uninterrupted: RunFolder):
    """Wait for the temporary file of a checkpoint, and kill at once."""
    run = RunFolder(tmp_path / "run")
    for _ in range(20):
        target, arguments = (resume, (run.path,)) if run.exists() else (train, (capture, run.path, QUICK))
        process = start(target, arguments)
        folder = run.path / "checkpoints"
        while process.is_alive() and not (folder.is_dir() and list(folder.glob(".step_*.partial"))):
            time.sleep(0)
        process.kill()
        process.join()
        if list(folder.glob(".step_*.partial")):  # it did die in the middle
            break
    else:
        pytest.fail("no checkpoint was caught half written")
    resume(run.path)
    assert not list(run.path.rglob(".*.partial"))
    same_result(run, uninterrupted)


def test_killed_before_the_first_checkpoint(capture: Path, tmp_path: Path, uninterrupted: RunFolder):
    """config.yaml and some lines are all there is."""
    run = RunFolder(tmp_path / "run")
    run.prepare()
    shutil.copy(uninterrupted.path / "config.yaml", run.path)
    run.metrics_path.write_text(json.dumps({"step": 10, "loss": 0.0, "seconds": 3.0}) + '\n{"step": 2')
    resume(run.path)
    same_result(run, uninterrupted)


def test_a_damaged_newest_checkpoint_costs_only_its_steps(tmp_path: Path, uninterrupted: RunFolder):
    run = RunFolder(shutil.copytree(uninterrupted.path, tmp_path / "run"))
    newest = run.checkpoint_path(45)
    newest.write_bytes(newest.read_bytes()[:1000])
    with pytest.warns(UserWarning, match="The one of step 44 is used instead"):
        resume(run.path)
    same_result(run, uninterrupted)


def test_resuming_a_complete_run_changes_nothing(tmp_path: Path, uninterrupted: RunFolder):
    run = RunFolder(shutil.copytree(uninterrupted.path, tmp_path / "run"))
    (run.path / "summary.json").unlink()
    (run.path / "scene.ply").unlink()
    summary = resume(run.path)
    same_result(run, uninterrupted)
    assert summary["psnr"] == uninterrupted.summary()["psnr"]
    assert summary["seconds"] == pytest.approx(uninterrupted.summary()["seconds"], abs=0.1)


def test_more_steps(capture: Path, tmp_path: Path, uninterrupted: RunFolder):
    run = RunFolder(shutil.copytree(uninterrupted.path, tmp_path / "run"))
    resume(run.path, steps=50)
    train(capture, tmp_path / "straight", dataclasses.replace(QUICK, steps=50))
    straight = RunFolder(tmp_path / "straight")
    assert run.checkpoint_path(50).read_bytes() == straight.checkpoint_path(50).read_bytes()
    assert run.config() == straight.config()
    with pytest.raises(InputError, match=r"^steps: got 49, expected at least 50"):
        resume(run.path, steps=49)


def test_a_run_is_not_overwritten(capture: Path, uninterrupted: RunFolder):
    before = uninterrupted.checkpoint_path(45).read_bytes()
    with pytest.raises(InputError, match=r"^out: .* Fix: go on with --resume"):
        train(capture, uninterrupted.path, QUICK)
    assert uninterrupted.checkpoint_path(45).read_bytes() == before


def test_bad_input_leaves_nothing_behind(capture: Path, tmp_path: Path):
    with pytest.raises(InputError):
        train(tmp_path / "no capture", tmp_path / "run", QUICK)
    with pytest.raises(InputError, match=r"^steps: "):
        train(capture, tmp_path / "run", dataclasses.replace(QUICK, steps=0))
    with pytest.raises(InputError, match=r"^backend: got 'triton'"):
        train(capture, tmp_path / "run", dataclasses.replace(QUICK, backend="triton"))
    with pytest.raises(InputError, match=r"^device: "):
        train(capture, tmp_path / "run", dataclasses.replace(QUICK, device="gpu"))
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="expected the folder of a training run"):
        resume(tmp_path / "run")


def test_a_capture_is_never_written_into_and_no_path_is_not_a_path(capture: Path, tmp_path: Path):
    before = sorted(path for path in capture.rglob("*"))
    for out in (capture, capture / "run"):
        with pytest.raises(InputError, match="out: got a folder inside the capture"):
            train(capture, out, QUICK)
    for arguments in ((capture, ""), ("", tmp_path / "run")):
        with pytest.raises(InputError, match=r"(out|capture): got an empty path"):
            train(*arguments, QUICK)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file is a file"):
        train(capture, tmp_path / "file" / "run", QUICK)
    assert sorted(path for path in capture.rglob("*")) == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_unwritable_folder(capture: Path, tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match="permission"):
        train(capture, tmp_path / "run", QUICK)


def test_a_moved_capture(capture: Path, tmp_path: Path, uninterrupted: RunFolder):
    moved = shutil.copytree(capture, tmp_path / "moved")
    run = RunFolder(shutil.copytree(uninterrupted.path, tmp_path / "run"))
    run.checkpoint_path(45).unlink()
    resume(run.path, capture=moved)
    assert run.capture_path() == moved
    same_result(run, uninterrupted)


def test_evaluate_run(tmp_path: Path, uninterrupted: RunFolder):
    run = RunFolder(shutil.copytree(uninterrupted.path, tmp_path / "run"))
    shutil.rmtree(run.path / "eval")
    result = evaluate_run(run.path)
    assert result["step"] == 45
    assert result["psnr"] == uninterrupted.summary()["psnr"]
    assert (run.path / "eval" / "45" / "metrics.json").is_file()
    by_reference = evaluate_run(run.path, backend="reference")
    assert by_reference["psnr"] == pytest.approx(result["psnr"], abs=1e-2)
