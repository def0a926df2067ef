"""The versions that a result depends on."""

from __future__ import annotations

import importlib.metadata
import platform

import lanewise


def versions() -> dict[str, str]:
    """Of Lanewise, Python, and the packages that compute, where they are installed."""
    found = {"lanewise": lanewise.__version__, "python": platform.python_version()}
    for package in ("torch", "numpy", "numba", "triton"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
