"""Gradients that are exactly zero, step after step, while others live."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lanewise.audit.watching.alarm import Alarm
from lanewise.audit.watching.norms import ABSENT, Block
from lanewise.audit.watching.trace import Passed

PATIENCE = 20  # steps with a gradient of exactly zero before anybody asks why (zero-initialised gates need one or two)


class Zeros:
    """Knows since when each gradient has been zero; a suspicion, not an alarm.

    Attributes:
        unused: parameters that had no gradient at all in the newest block.
    """

    def __init__(self) -> None:
        self._steps: dict[str, list[int]] = {}  # that were seen: the first and the newest
        self.unused: set[str] = set()

    def judge(self, block: Block) -> Iterator[tuple[str, int]]:
        """(name, steps) of the parameters that have been zero for long while a sibling lives."""
        rows = block.values.tolist()
        for step, row in zip(block.steps, rows, strict=True):
            if (0 in row or self._steps) and any(norm > 0 for norm in row):  # where nobody lives, zero is no sign
                self._note(step, zip(block.names, row, strict=True))
        seen = [row for row in rows if any(norm != ABSENT for norm in row)]
        if seen:
            absent = (i for i, norm in enumerate(seen[0]) if norm == ABSENT)
            self.unused = {block.names[i] for i in absent if all(row[i] == ABSENT for row in seen)}
        for name, (first, newest) in self._steps.items():
            if newest - first >= PATIENCE and name in block.names:
                yield name, newest - first + 1

    def _note(self, step: int, norms: Iterable[tuple[str, float]]) -> None:
        for name, norm in norms:
            if norm == 0:
                self._steps[name] = [self._steps.get(name, [step])[0], step]
            elif norm != ABSENT:
                self._steps.pop(name, None)


@dataclass(frozen=True)
class Reason:
    """Why a gradient is zero.

    Attributes:
        lost: whether it is the gradient's own backward pass that loses it.
        text: what was seen.
        suspect: path of the layer whose input gradient may be the one that is lost; None where there is none.
    """

    lost: bool
    text: str
    suspect: str | None = None


UNKNOWN = Reason(
    True,
    "lost on its way: a kernel that writes nothing, or a function that hands out zeros (or the loss does not depend on "
    "it: then it is better not given to watch)",
)


def reason(path: str, passed: Sequence[Passed]) -> Reason:
    """Why the gradients of the layer at `path` are zero, from one step seen from every layer."""
    numbers = [i for i, layer in enumerate(passed) if layer.path == path]
    if not numbers:
        return Reason(False, "unused: its layer was not called, or runs where no hook is (torch.compile)")
    layer, after = passed[numbers[0]], passed[numbers[0] + 1 :]
    if layer.reached and layer.given:
        return Reason(True, "the gradient that arrives at its layer is not zero, and neither is the layer's input")
    if layer.reached:
        return Reason(False, "off: its layer's input is all zero")
    if not layer.positive:
        return Reason(False, "off: its layer's output is nowhere above zero, and no gradient comes back (dead ReLU)")
    alive = next((other for other in after if other.reached), None)
    if alive is None:
        return Reason(False, "no gradient arrives, at no layer after it either: the loss does not depend on it")
    text = f"no gradient arrives at its layer: it ends in {alive.place}, or between the two"
    return Reason(False, text, alive.path)


def dead(name: str, step: int, steps: int, cause: str) -> Alarm:
    """What is told of a parameter whose gradient is lost."""
    # A gradient that rounds to exactly zero in every element for so many steps has no law: the layers were asked.
    return Alarm("LW401", name, step, 0.0, cause, {"steps with a gradient of exactly zero": steps})
