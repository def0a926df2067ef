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
        steps: their numbers, in order; not every step need be among them.
        values: float64 [steps, parameters]; `ABSENT` where there was no gradient.
        excused: whether infinite values are part of the routine (a gradient scaler looks for them).
    """

    names: tuple[str, ...]
    steps: tuple[int, ...]
    values: Tensor
    excused: bool

    @property
    def finite(self) -> bool:
        """Whether every norm is."""
        return bool(self.values.isfinite().all())

    @property
    def total(self) -> float:
        """The norm of all gradients in the last step."""
        return float(self.values[-1].clamp_min(0).square().sum().sqrt())


class Norms:
    """Rows of gradient norms on the device, at most `rows` between two readings."""

    def __init__(self, rows: int) -> None:
        self._most = rows
        self._steps: list[int] = []  # of the rows since the last reading
        self._names: tuple[str, ...] = ()
        self._table: Tensor | None = None
        self._columns: dict[tuple[str, ...], Tensor | slice] = {}
        self._kept: dict[str, tuple[Tensor, int]] = {}  # of each a vector of norms, and its place there
        self._excused = False

    def keep(self, gradients: Mapping[str, Tensor]) -> None:
        """Take these norms for those of the row that comes, whatever happens to the gradients until then."""
        if gradients:
            norms = _norms([local(g) for g in gradients.values()], local(next(iter(gradients.values()))).device)
            self._kept |= {name: (norms, i) for i, name in enumerate(gradients)}

    def record(
        self,
        step: int,
        names: Iterable[str],
        gradients: Mapping[str, Tensor],
        *,
        excused: bool = False,
        valid: Tensor | None = None,
    ) -> None:
        """Add a row; three or four launches on a GPU (one more where norms were kept), and no word from it.

        Args:
            step: its number.
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
            self._names, self._columns, self._steps = names, {}, []
            self._table = torch.full((self._most, len(names)), ABSENT, device=device)
        if len(self._steps) == self._most:  # nobody has read for long: only the newest stay
            self._table, self._steps = self._table.roll(-1, 0), self._steps[1:]
        row = self._table[len(self._steps)].fill_(ABSENT)
        fresh = {name: g for name, g in gradients.items() if name not in self._kept} if self._kept else gradients
        if fresh:
            row[self._places(tuple(fresh), device)] = _norms([local(g) for g in fresh.values()], device)
        if len(fresh) < len(gradients):
            for present, norms in self._taken(gradients):
                row[self._places(present, device)] = norms.to(device)
        if valid is not None:
            row.copy_(torch.where(valid, row, ABSENT))
        self._steps.append(step)
        self._excused |= excused

    def sound(self) -> bool:
        """Whether the newest row is finite; waits for the device."""
        return self._table is None or bool(self._table[len(self._steps) - 1].isfinite().all())

    def send(self, mail: Mailbox, then: Callable[[Block], None]) -> None:
        """Have the rows since the last reading brought to the host."""
        if self._table is None or not self._steps:
            return
        values, names, excused = self._table[: len(self._steps)].clone(), self._names, self._excused
        steps = tuple(self._steps)
        self._steps, self._excused = [], False
        mail.send(values, lambda v: then(Block(names, steps, v.double(), excused)))

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

    def _places(self, present: tuple[str, ...], device: torch.device) -> Tensor | slice:
        if present == self._names:
            return slice(None)
        if present not in self._columns:
            column = {name: i for i, name in enumerate(self._names)}
            self._columns[present] = torch.tensor([column[name] for name in present], device=device)
        return self._columns[present]


def _norms(gradients: Sequence[Tensor], device: torch.device) -> Tensor:
    """Their L2 norms [len], float32, with few launches: one call for each kind."""
    if len({g.dtype for g in gradients}) == 1 and len({g.get_device() for g in gradients}) == 1:
        return _together(_of_a_kind(gradients)).float()
    kinds: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for i, gradient in enumerate(gradients):
        kinds.setdefault((gradient.device, gradient.dtype), []).append(i)
    found: list[Tensor] = [gradients[0]] * len(gradients)
    for members in kinds.values():
        for i, norm in zip(members, _of_a_kind([gradients[i] for i in members]), strict=True):
            found[i] = norm
    return torch.stack([norm.to(device, torch.float32, non_blocking=True) for norm in found])


def _of_a_kind(gradients: Sequence[Tensor]) -> Sequence[Tensor]:
    """The norms of gradients of one dtype on one device."""
    wide = None if gradients[0].dtype.itemsize >= 4 else torch.float32
    return torch._foreach_norm(list(gradients), 2, dtype=wide)  # pyright: ignore[reportPrivateImportUsage]


def _together(scalars: Sequence[Tensor]) -> Tensor:
    """Numbers [] as a vector [len]: without a copy where they are neighbours in memory, as torch makes norms on a
    GPU."""
    first, last = scalars[0].untyped_storage(), scalars[-1].untyped_storage()
    if first.data_ptr() == last.data_ptr() and [x.storage_offset() for x in scalars] == list(range(len(scalars))):
        return scalars[0].as_strided((len(scalars),), (1,))
    return torch.stack(list(scalars))
