"""Checkpoints: named tensors and a few facts in one safetensors file, whole or not at all, verified when read."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from lanewise.errors import StorageError
from lanewise.io.files import atomic_write

_KEY = "lanewise"  # one entry of metadata: safetensors writes several in random order, and equal runs give equal files


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after `step` steps.

    Attributes:
        step: completed steps.
        tensors: CPU tensors by name.
        facts: what else there is to remember, as JSON can hold it.
    """

    step: int
    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def save_checkpoint(path: Path, step: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write a checkpoint. The same state gives the same bytes.

    Raises:
        StorageError: the disk is full or the folder not writable; the file that was there before is as it was.
    """
    host = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    content = {"step": step, "facts": dict(facts)}
    metadata = json.dumps({**content, "crc32": _checksum(content, host)}, sort_keys=True)
    data = save(host, metadata={_KEY: metadata})
    with atomic_write(path) as stream:
        stream.write(data)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint and verify its checksum.

    Raises:
        StorageError: the file is missing, cut off, altered, or not a checkpoint.
    """
    try:
        with safe_open(path, framework="pt") as file:
            content = json.loads((file.metadata() or {})[_KEY])
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
        stored = content.pop("crc32")
        if stored != _checksum(content, tensors):
            raise StorageError(path, problem="the checkpoint is damaged (its checksum differs)")
        return Checkpoint(content["step"], tensors, content["facts"])
    except StorageError:
        raise
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(path, problem=f"the checkpoint cannot be read ({error or type(error).__name__})") from error


def checkpoint_bytes(tensors: Mapping[str, Tensor]) -> int:
    """About how large the file of these tensors is, rounded up."""
    return sum(tensor.numel() * tensor.element_size() + 256 for tensor in tensors.values()) + 4096


def _checksum(content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> int:
    value = zlib.crc32(json.dumps(content, sort_keys=True).encode())
    for name in sorted(tensors):
        value = zlib.crc32(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode(), value)
        value = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, value)
    return value
