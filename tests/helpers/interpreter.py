"""Whether Triton's interpreter works here."""

from __future__ import annotations

import importlib.util
import re

import numpy as np


def missing() -> str | None:
    """Why Triton's interpreter cannot run kernels here; None when it can.

    Before Triton 3.7 it turns arrays of one element into Python scalars, which numpy has refused since 2.4.
    """
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    import triton

    if _release(triton.__version__) < (3, 7) and _release(np.__version__) >= (2, 4):
        return f"the interpreter of Triton {triton.__version__} needs numpy below 2.4, here is {np.__version__}"
    return None


def _release(version: str) -> tuple[int, int]:
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)
