"""The norm of every gradient in every step, kept on the device until somebody reads a block of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lanewise.audit.watching.mailbox import Mailbox
from lanewise.audit.watching.parameters import local

ABSENT = -1.0  # in place of a norm, where a parameter had no gradient


@dataclass(frozen=True)
class Block:
    """The norms of some steps, on the host.

    Attributes:
        names: of the parameters.
        first: number of the first step.
        values: float64 [steps, parameters]; `ABSENT` where there was no gradient.
        excused: whether infinite values are part of the routine (a gradient scaler looks for them).
    """

    names: tuple[str, ...]
    first: int
    values: Tensor
    excused: bool


class Norms:
    """Rows of gradient norms on the device, at most `rows` between two readings."""

    def __init__(self, rows: int) -> None:
        self._most, self._rows = rows, 0
        self._names: tuple[str, ...] = ()
        self._table: Tensor | None = None
        self._columns: dict[tuple[str, ...], Tensor] = {}
        self._kept: dict[str, tuple[Tensor, int]] = {}  # of each a vector of norms, and its place there
        self._excused = False

    def keep(self, gradients: Mapping[str, Tensor]) -> None:
        """Take these norms for those of the row that comes, whatever happens to the gradients until then."""
        if gradients:
            norms = _norms([local(g) for g in gradients.values()], local(next(iter(gradients.values()))).device)
            self._kept |= {name: (norms, i) for i, name in enumerate(gradients)}

    def record(
        self,
        names: Iterable[str],
        gradients: Mapping[str, Tensor],
        *,
        excused: bool = False,
        valid: Tensor | None = None,
    ) -> None:
        """Add a row; three or four launches on a GPU (one more where norms were kept), and no word from it.

        Args:
            names: of all parameters.
            gradients: those that there are.
            excused: infinite values mean nothing in this step.
            valid: bool [] on the device; where it is False the step is as if it had no gradients.
        """
        if not gradients:
            return
        device = local(next(iter(gradients.values()))).device
        names = tuple(names)
        if self._table is None or names != self._names or self._table.device != device:
            self._names, self._columns, self._rows = names, {}, 0
            self._table = torch.full((self._most, len(names)), ABSENT, device=device)
        row = self._table[self._rows % self._most].fill_(ABSENT)
        fresh = [name for name in gradients if name not in self._kept]
        if fresh:
            row[self._places(tuple(fresh), device)] = _norms([local(gradients[name]) for name in fresh], device)
        for present, norms in self._taken(gradients):
            row[self._places(present, device)] = norms.to(device)
        if valid is not None:
            row.copy_(torch.where(valid, row, ABSENT))
        self._rows += 1
        self._excused |= excused

    def sound(self) -> bool:
        """Whether the newest row is finite; waits for the device."""
        return self._table is None or bool(self._table[(self._rows - 1) % self._most].isfinite().all())

    def send(self, mail: Mailbox, step: int, then: Callable[[Block], None]) -> None:
        """Have the rows since the last reading brought to the host; `step` was the last."""
        if self._table is None or not self._rows:
            return
        values, names, excused = self._table[: min(self._rows, self._most)].clone(), self._names, self._excused
        self._rows, self._excused = 0, False
        mail.send(values, lambda v: then(Block(names, step - len(v) + 1, v.double(), excused)))

    def _taken(self, gradients: Mapping[str, Tensor]) -> Iterator[tuple[tuple[str, ...], Tensor]]:
        """Names and norms of those gradients whose norms were kept; they are kept no longer."""
        taken: dict[int, tuple[Tensor, list[str], list[int]]] = {}
        for name in gradients:
            if name in self._kept:
                norms, i = self._kept.pop(name)
                _, names, at = taken.setdefault(id(norms), (norms, [], []))
                names.append(name)
                at.append(i)
        for norms, names, at in taken.values():
            yield tuple(names), norms if at == list(range(len(norms))) else norms[at]

    def _places(self, present: tuple[str, ...], device: torch.device) -> Tensor:
        if present not in self._columns:
            column = {name: i for i, name in enumerate(self._names)}
            self._columns[present] = torch.tensor([column[name] for name in present], device=device)
        return self._columns[present]


def _norms(gradients: Sequence[Tensor], device: torch.device) -> Tensor:
    """Their L2 norms [len], float32, with few launches: one call for each kind."""
    kinds: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for i, gradient in enumerate(gradients):
        kinds.setdefault((gradient.device, gradient.dtype), []).append(i)
    found: list[Tensor] = [gradients[0]] * len(gradients)
    for (_, dtype), members in kinds.items():
        wide = None if dtype.itemsize >= 4 else torch.float32
        norms = torch._foreach_norm([gradients[i] for i in members], 2, dtype=wide)  # pyright: ignore[reportPrivateImportUsage]
        for i, norm in zip(members, norms, strict=True):
            found[i] = norm
    if len(kinds) == 1:
        return torch.stack(found).float()
    return torch.stack([norm.to(device, torch.float32, non_blocking=True) for norm in found])
