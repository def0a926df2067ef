"""How often something may be done that is worth a share of the time, and no more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Pace:
    """Says yes for as long as what was done has taken less than its share of the time since `restart`.

    Args:
        share: of the time, from 0 to 1.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self.restart()

    def restart(self) -> None:
        """Forget what was done; time counts from now."""
        self._taken, self._since = 0.0, time.perf_counter()

    @contextmanager
    def doing(self) -> Iterator[None]:
        """A block whose time is taken from the share."""
        begin = time.perf_counter()
        yield
        self._taken += time.perf_counter() - begin

    def pays(self) -> bool:
        """Whether there is time for more."""
        return self._taken < self._share * (time.perf_counter() - self._since)
