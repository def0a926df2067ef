from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lanewise.errors import StorageError
from lanewise.train.checkpoint import checkpoint_bytes, load_checkpoint, save_checkpoint

TENSORS = {
    "a": torch.arange(12.0).reshape(3, 4),
    "empty": torch.zeros(0, 3),
    "bytes": torch.arange(200, dtype=torch.uint8),
    "scalar": torch.tensor(3.5),
    "whole": torch.tensor([2**40, -1]),
}
FACTS = {"capture": "abc", "changes": {"split": 3}}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoints") / "step_7.safetensors"
    save_checkpoint(path, 7, TENSORS, FACTS)
    return path


def test_round_trip(saved: Path):
    checkpoint = load_checkpoint(saved)
    assert checkpoint.step == 7
    assert checkpoint.facts == FACTS
    assert checkpoint.tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert checkpoint.tensors[name].dtype == tensor.dtype
        assert torch.equal(checkpoint.tensors[name], tensor)


def test_equal_states_give_equal_files(saved: Path, tmp_path: Path):
    other = tmp_path / "other.safetensors"
    save_checkpoint(other, 7, dict(reversed(TENSORS.items())), dict(reversed(FACTS.items())))
    assert other.read_bytes() == saved.read_bytes()


def test_size_estimate_is_an_upper_bound(saved: Path):
    assert saved.stat().st_size <= checkpoint_bytes(TENSORS)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_cut_or_altered_file_is_refused(saved: Path, tmp_path: Path, data: st.DataObject):
    content = bytearray(saved.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:position]
    else:
        content[position] ^= 1 << data.draw(st.integers(0, 7))
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(content)
    try:
        checkpoint = load_checkpoint(damaged)
    except StorageError:
        return
    # Spaces of the JSON header may change without changing what it says.
    assert checkpoint.step == 7
    assert checkpoint.facts == FACTS
    assert all(torch.equal(checkpoint.tensors[name], tensor) for name, tensor in TENSORS.items())


def test_missing_file(tmp_path: Path):
    with pytest.raises(StorageError, match=r"none\.safetensors: the checkpoint cannot be read"):
        load_checkpoint(tmp_path / "none.safetensors")


def test_full_disk_keeps_the_file_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "step_1.safetensors"
    save_checkpoint(path, 1, TENSORS, FACTS)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="disk is full"):
        save_checkpoint(path, 1, {"other": torch.zeros(3)}, {})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["step_1.safetensors"]  # noqa: PTH208
