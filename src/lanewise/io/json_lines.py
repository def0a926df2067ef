"""Files of JSON, a record a line, that stay usable when the process is killed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lanewise.io.files import storage_error


class JsonLines:
    """Appends records to a file, each a line that is on its way to the disk when `write` returns.

    The file is open only while a line is written: records are rare, and nobody has to close anything.

    Args:
        path: of the file, whose folder exists.

    Raises:
        StorageError: it cannot be written.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._append("")

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a record. Raises `StorageError` when it cannot be written."""
        self._append(json.dumps(plain(record), allow_nan=False) + "\n")

    def _append(self, text: str) -> None:
        try:
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(text)
        except OSError as error:
            raise storage_error(self._path, error) from error


def plain(value: Any) -> Any:
    """The same in JSON's types: NaN and infinity become null, what JSON does not know becomes text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
