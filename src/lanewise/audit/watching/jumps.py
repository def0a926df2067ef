"""Jumps of the gradient's norm, judged against its own recent history."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterator

from lanewise.audit.watching.alarm import Alarm
from lanewise.audit.watching.norms import Block

HISTORY = 200  # steps that a norm is compared with
LEAST = 50  # of them, before anything is said
FACTOR = 30.0  # times the largest of them
DEVIATIONS = 10.0  # robust ones, of the logarithm: runs whose norms vary by orders of magnitude stay quiet


class Jumps:
    """Notices a total norm that is far above all of its recent history.

    The logarithm of a norm is compared by its median and its median absolute deviation, which outliers do not move,
    and the norm itself with the largest one, so that heavy tails do not alarm either.
    """

    def __init__(self) -> None:
        self._logs: deque[float] = deque(maxlen=HISTORY)

    def judge(self, block: Block) -> Iterator[Alarm]:
        """Look at the steps of a block."""
        present = block.values.clamp_min(0)
        for offset, total in enumerate(present.square().sum(1).sqrt().tolist()):
            if not (0 < total < math.inf):
                continue
            if self._jumped(math.log(total)):
                largest = block.names[int(present[offset].argmax())]
                usual = math.exp(statistics.median(self._logs))
                yield Alarm(
                    "LW405",
                    largest,
                    block.steps[offset],
                    # Of exchangeable norms the newest is the largest with this probability, whatever their law.
                    1 / (len(self._logs) + 1),
                    "a bad batch, a learning rate that is too large, or a kernel that went wrong",
                    {"norm": total, "usual": usual, "history": len(self._logs)},
                )
            self._logs.append(math.log(total))

    def _jumped(self, log: float) -> bool:
        if len(self._logs) < LEAST or log < max(self._logs) + math.log(FACTOR):
            return False
        middle = statistics.median(self._logs)
        spread = 1.4826 * statistics.median(abs(x - middle) for x in self._logs)
        return log > middle + DEVIATIONS * spread
