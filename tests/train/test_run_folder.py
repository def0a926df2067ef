from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from lanewise.errors import InputError, StorageError
from lanewise.io.json_lines import JsonLines
from lanewise.io.ply import save_ply
from lanewise.io.scene import Gaussians
from lanewise.train import RunFolder, TrainConfig
from lanewise.train.checkpoint import save_checkpoint


def scene(value: float) -> Gaussians:
    return Gaussians(
        torch.full((2, 3), value),
        torch.ones(2, 4),
        torch.zeros(2, 3),
        torch.zeros(2),
        torch.zeros(2, 1, 3),
        torch.zeros(2, 0, 3),
    )


def add_checkpoint(run: RunFolder, step: int) -> Path:
    tensors = {f"optimizer.params.{name}": tensor for name, tensor in scene(float(step)).tensors().items()}
    save_checkpoint(run.checkpoint_path(step), step, tensors, {})
    return run.checkpoint_path(step)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.prepare()
    folder.write_config(TrainConfig(steps=12, background=(1.0, 1.0, 1.0)), Path("/somewhere/capture"))
    return folder


def test_config_and_capture_are_remembered(run: RunFolder):
    assert run.exists()
    assert run.config() == TrainConfig(steps=12, background=(1.0, 1.0, 1.0))
    assert run.capture_path() == Path("/somewhere/capture")


def test_a_folder_without_a_run(tmp_path: Path):
    for call in (RunFolder(tmp_path).config, RunFolder(tmp_path / "x").capture_path):
        with pytest.raises(InputError, match=r"got no config.yaml, expected the folder of a training run"):
            call()


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "checkpoints/step_3.safetensors"])
def test_a_run_is_never_overwritten(tmp_path: Path, name: str):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.touch()
    with pytest.raises(InputError, match=r"^out: got a folder that holds a run .* Fix: go on with --resume"):
        RunFolder(tmp_path).refuse_existing()


def test_a_folder_with_other_things_is_fine(tmp_path: Path):
    (tmp_path / "notes.txt").touch()
    RunFolder(tmp_path).refuse_existing()
    RunFolder(tmp_path / "new").refuse_existing()
    with pytest.raises(InputError, match=r"^out: got a file"):
        RunFolder(tmp_path / "notes.txt").refuse_existing()


def test_checkpoints_are_ordered_by_number(run: RunFolder):
    assert run.latest_checkpoint() is None
    assert run.load_latest() is None
    for step in (900, 1000, 80):
        add_checkpoint(run, step)
    (run.path / "checkpoints" / ".step_2000.safetensors.x.partial").touch()
    (run.path / "checkpoints" / "step_x.safetensors").touch()
    assert [path.name for path in run.checkpoints()] == [f"step_{s}.safetensors" for s in (1000, 900, 80)]
    run.keep_newest(2)
    assert [path.name for path in run.checkpoints()] == ["step_1000.safetensors", "step_900.safetensors"]


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(run: RunFolder):
    add_checkpoint(run, 10)
    newest = add_checkpoint(run, 20)
    newest.write_bytes(newest.read_bytes()[:-5])
    with pytest.warns(UserWarning, match=r"step_20.* The one of step 10 is used instead"):
        checkpoint = run.load_latest()
    assert checkpoint is not None
    assert checkpoint.step == 10
    add_checkpoint(run, 10).write_bytes(b"")
    with pytest.raises(StorageError, match=r"there is no older one .* Fix: remove"):
        run.load_latest()


def test_scene_is_that_of_the_newest_checkpoint_else_of_the_ply(run: RunFolder):
    with pytest.raises(InputError, match=r"no checkpoint and no scene.ply"):
        run.scene()
    save_ply(run.scene_path, scene(5.0))
    run.write_summary({"steps": 40})
    step, gaussians = run.step_and_scene()
    assert (step, gaussians.means[0, 0].item()) == (40, 5.0)
    add_checkpoint(run, 20)
    step, gaussians = run.step_and_scene()
    assert (step, gaussians.means[0, 0].item()) == (20, 20.0)


def test_summary(run: RunFolder):
    with pytest.raises(InputError, match="a complete run"):
        run.summary()
    run.write_summary({"psnr": 20.5, "lpips": None})
    assert run.summary() == {"psnr": 20.5, "lpips": None}


def test_metrics_survive_a_kill_and_are_rewound(run: RunFolder):
    log = JsonLines(run.metrics_path)
    for step in (10, 20, 30):
        log.write({"step": step})
        assert run.metrics()[-1] == {"step": step}  # flushed
    with run.metrics_path.open("a") as stream:
        stream.write('{"step": 4')
    partials = [run.path / ".summary.json.x.partial", run.path / "eval" / "20" / ".a.png.y.partial"]
    for partial in partials:
        partial.parent.mkdir(exist_ok=True)
        partial.touch()
    assert run.metrics() == [{"step": 10}, {"step": 20}, {"step": 30}]
    run.rewind(20)
    assert run.metrics_path.read_text() == '{"step": 10}\n{"step": 20}\n'
    assert not any(partial.exists() for partial in partials)
    run.write_summary({"steps": 20})
    run.rewind(0)
    assert run.metrics() == []
    with pytest.raises(InputError, match="a complete run"):
        run.summary()


@pytest.mark.parametrize("tail", [b'{"step": 3', b'{"step": 3}', b"\0\0\0\n", b"\xff\xfe\n", b"7\n"])
def test_metrics_end_where_they_are_damaged(run: RunFolder, tail: bytes):
    run.metrics_path.write_bytes(b'{"step": 1}\n{"step": 2}\n' + tail)
    assert run.metrics() == [{"step": 1}, {"step": 2}]


def test_space_is_asked_for(run: RunFolder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3 << 20))
    run.require_space(3 << 20, "a checkpoint")
    with pytest.raises(StorageError, match="3 MiB are free, and a checkpoint needs 4 MiB"):
        run.require_space(4 << 20, "a checkpoint")


def test_unwritable_folder_is_found_before_work_starts(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        RunFolder(tmp_path / "file" / "run").prepare()


def test_broken_summary(run: RunFolder):
    (run.path / "summary.json").write_text(json.dumps({"a": 1})[:-1])
    with pytest.raises(InputError, match="broken JSON"):
        run.summary()
