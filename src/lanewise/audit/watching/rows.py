"""Rows of a gradient that are exactly zero although the same rows of its siblings are not, and where they lie.

A lost wave or a lost slab leaves a pattern: every second group of 32 rows, everything past a window. Rows that are zero
for a reason of their own (a Gaussian outside of the picture, a unit that is off) are zero in all siblings alike, or lie
anywhere.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lanewise.audit.watching.alarm import Alarm
from lanewise.audit.watching.parameters import Parameters, local

PERIOD = 1024  # rows after which a pattern of waves and blocks repeats at the latest
BINS = 64  # of equal length, along all rows
LEAST = 32  # live rows on each side of a pattern
LOST, KEPT = 0.9, 0.05  # shares of lost rows inside and outside of one


@dataclass(frozen=True)
class Pattern:
    """Lost rows of one parameter.

    Attributes:
        parameter: its name.
        where: the rows, in words.
        lost: how many of them were zero while a sibling's were not.
        live: rows of which some sibling lived.
    """

    parameter: str
    where: str
    lost: int
    live: int

    @property
    def chance(self) -> float:
        """How probable it is that rows which are zero for no common reason fall on one side of a pattern."""
        return min(1.0, 4 * BINS * 2.0**-self.lost)


class Rows:
    """Counts rows that are zero in one gradient and not in its siblings.

    Args:
        parameters: whose gradients.
        seed: of which layer's turn it is.
    """

    def __init__(self, parameters: Parameters, seed: int) -> None:
        self._parameters, self._random = parameters, random.Random(seed)

    def count(self, gradients: Mapping[str, Tensor], valid: Tensor | None) -> Iterator[tuple[tuple[str, ...], Tensor]]:
        """Names of siblings, and what `judge` wants to know of them, on the device; not `valid`: no row is lost."""
        shapes = {name: gradients[name].shape for name in self._parameters.current() if name in gradients}
        siblings = groups(shapes, {name: self._parameters.owner(name)[0] for name in shapes})
        if self._parameters.module is not None and siblings:  # one layer a look, as the probes have it
            siblings = [siblings[self._random.randrange(len(siblings))]]
        for names in siblings:
            chosen = [gradients[name] for name in names]
            if not any(g.is_sparse for g in chosen):
                counts = count(chosen)
                yield names, counts if valid is None else counts * valid


def groups(shapes: Mapping[str, torch.Size], owner: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Names of parameters whose rows belong together: of one owner, and with one number of rows."""
    found: dict[tuple[str, int], list[str]] = {}
    for name, shape in shapes.items():
        if len(shape) and shape[0] >= 2 * LEAST:
            found.setdefault((owner[name], shape[0]), []).append(name)
    return [tuple(names) for names in found.values() if len(names) > 1]


def count(gradients: Sequence[Tensor]) -> Tensor:
    """For each of J gradients [N, ...] the lost rows by their place: int64 [1 + J, PERIOD + BINS], live rows first."""
    alive = torch.stack([(local(g).reshape(len(g), -1) != 0).any(1) for g in gradients])  # [J, N]
    live = alive.any(0, keepdim=True)
    marked = torch.cat([live, live & ~alive])  # [1 + J, N]
    return torch.cat([_folded(marked, PERIOD).sum(1), _folded(marked, -(-marked.shape[1] // BINS)).sum(2)], 1)


def patterns(names: Sequence[str], counts: Tensor) -> Iterator[Pattern]:
    """The patterns in what `count` gave for the gradients of these names."""
    live = counts[0]
    for name, lost in zip(names, counts[1:], strict=True):
        total = int(live[:PERIOD].sum()), int(lost[:PERIOD].sum())
        if total[1] < LEAST:
            continue
        for where in (_every_second(lost[:PERIOD], live[:PERIOD]), _slab(lost[PERIOD:], live[PERIOD:])):
            if where is not None:
                yield Pattern(name, where, total[1], total[0])
                break


def judge(step: int, names: Sequence[str], counts: Tensor) -> Iterator[Alarm]:
    """What the counts of a step say, on the host."""
    for pattern in patterns(names, counts):
        others = ", ".join(name for name in names if name != pattern.parameter)
        evidence = {"rows lost": pattern.lost, "rows that live elsewhere": pattern.live, "where": pattern.where}
        cause = f"lost where {pattern.where}, while {others} live there"
        yield Alarm("LW401", pattern.parameter, step, pattern.chance, cause, evidence)


def _folded(marked: Tensor, length: int) -> Tensor:
    """[J, N] as [J, ceil(N / length), length], filled up with False, at least BINS long where `length` is a bin's."""
    rows = -(-marked.shape[1] // length)
    rows = max(rows, BINS) if length != PERIOD else rows
    padded = torch.nn.functional.pad(marked, (0, rows * length - marked.shape[1]))
    return padded.reshape(marked.shape[0], rows, length)


def _every_second(lost: Tensor, live: Tensor) -> str | None:
    """The groups of rows that are lost where these are every second one."""
    phase = torch.arange(PERIOD)
    for size in (2**bit for bit in range(PERIOD.bit_length() - 1)):
        odd = phase // size % 2 == 1
        for inside, which in ((odd, "odd"), (~odd, "even")):
            if _split(lost, live, inside):
                return f"row // {size} is {which}"
    return None


def _slab(lost: Tensor, live: Tensor) -> str | None:
    """The end of the rows that is lost, or their beginning."""
    bins = torch.arange(BINS)
    found: list[tuple[int, str]] = []  # with how many rows do not fit
    for cut in range(1, BINS):
        for inside, where in ((bins >= cut, f"row is past {cut}/{BINS}"), (bins < cut, f"row is before {cut}/{BINS}")):
            if _split(lost, live, inside):
                found.append((int((live - lost)[inside].sum() + lost[~inside].sum()), f"the {where} of them"))
    return min(found)[1] if found else None


def _split(lost: Tensor, live: Tensor, inside: Tensor) -> bool:
    there, elsewhere = int(live[inside].sum()), int(live[~inside].sum())
    if there < LEAST or elsewhere < LEAST:
        return False
    return int(lost[inside].sum()) >= LOST * there and int(lost[~inside].sum()) <= KEPT * elsewhere
