"""Updates that are lost: the gradient is not zero, the optimizer has stepped, and the parameter is what it was."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.optim import Optimizer

from lanewise.audit.watching.alarm import Alarm
from lanewise.audit.watching.parameters import local

SAMPLE = 256  # elements of a parameter that are compared before and after a step, at most twice as many
SPACINGS = 8.0  # between neighbouring numbers that a step must be expected to cross before it counts as lost
PATIENCE = 3  # looks in a row
TOGETHER = 8  # lost updates of more parameters than this are one finding


@dataclass(frozen=True)
class _Sampled:
    """Elements of some parameters in one tensor after the other: their values, and what is expected of them."""

    at: Mapping[str, slice]
    values: Tensor  # [S]
    live: Tensor  # bool [S], where the gradient is finite and not zero
    due: Tensor  # bool [S], where the step is large enough to show
    owner: Tensor  # int64 [S], the number of the parameter


class Updates:
    """Compares a sample of every parameter before and after a step, with a few launches for all of them.

    Args:
        seed: of the samples.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._sampled: _Sampled | None = None
        self._in_a_row: Counter[str] = Counter()

    def before(
        self,
        parameters: Mapping[str, Tensor],
        gradients: Mapping[str, Tensor],
        optimizer: Optimizer | None,
        valid: Tensor | None = None,
    ) -> None:
        """Take the sample; parameters whose learning rate is 0 are left out; not `valid`: say nothing."""
        rates = _rates(optimizer)
        self._sampled = None
        chosen = {
            name: p
            for name, p in parameters.items()
            if name in gradients
            and not gradients[name].is_sparse
            and p.numel()
            and (rates is None or rates.get(id(p), (0.0, False))[0] != 0)
        }
        if not chosen:
            return
        sizes = {name: local(p).numel() for name, p in chosen.items()}
        at = {name: self._slice(size) for name, size in sizes.items()}
        values = _gathered(chosen, at)
        slope = _gathered(gradients, at).abs()
        lengths = torch.tensor([len(range(*at[name].indices(size))) for name, size in sizes.items()])
        spacing = [SPACINGS * torch.finfo(p.dtype).eps for p in chosen.values()]
        rate, adaptive = zip(*((1.0, False) if rates is None else rates[id(p)] for p in chosen.values()), strict=True)
        facts = torch.tensor([spacing, rate, adaptive]).repeat_interleave(lengths, 1).to(values)  # [3, S]
        step = facts[1] * torch.where(facts[2] > 0, 1.0, slope)  # how far an element moves at least, roughly
        live = (slope > 0) & slope.isfinite()
        live = live if valid is None else live & valid
        owner = torch.arange(len(chosen)).repeat_interleave(lengths).to(values.device)
        self._sampled = _Sampled(at, values, live, live & (step > facts[0] * values.abs()), owner)

    def after(self, parameters: Mapping[str, Tensor]) -> tuple[tuple[str, ...], Tensor] | None:
        """The names, and of each how many elements should move, had a gradient, and moved: [parameters, 3]."""
        sampled, self._sampled = self._sampled, None
        if sampled is None or any(name not in parameters for name in sampled.at):
            return None
        now = _gathered(parameters, sampled.at)
        if now.shape != sampled.values.shape:  # replaced in between
            return None
        marks = torch.stack([sampled.due, sampled.live, (now != sampled.values) & sampled.live], 1).float()
        return tuple(sampled.at), marks.new_zeros(len(sampled.at), 3).index_add_(0, sampled.owner, marks)

    def judge(
        self, step: int, names: Sequence[str], counts: Tensor, dtypes: Mapping[str, torch.dtype]
    ) -> Iterator[Alarm]:
        """What the counts of `after` say, on the host; one alarm for all where a whole optimizer's steps are lost."""
        lost = list(self._lost(step, names, counts, dtypes))
        if len(lost) > TOGETHER:
            evidence = {**lost[0].evidence, "parameters": [alarm.parameter for alarm in lost]}
            lost = [replace(lost[0], evidence=evidence, cause=f"{lost[0].cause} ({len(lost)} parameters at once)")]
        yield from lost

    def _lost(
        self, step: int, names: Sequence[str], counts: Tensor, dtypes: Mapping[str, torch.dtype]
    ) -> Iterator[Alarm]:
        for name, (due, live, moved) in zip(names, counts.tolist(), strict=True):
            rounded = dtypes[name].itemsize < 4 and live >= SAMPLE // 4
            lost = moved == 0 and (due > 0 or rounded)
            self._in_a_row[name] = self._in_a_row[name] + 1 if lost else 0
            looks = self._in_a_row[name]
            if looks >= PATIENCE:
                kind = str(dtypes[name]).removeprefix("torch.")
                cause = (
                    "the optimizer's kernel, or a copy of the parameter that is updated in its place"
                    if due
                    else f"steps below the spacing of {kind} numbers: keep the parameter in float32"
                )
                evidence = {"sampled": int(live), "moved": 0, "looks": looks}
                yield Alarm("LW402", name, step, 2.0 ** -(max(due, 1.0) * looks), cause, evidence)

    def _slice(self, size: int) -> slice:
        stride = max(1, size // SAMPLE)
        return slice(self._random.randrange(stride), None, stride)


def _gathered(tensors: Mapping[str, Tensor], at: Mapping[str, slice]) -> Tensor:
    """The elements at these places of the flattened tensors, as float32 [S]."""
    parts = [local(tensors[name]).reshape(-1)[where] for name, where in at.items()]
    device = parts[0].device
    if all(part.dtype == parts[0].dtype and part.device == device for part in parts):
        return torch.cat(parts).float()
    return torch.cat([part.to(device, torch.float32) for part in parts])


def _rates(optimizer: Optimizer | None) -> dict[int, tuple[float, bool]] | None:
    """Of each parameter, by its identity, the learning rate and whether steps adapt to the gradient's size."""
    if optimizer is None:
        return None
    rate: Callable[[object], float] = lambda x: (  # noqa: E731
        (float(x) if x.device.type == "cpu" else 1.0)  # reading it from a GPU would wait
        if isinstance(x, Tensor)
        else float(x)  # pyright: ignore[reportArgumentType]
    )
    groups = optimizer.param_groups
    return {id(p): (rate(g.get("lr", 1.0)), "betas" in g) for g in groups for p in g["params"]}
