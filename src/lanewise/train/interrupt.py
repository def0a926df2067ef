"""Ctrl-C that waits for the end of a training step."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType


@dataclass
class Interrupt:
    """Whether Ctrl-C was pressed."""

    requested: bool = False


@contextlib.contextmanager
def deferred_interrupt() -> Iterator[Interrupt]:
    """Inside the block the first Ctrl-C only sets `requested`; a second one interrupts at once.

    Signals reach the main thread alone: in another thread, or where Ctrl-C is not Python's to handle, nothing changes.
    """
    interrupt = Interrupt()
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or previous is not signal.default_int_handler:
        yield interrupt
        return

    def remember(signum: int, frame: FrameType | None) -> None:
        interrupt.requested = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, remember)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, previous)
