"""Where NaN or infinity begins: the first step, and the module that everything else follows from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lanewise.audit.watching.alarm import Alarm
from lanewise.audit.watching.norms import ABSENT, Block


class NonFinite:
    """Looks for the first step with gradients that are not finite, and reads its origin from which ones they are.

    What begins in the backward pass of a module spoils the gradients of the modules before it, and of itself; those of
    the modules after it, which backward comes to first, stay finite.
    """

    def __init__(self) -> None:
        self.found: Alarm | None = None

    def judge(self, block: Block, places: Mapping[str, int], called: Mapping[int, str]) -> Iterator[Alarm]:
        """Look at the steps of a block.

        Args:
            block: norms.
            places: of each parameter, the number of its module in the order of execution, where that is known.
            called: how findings call the module of that number.
        """
        if self.found is not None:
            return
        rows = [(i, row) for i, row in enumerate(block.values) if not bool(row.isfinite().all())]
        if not rows or (block.excused and len(rows) < len(block.values)):
            return
        offset, row = rows[0]
        bad = [name for name, x in zip(block.names, row.isfinite().tolist(), strict=True) if not x]
        fine = [n for n, x in zip(block.names, row.tolist(), strict=True) if n not in bad and x != ABSENT]
        self.found = _origin(bad, fine, block.first + offset, places, called)
        yield self.found


def _origin(
    bad: Sequence[str], fine: Sequence[str], step: int, places: Mapping[str, int], called: Mapping[int, str]
) -> Alarm:
    last = max(bad, key=lambda name: places.get(name, -1))
    evidence = {"gradients not finite": len(bad), "finite": len(fine)}
    if not fine:
        cause = (
            "every gradient of this step at once: it began in the forward pass or in the loss. A watch with every=1 "
            "looks into the step itself"
        )
        return Alarm("LW403", last, step, 0.0, cause, evidence)
    number = places.get(last)
    after = [places[name] for name in fine if number is not None and places.get(name, -1) > number]
    if number is None or not after:
        cause = f"the gradients of {', '.join(bad[:3])} are not finite while those of {', '.join(fine[:3])} are"
    elif any(places.get(name, -1) < number for name in fine):
        cause = "its own gradient alone: modules before and after it are finite"
    else:
        cause = f"it begins in the backward pass of {called[number]}, or between that and {called[min(after)]}"
    return Alarm("LW403", last, step, 0.0, cause, evidence)
