from __future__ import annotations

import signal
import threading

import pytest

from lanewise.train.interrupt import deferred_interrupt


def test_the_first_waits_and_the_second_does_not():
    before = signal.getsignal(signal.SIGINT)
    with deferred_interrupt() as interrupt:
        assert not interrupt.requested
        signal.raise_signal(signal.SIGINT)
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_and_other_handlers_are_left_alone():
    def inside() -> None:
        with deferred_interrupt() as interrupt:
            seen.append((signal.getsignal(signal.SIGINT), interrupt.requested))

    seen: list[object] = []
    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        inside()
    finally:
        signal.signal(signal.SIGINT, previous)
    assert seen == [(previous, False), (signal.SIG_IGN, False)]
