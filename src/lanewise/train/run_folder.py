"""The folder of a training run: what is where, and how it is written so that a kill at any moment leaves it usable."""

from __future__ import annotations

import json
import os
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import yaml

from lanewise.errors import InputError, StorageError
from lanewise.io.files import atomic_write, make_folder
from lanewise.io.ply import load_ply
from lanewise.io.scene import Gaussians
from lanewise.train.checkpoint import Checkpoint, load_checkpoint
from lanewise.train.config import TrainConfig, read_mapping

_CHECKPOINT = re.compile(r"step_(\d+)\.safetensors")


class RunFolder:
    """A training run on disk.

        config.yaml                    the settings, and where the capture is; once it is there, the run can be resumed
        metrics.jsonl                  a line of JSON every `log_every` steps
        watch.jsonl                    what the watch over the gradients saw
        eval/<step>/                   metrics.json, per_image.csv, <name>.png (truth | render | error)
        checkpoints/step_<n>.safetensors
        scene.ply, summary.json        when the run is complete

    Files appear whole (`lanewise.io.files.atomic_write`); metrics.jsonl grows by whole lines that are flushed.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.scene_path = self.path / "scene.ply"
        self.metrics_path = self.path / "metrics.jsonl"
        self.watch_path = self.path / "watch.jsonl"
        self._config_path = self.path / "config.yaml"
        self._summary_path = self.path / "summary.json"
        self._checkpoints = self.path / "checkpoints"

    # --- what is there

    def exists(self) -> bool:
        """Whether a run was begun here."""
        return self._config_path.is_file()

    def config(self) -> TrainConfig:
        """The settings of the run. Raises `InputError` when there is no run, or config.yaml cannot be used."""
        values = self._read_config()
        values.pop("capture", None)
        return TrainConfig.from_dict(values, source=self._config_path)

    def capture_path(self) -> Path:
        """Where the capture was when the run began. Raises `InputError` as `config`."""
        capture = self._read_config().get("capture")
        if not isinstance(capture, str):
            raise InputError(str(self._config_path), got=f"capture: {capture}", expected="the path of the capture")
        return Path(capture)

    def checkpoints(self) -> list[Path]:
        """The checkpoints, newest first."""
        found = [path for path in self._checkpoints.glob("step_*.safetensors") if _CHECKPOINT.fullmatch(path.name)]
        return sorted(found, key=_step_of, reverse=True)

    def checkpoint_path(self, step: int) -> Path:
        """Where the checkpoint after `step` steps is or would be."""
        return self._checkpoints / f"step_{step}.safetensors"

    def evaluation_path(self, step: int) -> Path:
        """Folder of the evaluation after `step` steps."""
        return self.path / "eval" / str(step)

    def latest_checkpoint(self) -> Path | None:
        """The newest checkpoint, None before the first."""
        return next(iter(self.checkpoints()), None)

    def load_latest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole, with a warning for each newer one that is not; None before the first.

        Raises:
            StorageError: there are checkpoints, and all are damaged.
        """
        damaged: StorageError | None = None
        for path in self.checkpoints():
            try:
                checkpoint = load_checkpoint(path)
            except StorageError as error:
                damaged = error
                continue
            if damaged:
                warnings.warn(f"{damaged} The one of step {checkpoint.step} is used instead.", stacklevel=2)
            return checkpoint
        if damaged:
            raise StorageError(
                damaged.path,
                problem=damaged.problem + ", and there is no older one that can be",
                fix=f"remove {self._checkpoints} to begin again, or train into another folder",
            )
        return None

    def scene(self) -> Gaussians:
        """The Gaussians of the newest checkpoint, else of scene.ply. Raises as `step_and_scene`."""
        return self.step_and_scene()[1]

    def step_and_scene(self, step: int | None = None) -> tuple[int, Gaussians]:
        """The Gaussians of a checkpoint, and after how many steps they were.

        Args:
            step: the checkpoint of this step; without, the newest one, else scene.ply.

        Raises:
            InputError: it is not there.
            StorageError: the checkpoint, or all of them, are damaged.
        """
        if step is not None and not self.checkpoint_path(step).is_file():
            kept = ", ".join(str(_step_of(path)) for path in reversed(self.checkpoints())) or "none"
            raise InputError("step", got=step, expected=f"a step with a checkpoint ({kept})")
        checkpoint = self.load_latest() if step is None else load_checkpoint(self.checkpoint_path(step))
        if checkpoint is not None:
            prefix = "optimizer.params."
            named = {k.removeprefix(prefix): v for k, v in checkpoint.tensors.items() if k.startswith(prefix)}
            return checkpoint.step, Gaussians(**named)
        if self.scene_path.is_file():
            return int(self.summary()["steps"]), load_ply(self.scene_path)
        raise InputError(
            str(self.path),
            got="no checkpoint and no scene.ply",
            expected="a run that has come to its first checkpoint",
            fix="check the path, or go on training with --resume",
        )

    def summary(self) -> dict[str, Any]:
        """What the run came to. Raises `InputError` while it is not complete."""
        try:
            return json.loads(self._summary_path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(
                str(self._summary_path), got="nothing there", expected="a complete run", fix="go on with --resume"
            ) from None
        except ValueError as error:
            raise InputError(str(self._summary_path), got=f"broken JSON ({error})", expected="a JSON object") from None

    def metrics(self) -> list[dict[str, Any]]:
        """The records of metrics.jsonl, up to a line that was cut off or damaged."""
        return _records(self.metrics_path)

    # --- writing

    def refuse_existing(self) -> None:
        """Raise `InputError` when the folder holds a run already, or is no folder."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError("out", got=f"a file ({self.path})", expected="a folder, or a new name")
        if self.exists() or self.checkpoints() or self.metrics_path.exists():
            raise InputError(
                "out",
                got=f"a folder that holds a run ({self.path})",
                expected="a new folder",
                why="a run is never overwritten",
                fix=f"go on with --resume {self.path}, or choose another folder",
            )

    def refuse_inside(self, capture: Path) -> None:
        """Raise `InputError` when the run would be written into its capture."""
        folder = self.path.resolve()
        if capture.resolve() in (folder, *folder.parents):
            raise InputError(
                "out",
                got=f"a folder inside the capture ({self.path})",
                expected="a folder outside of it",
                why="a capture is never written into",
                fix="choose another folder",
            )

    def refuse_unwritable(self) -> None:
        """Raise `StorageError` when the folder cannot be made, without making it."""
        there = next(folder for folder in (self.path.absolute(), *self.path.absolute().parents) if folder.exists())
        if not there.is_dir():
            raise StorageError(self.path, problem=f"{there} is a file", fix="choose another folder for --out")
        if not os.access(there, os.W_OK | os.X_OK):
            raise StorageError(self.path, problem=f"no permission to write in {there}", fix="choose another --out")

    def prepare(self) -> None:
        """Make the folders, and find out now whether they can be written to.

        Raises:
            StorageError: they cannot.
        """
        for folder in (self.path, self._checkpoints, self.path / "eval"):
            make_folder(folder)
            probe = folder / ".probe"
            write_text(probe, "lanewise")
            probe.unlink()

    def require_space(self, size: int, purpose: str) -> None:
        """Raise `StorageError` unless the disk has `size` bytes to spare."""
        free = shutil.disk_usage(self.path).free
        if free < size:
            raise StorageError(
                self.path,
                problem=f"{free / 2**20:.0f} MiB are free, and {purpose} needs {size / 2**20:.0f} MiB",
                fix="free some space; a run goes on from its newest checkpoint with --resume",
            )

    def write_config(self, config: TrainConfig, capture: Path) -> None:
        """Begin the run, or change its settings."""
        values = {"capture": str(capture), **config.to_dict()}
        write_text(self._config_path, yaml.safe_dump(values, sort_keys=False))

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Complete the run."""
        write_text(self._summary_path, json.dumps(summary, indent=2) + "\n")

    def keep_newest(self, count: int) -> None:
        """Remove all checkpoints but the newest."""
        for path in self.checkpoints()[count:]:
            path.unlink(missing_ok=True)

    def rewind(self, step: int) -> None:
        """Forget what was written after `step`, and what a killed process left half written."""
        for partial in self.path.rglob(".*.partial"):
            partial.unlink(missing_ok=True)
        self._summary_path.unlink(missing_ok=True)  # the run is no longer complete
        for path in (self.metrics_path, self.watch_path):
            kept = [record for record in _records(path) if record["step"] <= step]
            if path.exists():
                write_text(path, "".join(json.dumps(record) + "\n" for record in kept))

    def _read_config(self) -> dict[str, Any]:
        try:
            text = self._config_path.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            raise InputError(
                str(self.path), got="no config.yaml", expected="the folder of a training run", fix="check the path"
            ) from None
        return read_mapping(text, source=self._config_path)


def write_text(path: Path, text: str) -> None:
    """Write a small file whole or not at all. Raises `StorageError`."""
    with atomic_write(path) as stream:
        stream.write(text.encode())


def _records(path: Path) -> list[dict[str, Any]]:
    """The records of a file of JSON lines, up to a line that was cut off or damaged; none where there is no file."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    records = []
    for line in text.splitlines(keepends=True):
        try:
            record = json.loads(line)
        except ValueError:
            break
        if not line.endswith("\n") or not isinstance(record, dict):
            break
        records.append(record)
    return records


def _step_of(path: Path) -> int:
    match = _CHECKPOINT.fullmatch(path.name)
    assert match is not None
    return int(match.group(1))
