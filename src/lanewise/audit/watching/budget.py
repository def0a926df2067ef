"""What close looks may cost: whatever they take in the first steps, and a share of the time after those."""

from __future__ import annotations

import time

from lanewise.errors import InputError

FIRST = 500  # steps in which every look is a close one: what is wrong is mostly wrong from the start
SHARE = 0.01  # of the time after those


class Budget:
    """Keeps account of the time that close looks have taken since the first steps.

    Args:
        share: of the time, that they may take.

    Raises:
        InputError: it is no share.
    """

    def __init__(self, share: float) -> None:
        if not 0 <= share <= 1:
            raise InputError("share", got=repr(share), expected="a share of the time, from 0 to 1")
        self._share = share
        self._taken, self._since = 0.0, time.perf_counter()

    def spend(self, seconds: float) -> None:
        """A close look has taken this long."""
        self._taken += seconds

    def allows(self, steps: int) -> bool:
        """Whether there may be another one, so many steps after the begin."""
        now = time.perf_counter()
        if steps < FIRST:
            self._taken, self._since = 0.0, now
            return True
        return self._taken < self._share * (now - self._since)
