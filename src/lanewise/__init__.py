"""Lanewise: the backward pass is right on every lane."""

from lanewise import _openmp  # noqa: F401  (before anything that imports torch)
from lanewise.errors import InputError, LanewiseError, MissingDependencyError, StorageError, UnsupportedError

__version__ = "0.1.0"

__all__ = [
    "InputError",
    "LanewiseError",
    "MissingDependencyError",
    "StorageError",
    "UnsupportedError",
    "__version__",
]
