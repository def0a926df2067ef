"""What was chosen for a launch, kept in memory and on the disk."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lanewise.conv.backends import Backend
from lanewise.errors import StorageError
from lanewise.io.files import atomic_write, make_folder


@dataclass(frozen=True)
class Choice:
    """Who runs a launch, and why.

    Attributes:
        backend: the fastest of those that passed the probe; the vendor's where the two cannot be told apart.
        ms: the median time of each that was timed.
        faults: what was wrong with those that did not pass.
        inexact: how far those were off that round more than they should, and were set aside for that.
    """

    backend: Backend
    ms: Mapping[Backend, float] = field(default_factory=dict)
    faults: Mapping[Backend, str] = field(default_factory=dict)
    inexact: Mapping[Backend, str] = field(default_factory=dict)


class Choices:
    """The choices for one machine: a dictionary with a file behind it.

    A file that cannot be read or written costs time and nothing else: what it would have held is found again.

    Args:
        versions: the device and the libraries; others have another file.
    """

    def __init__(self, versions: dict[str, str]) -> None:
        self.versions = versions
        self._known: dict[str, Choice] = {}
        self._read()

    @property
    def path(self) -> Path:
        """The file, in the user's cache folder."""
        identity = hashlib.sha256(json.dumps(self.versions, sort_keys=True).encode()).hexdigest()[:16]
        caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        return caches / "lanewise" / "conv" / f"{identity}.json"

    def get(self, key: str) -> Choice | None:
        """What was chosen, or None."""
        return self._known.get(key)

    def put(self, key: str, choice: Choice) -> None:
        """Remember a choice, beside those that other processes have written in the meantime."""
        self._read()
        self._known[key] = choice
        content = {
            "versions": self.versions,
            "choices": {key: dataclasses.asdict(choice) for key, choice in sorted(self._known.items())},
        }
        with contextlib.suppress(StorageError):
            make_folder(self.path.parent)
            with atomic_write(self.path) as stream:
                stream.write(json.dumps(content, indent=1).encode())

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            content: Any = json.loads(self.path.read_text())
            if content["versions"] == self.versions:
                read = {key: Choice(**choice) for key, choice in content["choices"].items()}
                self._known = {**read, **self._known}
