"""What `sum_by_label` must compute, for `lanewise prove --asm FILE --spec FILE`.

A spec is a Python file: `kernel` names the kernel, and `cases()` yields the launches to try. What a launch should
leave in its arguments is computed here without the kernel, with numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

kernel = "sum_by_label"
THREADS = 256  # a workgroup


def labelled(blocks: int, labels: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A label and a value for each thread of a grid; the values are small whole numbers: any order gives exact sums."""
    rng = np.random.default_rng(seed)
    n = blocks * THREADS
    return rng.integers(0, labels, n).astype(np.int32), rng.integers(1, 50, n).astype(np.float32)


def sums(label: np.ndarray, value: np.ndarray, labels: int) -> np.ndarray:
    """The sum of the values of each label, [labels], in float64."""
    return np.bincount(label, value, labels)


def cases() -> Iterator[dict[str, Any]]:
    """Launches of one and of several workgroups, with few labels (long sums) and with many (most lanes lead)."""
    for blocks, labels in ((1, 1), (1, 40), (3, 9)):
        label, value = labelled(blocks, labels, seed=blocks)
        yield {
            "name": f"{blocks} workgroups, {labels} labels",
            "grid": (blocks, 1, 1),
            "threads": THREADS,
            "arguments": [label, value, np.zeros(labels, np.float32), labels],
            "expected": {2: sums(label, value, labels)},  # by the argument's position
            "limit": 0,  # the same bits: whole numbers have no rounding
        }
