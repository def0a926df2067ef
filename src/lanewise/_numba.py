"""numba for the CPU kernels: one decorator, with a cache folder that the user can always write.

numba's own choice is the package's `__pycache__`, which is read-only in many installations and is not refreshed when
a function that a kernel calls changes in another file. Here the folder is named after the sources of all CPU kernels,
so that a stale kernel cannot be loaded.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numba.core.config as numba_config


def cache_folder() -> Path:
    """Folder for compiled kernels: NUMBA_CACHE_DIR, else the user's cache folder, else the temporary folder."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        return Path(os.environ["NUMBA_CACHE_DIR"]) / f"lanewise-{_sources_digest()}"
    caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    for base in (caches, Path(tempfile.gettempdir()) / f"lanewise-{os.getuid() if hasattr(os, 'getuid') else 'user'}"):
        folder = base / "lanewise" / f"numba-{_sources_digest()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        # Compiled code is loaded from here: a folder that somebody else has made in the temporary folder is not ours
        # to trust.
        if os.access(folder, os.W_OK) and (not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()):
            return folder
    return Path(tempfile.mkdtemp(prefix="lanewise-numba-"))


def _sources_digest() -> str:
    """Short digest of the sources of every CPU kernel, and of the references whose constants they compile in."""
    digest = hashlib.sha256()
    package = Path(__file__).parent
    for source in sorted([*package.rglob("cpu.py"), *package.rglob("reference.py"), Path(__file__)]):
        digest.update(source.relative_to(package).as_posix().encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


_CACHE_FOLDER = str(cache_folder())


def njit(*, parallel: bool = False, fastmath: bool | set[str] = False) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` with the compiled code kept in `cache_folder()` and the GIL released.

    Args:
        parallel: `numba.prange` loops run on several threads.
        fastmath: LLVM's fast-math flags. They hold for the operations written in this function alone, not for those
            of the functions it calls, so that a decision (is this pair counted?) can stay exact inside a kernel whose
            sums may be reordered.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        before = numba_config.CACHE_DIR  # type: ignore[attr-defined]
        numba_config.CACHE_DIR = _CACHE_FOLDER  # type: ignore[attr-defined]
        try:
            return numba.njit(parallel=parallel, fastmath=fastmath, cache=True, nogil=True, error_model="numpy")(
                function
            )
        finally:
            numba_config.CACHE_DIR = before  # type: ignore[attr-defined]

    return decorate
