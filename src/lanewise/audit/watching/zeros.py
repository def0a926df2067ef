"""Gradients that are exactly zero, step after step, while others live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lanewise.audit.watching.norms import ABSENT, Block

PATIENCE = 20  # steps with a gradient of exactly zero before anybody asks why (zero-initialised gates need one or two)


class Zeros:
    """Counts for how many steps each gradient has been zero; a suspicion, not an alarm."""

    def __init__(self) -> None:
        self._steps: Counter[str] = Counter()
        self.unused: set[str] = set()

    def judge(self, block: Block) -> Iterator[tuple[str, int]]:
        """(name, steps) of the parameters that have been zero for long while a sibling lives."""
        for row in block.values:
            if not bool((row > 0).any()):  # nobody lives: no sign of anything
                continue
            for name, norm in zip(block.names, row.tolist(), strict=True):
                if norm == 0:
                    self._steps[name] += 1
                elif norm != ABSENT:
                    self._steps[name] = 0
        self.unused = {n for i, n in enumerate(block.names) if bool((block.values[:, i] == ABSENT).all())}
        for name, steps in self._steps.items():
            if steps >= PATIENCE and name in block.names:
                yield name, steps
