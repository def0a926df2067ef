"""The smallest and plainest case that still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from lanewise.audit import compose
from lanewise.audit.case import Case
from lanewise.audit.spec import Spec

Fails = Callable[[Spec, Case], bool]


def shrink(spec: Spec, case: Case, fails: Fails) -> tuple[Spec, Case]:
    """Make everything as usual, then every size as small, as the failure allows.

    Afterwards each thing that is still unusual is needed: with that alone made usual, the case passes. Sizes are
    local minima: 1 or half or one less of any passes.

    Args:
        spec: the operator; a chain loses the statements that are not needed.
        case: one that fails.
        fails: whether a case fails; False too when there is no time left to tell.
    """
    if spec.chained:
        spec = _fewer_statements(spec, case, fails)
    while True:
        before = case
        for plainer in _plainer(spec, case):
            if fails(spec, candidate := plainer(case)):
                case = candidate
        case = _smaller(spec, case, fails)
        if case == before:
            return spec, case


def _plainer(spec: Spec, case: Case) -> Iterator[Callable[[Case], Case]]:
    """Changes that make a case more usual, those that say most first."""
    usual = {"compiled": False, "cotangent": "contiguous", "layout": "contiguous"}
    for name, value in usual.items():
        if getattr(case, name) != value:
            yield lambda c, name=name, value=value: replace(c, **{name: value})
    if case.values != spec.values[0]:
        yield lambda c: replace(c, values=spec.values[0])
    if case.dtype != spec.dtypes[0]:
        yield lambda c: replace(c, dtype=spec.dtypes[0])
    for name, value in case.options:
        plain = spec.options[name][0]
        if value != plain:
            yield lambda c, name=name, plain=plain: replace(
                c, options=tuple((n, plain if n == name else v) for n, v in c.options)
            )


def _smaller(spec: Spec, case: Case, fails: Fails) -> Case:
    """Every size as small as it gets alone, over and over."""
    if case.values == "example":  # the user's own tensors have the sizes that they have
        return case
    changed = True
    while changed:
        changed = False
        for name in spec.sizes:
            size = dict(case.sizes)[name]
            least = _least(size, lambda n, name=name: fails(spec, case.resized(**{name: n})))  # noqa: B023
            if least < size:
                case, changed = case.resized(**{name: least}), True
    return case


def _least(size: int, fails: Callable[[int], bool]) -> int:
    """A size at most `size` that fails, below which neither the next, nor 1, nor any that bisection met does."""
    if size > 1 and fails(1):
        return 1
    low, high = 1, size  # low passes, high fails
    while high - low > 1:
        middle = (low + high) // 2
        if fails(middle):
            high = middle
        else:
            low = middle
    return high


def _fewer_statements(spec: Spec, case: Case, fails: Fails) -> Spec:
    """A program without the statements (and parameters) that the failure does not need.

    First the shortest one that gives one of its results, and of that the shortest that ends at one of its values; then
    without each statement, the last ones first, where its readers read what it was made from.
    """
    for ends in (lambda lines, results: results, lambda lines, results: [line.split(" = ", 1)[0] for line in lines]):
        lines, results = compose.statements(spec)
        shorter = [compose.program(spec, lines, [name]) for name in ends(lines, results)]
        shorter = sorted(shorter, key=lambda one: len(one.source.splitlines()))
        spec = next((one for one in shorter if one.source != spec.source and fails(one, case)), spec)
    lines, results = compose.statements(spec)
    for place in reversed(range(len(lines))):
        if place >= len(lines):  # others went with one that was dropped
            continue
        shorter = compose.program(spec, *compose.without(lines, results, place))
        if fails(shorter, case):
            spec, (lines, results) = shorter, compose.statements(shorter)
    return spec
