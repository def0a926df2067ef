"""What the adjoint and the jvp probe share: <gradient(v), u> = <v, J u> in random directions u.

The left side is one backward pass of the call under audit. The right side needs only the forward, and is taken in
float64, in slices of the batch where there is one, so that it crosses none of the limits that the left side may cross.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from lanewise.audit import tolerance
from lanewise.audit.call import OUTPUT, Call, ForwardError, lay_out, normal, pull_back
from lanewise.audit.probes.measure import dot, norm, norms, numels, participation
from lanewise.audit.verdict import Verdict, skipped

Push = Callable[[Call, str, Tensor], tuple[Tensor, ...]]  # J u of a call in one argument

SCALES = (0.625, 0.75, 0.875)  # of a cotangent: so few bits that it stays exact; below 1: nothing overflows
SALT = 0x1F83D9ABFB41BD6B  # see `seeded`
BEYOND = "the gradient is beyond the range of its dtype"
BELOW = "the gradient is below the normal numbers of its dtype"
ALIKE = 0.1  # relative difference of outputs that are those of the same function
SLICE_BYTES = 2**28  # of the outputs in float64 that the right side holds at a time


class Direction(NamedTuple):
    """A random v, the gradient for it, its norm, what rescaling v (and shaking the inputs) changed in it; and a u."""

    cotangents: tuple[Tensor, ...]
    gradient: Tensor
    norm: float
    change: float
    u: Tensor


class Trial(NamedTuple):
    """A call whose gradient in one argument is looked at: the graph's ends, and how far it is from itself in float64,
    relative to the outputs; infinite where that does not work."""

    call: Call
    argument: str
    leaves: Mapping[str, Tensor]
    outputs: tuple[Tensor, ...]
    apart: float

    @property
    def wide(self) -> bool:
        """Whether float64 works and is the same function there: not with other random numbers."""
        return self.apart <= ALIKE

    def exact(self, part: Call) -> Call:
        """A part of the call in the precision of the right side."""
        return part.double() if self.wide else part


def begin(call: Call, argument: str, probe: str) -> Trial | Verdict:
    """The forward pass; a verdict where there is nothing to probe."""
    if call.value(argument).numel() == 0:
        return skipped(probe, argument, "the argument has no elements")
    leaves, outputs = call.graph(names=(argument,))
    if not any(y.requires_grad for y in outputs):
        return skipped(probe, argument, "no output depends on it")
    if not all(bool(y.isfinite().all()) for y in outputs):
        return Verdict(probe, argument, "inconclusive", reason="the forward holds NaN or infinity")
    return Trial(call, argument, leaves, outputs, _apart_in_double(call, outputs))


def draw(trial: Trial, probes: int, seed: int) -> list[Direction]:
    """Random directions; two backward passes each."""
    generator = seeded(trial.outputs[0].device, seed)
    return [_direction(trial, generator, SCALES[i % len(SCALES)]) for i in range(probes)]


def seeded(device: torch.device, seed: int) -> torch.Generator:
    """A generator whose sequence is not the one that inputs are drawn from after `manual_seed(seed)`: directions that
    are the inputs themselves would be anything but random."""
    return torch.Generator(device).manual_seed(SALT ^ seed)


def exact_gradient(trial: Trial, direction: Direction) -> Tensor | None:
    """The gradient in float64; None where that does not work, or not in little memory."""
    if not trial.wide or 8 * numels((*trial.outputs, direction.gradient)) > SLICE_BYTES:
        return None
    cotangents = [v.double() for v in direction.cotangents]
    return trial.call.double().gradient(cotangents, names=(trial.argument,)).get(trial.argument)


def beyond_range(exact: Tensor | None, dtype: torch.dtype) -> bool:
    """Whether the right gradient, or what it is a sum of, may be too large for its dtype."""
    return exact is not None and not bool((exact.abs() <= torch.finfo(dtype).max / 2).all())


def below_range(call: Call, size: float, count: int, dtype: torch.dtype) -> bool:
    """Whether a gradient of this norm in so many elements is too small for its dtype to say how exact it should be.

    Sums of products are judged all the same: they are kept in a wider dtype, and what is lost when the result is stored
    is in their tolerance.
    """
    return not multilinear(call) and tolerance.subnormal(size, count, dtype)


class Noise:
    """The rounding error of a trial's gradients.

    Attributes:
        context: what its bound is derived from.
        measured: root mean square over the directions of what rescaling changed, relative to the gradient, as far as
            it can be excused.
    """

    def __init__(self, trial: Trial, directions: Sequence[Direction], push: Push) -> None:
        self._trial, self._first = trial, directions[0]
        call, first = trial.call, directions[0]
        coherent = call.cotangent in ("expanded", "ones")
        self._gain = max(d.norm / norms(d.cotangents) for d in directions)
        if coherent:
            generator = seeded(first.u.device, call.seed)
            v = replace(call, cotangent="contiguous").cotangents(trial.outputs, generator)
            self._gain = norm(pull_back(trial.outputs, trial.leaves, v)[trial.argument]) / norms(v)
        length = _terms(trial, first, push) if trial.wide else numels(first.cotangents)
        self.context = tolerance.context(call, first.gradient, one_sided=coherent, reduction=length)
        self._sums = multilinear(call)
        self._coefficients = trial.apart if trial.wide else 0.0
        size = math.sqrt(sum(d.norm**2 for d in directions))
        change = math.sqrt(sum(d.change**2 for d in directions) / (2 if self._sums else 1))
        self.measured = self._amplified(change / size) if size > 0 else 0.0

    def least(self, direction: Direction) -> float:
        """The rounding error of this gradient that no kernel avoids."""
        least = tolerance.least(self.context, *self._sizes(direction))
        return least if self._sums else max(least, tolerance.composed(self.context, *self._sizes(direction)))

    def sigma(self, direction: Direction) -> float:
        """The rounding error of this gradient, by what was measured and by its bound."""
        numel, least = direction.gradient.numel(), self.least(direction)
        bound, measured = self.bound(direction), self.measured * direction.norm
        if self._sums:
            sums = tolerance.sigma(least, bound, measured, numel)
            # A linear map whose coefficients are rounded themselves (weights of an interpolation) is not that of
            # float64, nor is its transpose: by as much as the forward shows.
            return math.hypot(sums, self._coefficients * max(self._sizes(direction)[:2]))
        return max(least, measured, bound if numel < tolerance.FEW else 0.0)  # shaken inputs: safe as it is

    def bound(self, direction: Direction) -> float:
        """What the arithmetic of sums of products explains, without a measurement."""
        return tolerance.sequential(self.context, *self._sizes(direction))

    def _amplified(self, measured: float) -> float:
        """The measured error, at most `EXCESS` times what the same arithmetic makes of the rounding of float64.

        Cancellation between the steps of an operator amplifies rounding in every precision alike; a lossy accumulator
        or a race does not. It is asked only of an error that the bound of a sum does not explain.
        """
        trial, first = self._trial, self._first
        if self._sums or not trial.wide or 8 * numels(trial.outputs) > SLICE_BYTES:
            return measured
        if measured * first.norm <= tolerance.EXCESS * self.bound(first):
            return measured
        generator = seeded(first.u.device, trial.call.seed)
        wide = trial.call.double()
        leaves, outputs = wide.graph(names=(trial.argument,))
        exact = _direction(trial._replace(call=wide, leaves=leaves, outputs=outputs), generator, SCALES[0])
        units = exact.change / exact.norm / tolerance.unit(torch.float64) if exact.norm > 0 else math.inf
        return min(measured, tolerance.EXCESS * units * tolerance.unit(self.context.dtype))

    def _sizes(self, direction: Direction) -> tuple[float, float, int]:
        return direction.norm, self._gain * norms(direction.cotangents), direction.gradient.numel()


def multilinear(call: Call) -> bool:
    """Whether the call is affine in each of its tensors, so that gradients are sums of products of them."""
    return set(call.tensors()) <= set(call.linear)


def shaken(call: Call, generator: torch.Generator) -> dict[str, Tensor]:
    """Every tensor of the call, its elements moved by -1, 0 or 1 units in the last place of their own dtype.

    They require gradients as before: a compiled function would be compiled anew.
    """
    values = {}
    for name, x in call.tensors().items():
        step = torch.randint(-1, 2, x.shape, generator=generator, device=generator.device).to(x)
        moved = x.detach() * (1 + torch.finfo(x.dtype).eps * step)
        values[name] = moved.requires_grad_(x.requires_grad)
    return values


def _apart_in_double(call: Call, outputs: Sequence[Tensor]) -> float:
    """`Trial.apart`, of a few entries where there are many."""
    if call.batch is not None and 8 * numels(outputs) > SLICE_BYTES:
        few = call.entries(0, 1)
        with torch.no_grad():
            return _apart_in_double(few, few.output())
    try:
        with torch.no_grad():
            values = call.double().output()
    except ForwardError:
        return math.inf
    if [y.shape for y in outputs] != [z.shape for z in values] or any(z.dtype != torch.float64 for z in values):
        return math.inf
    pairs = [(norm(y, minus=z), norm(z)) for y, z in zip(outputs, values, strict=True)]
    apart = [off / size for off, size in pairs if size > 0]
    return max(apart, default=0.0) if all(map(math.isfinite, apart)) else math.inf


def _direction(trial: Trial, generator: torch.Generator, scale: float) -> Direction:
    call, argument = trial.call, trial.argument
    cotangents = call.cotangents(trial.outputs, generator)
    gradient = pull_back(trial.outputs, trial.leaves, cotangents)[argument]
    scaled = tuple(lay_out(v * scale, call.cotangent) for v in cotangents)
    if multilinear(call):
        other = pull_back(trial.outputs, trial.leaves, scaled)[argument]
    else:
        other = call.gradient(scaled, shaken(call, generator), (argument,)).get(argument, torch.zeros_like(gradient))
    change = norm(other, minus=gradient, scale=1 / scale)
    # A change that a few elements make up is a poor estimate of what those few may do next time.
    few = tolerance.FEW / participation(other, minus=gradient, scale=1 / scale)
    change *= math.sqrt(1 + few)
    return Direction(cotangents, gradient, norm(gradient), change, normal(trial.leaves[argument], generator))


def right_side(trial: Trial, direction: Direction, push: Push) -> tuple[float, float]:
    """<v, J u> slice by slice of the batch, and the deviation of its own rounding error."""
    value, squares = 0.0, norms(trial.outputs) ** 2
    for part, u, cotangents in slices_of(trial, direction):
        with torch.no_grad():
            image = push(part, trial.argument, u.to(part.value(trial.argument)))
        value += sum(dot(y, v) for y, v in zip(image, cotangents, strict=True))
        squares += norms(image) ** 2
    count = numels(direction.cotangents)
    spread = norms(direction.cotangents) / math.sqrt(count)
    unit = tolerance.unit(torch.float64 if trial.wide else direction.u.dtype)
    return value, 2 * unit * math.sqrt(1 + math.log2(count)) * spread * math.sqrt(squares)


def slices_of(trial: Trial, direction: Direction) -> Iterator[tuple[Call, Tensor, tuple[Tensor, ...]]]:
    """Parts of the call with the parts of u and v that belong to them."""
    call, cotangents = trial.call, direction.cotangents
    if call.batch is None:
        yield trial.exact(call), direction.u, cotangents
        return
    along, own = call.batch[OUTPUT], call.batch.get(trial.argument)
    count = cotangents[0].shape[along]
    step = max(1, count * SLICE_BYTES // max(1, 8 * numels(cotangents)))
    for start in range(0, count, step):
        size = min(step, count - start)
        u = direction.u if own is None else direction.u.narrow(own, start, size)
        part = trial.exact(call.entries(start, start + size))
        yield part, u, tuple(v.narrow(along, start, size) for v in cotangents)


def _terms(trial: Trial, direction: Direction, push: Push) -> int:
    """How many outputs depend on the element with the largest gradient: the terms that its sum has."""
    one = torch.zeros_like(direction.gradient).flatten()
    one[direction.gradient.detach().abs().flatten().argmax()] = 1
    count = 0
    for part, u, _ in slices_of(trial, direction._replace(u=one.reshape(direction.gradient.shape))):
        with torch.no_grad():
            count += sum(int(y.count_nonzero()) for y in push(part, trial.argument, u.to(part.value(trial.argument))))
    return count
