"""Where NaN or infinity begins: the first step, and the module that everything else follows from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lanewise.audit.watching.alarm import Alarm
from lanewise.audit.watching.norms import ABSENT, Block
from lanewise.audit.watching.trace import Passed

PATIENCE = 3  # steps in a row that a gradient scaler may find infinite while it looks for its scale


class NonFinite:
    """Looks for the first step with gradients that are not finite, and reads its origin from which ones they are.

    What begins in the backward pass of a module spoils the gradients of the modules before it, and of itself; those of
    the modules after it, which backward comes to first, stay finite.
    """

    def __init__(self) -> None:
        self._found = False

    def judge(
        self, block: Block, places: Mapping[str, int], called: Mapping[int, str], forward: Passed | None
    ) -> Iterator[Alarm]:
        """Look at the steps of a block.

        Args:
            block: norms.
            places: of each parameter, the number of its module in the order of execution, where that is known.
            called: how findings call the module of that number.
            forward: the layer in whose forward pass it began, where somebody has looked.
        """
        if self._found:
            return
        rows = [(i, block.values[i]) for i in (~block.values.isfinite().all(1)).nonzero().flatten().tolist()]
        if not rows or (block.excused and len(rows) < max(PATIENCE, len(block.values))):
            return
        offset, row = rows[0]
        bad = [name for name, x in zip(block.names, row.isfinite().tolist(), strict=True) if not x]
        fine = [n for n, x in zip(block.names, row.tolist(), strict=True) if n not in bad and x != ABSENT]
        self._found = True
        yield _origin(bad, fine, block.steps[offset], places, called, forward)


def _origin(
    bad: Sequence[str],
    fine: Sequence[str],
    step: int,
    places: Mapping[str, int],
    called: Mapping[int, str],
    forward: Passed | None,
) -> Alarm:
    last = max(bad, key=lambda name: places.get(name, -1))
    evidence = {"gradients not finite": len(bad), "finite": len(fine)}
    if forward is not None:
        cause = "its output is not finite, and its input and its parameters are"
        return Alarm("LW403", "", step, 0.0, cause, evidence, forward.place, "forward")
    if not fine:
        cause = (
            "every gradient of this step at once: it began in the loss, or in the forward pass outside of layers "
            "(where steps are looked at late, on a GPU, in a layer too: every=1 looks into the step itself; where "
            "another function than torch.nn.utils.clip_grad_norm_ clips gradients by their norm, anywhere)"
        )
        return Alarm("LW403", last, step, 0.0, cause, evidence)
    number = places.get(last)
    after = [places[name] for name in fine if number is not None and places.get(name, -1) > number]
    if number is None or not after:
        cause = f"the gradients of {', '.join(bad[:3])} are not finite while those of {', '.join(fine[:3])} are"
        return Alarm("LW403", last, step, 0.0, cause, evidence)
    here, there = called[number], called[min(after)]
    own = {name: name in bad for name in places if places[name] == number}
    if len(own) > 1 and all(own.values()):  # what arrived was not finite
        cause = f"it begins in the input gradient of {there}, or between that and {here}"
        return Alarm("LW403", "", step, 0.0, cause, evidence, there, "input")
    alone = "a parameter's gradient alone" if any(places.get(n, -1) < number for n in fine) else "the backward pass"
    cause = f"it begins in {here}, in {alone}: {there}, which backward comes to before, is finite"
    return Alarm("LW403", last, step, 0.0, cause, evidence)
