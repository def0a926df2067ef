"""Files of JSON, a record a line, that stay usable when the process is killed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lanewise.io.files import storage_error


class JsonLines:
    """Appends records to a file, each a flushed line.

    Args:
        path: of the file, whose folder exists.

    Raises:
        StorageError: it cannot be written.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        try:
            self._stream = self._path.open("a", encoding="utf-8")
        except OSError as error:
            raise storage_error(self._path, error) from error

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a record. Raises `StorageError` when it cannot be written."""
        try:
            self._stream.write(json.dumps(plain(record), allow_nan=False) + "\n")
            self._stream.flush()
        except OSError as error:
            raise storage_error(self._path, error) from error

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def plain(value: Any) -> Any:
    """The same in JSON's types: NaN and infinity become null, what JSON does not know becomes text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
