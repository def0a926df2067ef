"""Updates that are lost: the gradient is not zero, the optimizer has stepped, and the parameter is what it was."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from lanewise.audit.watching.alarm import Alarm
from lanewise.audit.watching.parameters import local

SAMPLE = 256  # elements of a parameter that are compared before and after a step
SPACINGS = 8.0  # between neighbouring numbers that a step must be expected to cross before it counts as lost
PATIENCE = 3  # looks in a row
COLUMNS = 3  # of the counts: elements that should move, elements with a gradient, elements that moved


@dataclass(frozen=True)
class _Before:
    names: tuple[str, ...]
    at: Sequence[slice]
    values: Tensor  # [sum of samples], float32
    live: Tensor  # bool, where the gradient is finite and not zero
    due: Tensor  # bool, where the step is large enough to show
    owner: Tensor  # int64, the parameter of each element


class Updates:
    """Compares a sample of every parameter before and after a step.

    Args:
        seed: of the samples.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._before: _Before | None = None
        self._in_a_row: Counter[str] = Counter()

    def before(
        self, parameters: Mapping[str, Tensor], gradients: Mapping[str, Tensor], optimizer: Optimizer | None
    ) -> None:
        """Take the sample; parameters whose learning rate is 0 are left out."""
        rates = _rates(optimizer)
        chosen = {
            name: p
            for name, p in parameters.items()
            if name in gradients
            and not gradients[name].is_sparse
            and p.numel()
            and (optimizer is None or id(p) in rates)
        }
        self._before = None
        if not chosen:
            return
        at, values, live, due = [], [], [], []
        for name, p in chosen.items():
            flat, gradient = local(p).reshape(-1), local(gradients[name]).reshape(-1)
            stride = max(1, flat.numel() // SAMPLE)
            at.append(slice(self._random.randrange(stride), None, stride))
            value, slope = flat[at[-1]].float(), gradient[at[-1]].float().abs()
            step = slope if optimizer is None else _expected(slope, *rates[id(p)])
            alive = (slope > 0) & slope.isfinite()
            values.append(value)
            live.append(alive)
            due.append(alive & (step > SPACINGS * torch.finfo(p.dtype).eps * value.abs()))
        lengths = torch.tensor([len(v) for v in values])
        owner = torch.repeat_interleave(torch.arange(len(chosen)), lengths).to(values[0].device, non_blocking=True)
        self._before = _Before(tuple(chosen), at, torch.cat(values), torch.cat(live), torch.cat(due), owner)

    def after(self, parameters: Mapping[str, Tensor]) -> tuple[tuple[str, ...], Tensor] | None:
        """The names, and how many elements of each should move, had a gradient, and moved: [parameters, COLUMNS]."""
        before, self._before = self._before, None
        if before is None or any(name not in parameters for name in before.names):
            return None
        now = [
            local(parameters[name]).reshape(-1)[at].float() for name, at in zip(before.names, before.at, strict=True)
        ]
        if sum(map(len, now)) != len(before.values):  # replaced in between
            return None
        moved = torch.cat(now) != before.values
        marks = torch.stack([before.due, before.live, moved & before.live], 1).float()
        counts = torch.zeros(len(before.names), COLUMNS, device=marks.device).index_add_(0, before.owner, marks)
        return before.names, counts

    def judge(
        self, step: int, names: Sequence[str], counts: Tensor, dtypes: Mapping[str, torch.dtype]
    ) -> Iterator[Alarm]:
        """What the counts of `after` say, on the host."""
        for name, (due, live, moved) in zip(names, counts.tolist(), strict=True):
            short = dtypes[name].itemsize < 4 and live >= SAMPLE // 4
            lost = moved == 0 and (due > 0 or short)
            self._in_a_row[name] = self._in_a_row[name] + 1 if lost else 0
            if self._in_a_row[name] >= PATIENCE:
                cause = (
                    "the optimizer's kernel, or a copy of the parameter that is updated in its place"
                    if due
                    else f"steps below the spacing of {str(dtypes[name]).removeprefix('torch.')} numbers: keep the "
                    "parameter in float32"
                )
                evidence = {"sampled": int(live), "moved": 0, "looks": self._in_a_row[name]}
                yield Alarm("LW402", name, step, 2.0 ** -(max(due, 1.0) * self._in_a_row[name]), cause, evidence)


def _rates(optimizer: Optimizer | None) -> dict[int, tuple[float, bool]]:
    """Of each parameter, by its identity, the learning rate and whether steps adapt to the gradient's size."""
    found: dict[int, tuple[float, bool]] = {}
    for group in optimizer.param_groups if optimizer is not None else ():
        rate = group.get("lr", 1.0)
        if isinstance(rate, Tensor):
            rate = float(rate) if rate.device.type == "cpu" else 1.0  # reading it from a GPU would wait
        if rate != 0:
            found.update((id(p), (rate, "betas" in group)) for p in group["params"])
    return found


def _expected(slope: Tensor, rate: float, adaptive: bool) -> Tensor:
    """How far an element moves at least, roughly."""
    return torch.full_like(slope, rate) if adaptive else slope * rate
