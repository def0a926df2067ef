"""A process group of this process alone."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

T = TypeVar("T")


def in_a_process_group(folder: Path, run: Callable[[], T]) -> T:
    """run(), while there is one.

    What `run` leaves behind is gone before the group: torch's `DistributedDataParallel` that holds it last waits for
    its threads with Python's lock in hand, which they may be waiting for.
    """
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=0, world_size=1)
    try:
        return run()
    finally:
        gc.collect()
        torch.distributed.destroy_process_group()
