"""Which cases are tried, and in which order: first what breaks most often, then combinations without end."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice

import torch

from lanewise.audit.case import COTANGENTS, LAYOUTS, Case
from lanewise.audit.compose import chain
from lanewise.audit.examine import Result
from lanewise.audit.spec import Spec
from lanewise.target.table import WINDOW_BYTES

# Waves of 32 and 64 lanes, tiles, vector widths, blocks, and the powers of two that kernels split at.
POWERS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
BOUNDARIES = tuple(sorted({1, 3} | {p + d for p in POWERS for d in (-1, 0, 1) if p + d > 1}))
WAVES = (31, 32, 33, 63, 64, 65, 1, 127, 128, 129)  # first of all
GRID_LIMITS = (65535, 65536, 2**31)
ELEMENTS = 2**22  # of a tensor, in cases that are not about size
WORK = 2**26  # multiply-adds of a forward there
LARGE_WORK = {"cpu": 2**30, "other": 2**42}  # and in those that are
COPIES = 8  # of inputs and outputs that the probes hold at once
LARGE = 3  # cases past a limit that come among the first
REFUSALS = 3  # after so many that were never accepted a size is left alone
_HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Plan:
    """What a sweep may vary.

    Attributes:
        device: where to run.
        memory: bytes that a case may use.
        compile: whether `torch.compile` is tried too.
        window: bytes that one launch of the device can address.
        seed: of the order and of the combinations.
    """

    device: str = "cpu"
    memory: int = 2**31
    compile: bool = False
    window: int = WINDOW_BYTES
    seed: int = 0


class Sweep:
    """The cases of some operators, a few of each in turn, for as long as somebody asks.

    What does not fit into memory is not lost: it stands in `too_large`.
    """

    def __init__(self, specs: Sequence[Spec], plan: Plan) -> None:
        self._specs, self._plan = list(specs), plan
        self._refused: Counter[tuple[str, str]] = Counter()
        self._accepted: set[tuple[str, str]] = set()
        self._seen: set[Case] = set()
        self.too_large: list[Result] = []

    def __iter__(self) -> Iterator[tuple[Spec, Case]]:
        """Round after round: a case of each operator, in an order of this seed, with programs of several between."""
        order = random.Random(f"{self._plan.seed} order").sample(self._specs, len(self._specs))
        sources = [self._of(spec, random.Random(f"{self._plan.seed} {spec.name}")) for spec in order]
        chains = self._chains()
        # Programs are every fourth case of a catalogue; compilers get one after every operator.
        every = (1 if self._plan.compile else 3) if any(s.function is None and not s.setup for s in order) else math.inf
        turn = 0
        while sources:
            for source in list(sources):
                if (point := next(source, None)) is None:
                    sources.remove(source)
                    continue
                yield point
                turn += 1
                if turn % every == 0:
                    yield next(chains)

    def tell(self, result: Result) -> None:
        """What came of a case, so that sizes which the forward refuses are left alone."""
        base = {s.name: s.sizes for s in self._specs}.get(result.case.operator, {})
        changed = [name for name, value in result.case.sizes if value != base.get(name)]
        if len(changed) != 1:
            return
        key = (result.case.operator, changed[0])
        if result.outcome == "skipped" and "refuses" in result.reason:
            self._refused[key] += 1
        else:
            self._accepted.add(key)

    def _stubborn(self, spec: Spec, name: str) -> bool:
        key = (spec.name, name)
        return name in spec.fixed or (self._refused[key] >= REFUSALS and key not in self._accepted)

    def _of(self, spec: Spec, choose: random.Random) -> Iterator[tuple[Spec, Case]]:
        for case in self._points(spec, choose):
            if case in self._seen:
                continue
            self._seen.add(case)
            need, work = self.memory(spec, case), _work(spec, case)
            if need > self._plan.memory:
                reason = f"needs about {need / 2**30:.1f} GiB of memory, {self._plan.memory / 2**30:.1f} may be used"
                self.too_large.append(Result(case, "skipped", reason))
            elif work > (most := LARGE_WORK.get(self._plan.device, LARGE_WORK["other"])):
                reason = f"needs {work:.1g} multiply-adds a forward, {most:.1g} may be spent"
                self.too_large.append(Result(case, "skipped", reason))
            else:
                yield spec, case

    def _points(self, spec: Spec, choose: random.Random) -> Iterator[Case]:
        base = self.base(spec)
        if spec.example is not None:
            yield replace(base, values="example")
        yield base
        if self._plan.compile:
            yield replace(base, compiled=True)
        large = self._shuffled_large(spec, base, choose)
        axes = [
            [replace(base, dtype=dtype) for dtype in spec.dtypes[1:]],
            [replace(base, cotangent=cotangent) for cotangent in COTANGENTS[1:]],
            [replace(base, layout=layout) for layout in LAYOUTS[1:]],
            [replace(base, values=values) for values in spec.values[1:]],
            list(self._with_options(base, spec)),
            [replace(case, compiled=True) for case in self._with_options(base, spec) if self._plan.compile],
            list(self._resized(base, spec, WAVES, choose)),
        ]
        turns = [*(iter(choose.sample(axis, len(axis))) for axis in axes), islice(large, LARGE)]
        yield from _in_turn(choose.sample(turns, len(turns)))  # where time ends early, other operators had other turns
        boundaries = self._resized(base, spec, BOUNDARIES, choose)
        for number in count():
            if number % 4 == 0 and (case := next(large, None)) is not None:
                yield case
            elif (boundary := next(boundaries, None)) is not None and number % 2:
                yield boundary
            else:
                yield self.combination(spec, base, choose)

    def base(self, spec: Spec) -> Case:
        """The usual sizes, options and dtype."""
        options = tuple((name, choices[0]) for name, choices in spec.options.items())
        return Case(
            spec.name,
            tuple(spec.sizes.items()),
            options,
            dtype=spec.dtypes[0],
            values=spec.values[0],
            device=self._plan.device,
            seed=self._plan.seed,
        )

    def _with_options(self, base: Case, spec: Spec) -> Iterator[Case]:
        for name, choices in spec.options.items():
            for choice in choices[1:]:
                yield replace(base, options=tuple((n, choice if n == name else v) for n, v in base.options))

    def _resized(self, base: Case, spec: Spec, values: Sequence[int], choose: random.Random) -> Iterator[Case]:
        """One size at a time; a size that was refused several times is left alone."""
        pairs = [(name, value) for value in values for name in spec.sizes]
        for name, value in pairs:
            case = base.resized(**{name: value})
            if not self._stubborn(spec, name) and _is_small(spec, case):
                yield replace(case, seed=choose.randrange(2**31))

    def _shuffled_large(self, spec: Spec, base: Case, choose: random.Random) -> Iterator[Case]:
        """In random order; not worked out before somebody asks."""
        cases = self.large(spec, base)
        yield from choose.sample(cases, len(cases))

    def large(self, spec: Spec, base: Case) -> list[Case]:
        """Cases just below and just above the limits of grids, bytes and elements, one size made large."""
        cases = []
        for name in spec.sizes:
            if self._stubborn(spec, name):
                continue
            cases += [base.resized(**{name: n + 1}) for n in GRID_LIMITS]
            one, two = (_elements(spec, base.resized(**{name: n})) for n in (1024, 2048))
            each = (two - one) / 1024  # elements that the largest tensor grows by with this size
            if each < 1:
                continue
            for dtype in dict.fromkeys(d for d in (*spec.dtypes[:1], *_HALVES) if d in spec.dtypes):
                bytes_each = torch.finfo(getattr(torch, dtype)).bits // 8
                limits = (self._plan.window // bytes_each, 2**31)
                cases += [replace(base, dtype=dtype).resized(**{name: int(n / each) + 1}) for n in limits]
        return cases

    def combination(self, spec: Spec, base: Case, choose: random.Random) -> Case:
        """Everything at once, at random; each is as usual about half of the time."""

        def some(usual: str, others: Sequence[str]) -> str:
            return choose.choice(others) if choose.random() < 0.5 else usual

        sizes = {}
        for name in spec.sizes:
            if choose.random() < 0.5 and not self._stubborn(spec, name):
                sizes[name] = choose.choice(BOUNDARIES)
        case = replace(
            base.resized(**sizes),
            options=tuple((name, choose.choice(choices)) for name, choices in spec.options.items()),
            dtype=some(base.dtype, spec.dtypes),
            layout=some("contiguous", LAYOUTS),
            cotangent=some("contiguous", COTANGENTS),
            values=some(base.values, spec.values),
            compiled=self._plan.compile and choose.random() < 0.5,
            seed=choose.randrange(2**31),
        )
        while not _is_small(spec, case):
            largest = max(sizes, key=lambda name: sizes[name], default=None)
            if largest is None or sizes[largest] <= 1:
                return case
            sizes[largest] //= 2
            case = case.resized(**sizes)
        return case

    def _chains(self) -> Iterator[tuple[Spec, Case]]:
        choose = random.Random(f"{self._plan.seed} chains")
        while True:
            spec = chain(choose.randrange(2**31))
            case = replace(self.base(spec), compiled=self._plan.compile, seed=choose.randrange(2**31))
            if choose.random() < 0.5:
                names = [n for n in spec.sizes if n != "C"]
                case = case.resized(**{choose.choice(names): choose.choice(BOUNDARIES[:15])})
            yield spec, replace(case, cotangent=choose.choice(COTANGENTS) if choose.random() < 0.3 else "contiguous")

    def memory(self, spec: Spec, case: Case) -> int:
        """Bytes that a case is likely to need."""
        bytes_each = torch.finfo(getattr(torch, case.dtype)).bits // 8
        return COPIES * bytes_each * sum(_element_counts(spec, case, self._plan.memory // (COPIES * bytes_each)))


def _in_turn(sources: Sequence[Iterator[Case]]) -> Iterator[Case]:
    """The first of each, then the second of each, and so on."""
    left = list(sources)
    while left:
        for source in list(left):
            if (case := next(source, None)) is None:
                left.remove(source)
            else:
                yield case


def _is_small(spec: Spec, case: Case) -> bool:
    """Whether the case is not about size."""
    return _work(spec, case) <= WORK and _elements(spec, case, ELEMENTS) <= ELEMENTS


def _work(spec: Spec, case: Case) -> float:
    """Multiply-adds of a forward."""
    return float(eval(spec.work, {}, case.names))


def _elements(spec: Spec, case: Case, limit: int | None = None) -> int:
    """Of the largest tensor."""
    return max(_element_counts(spec, case, limit), default=0)


def _element_counts(spec: Spec, case: Case, limit: int | None = None) -> list[int]:
    """Elements of every input and, where the operator runs on shapes alone, of the output.

    Where only a limit matters the operator is not asked when the inputs pass it, or when all sizes together cannot.
    """
    shapes = {tensor: tensor.shape(case.names) for tensor in spec.inputs}
    counts = [torch.Size(shape).numel() for shape in shapes.values()]
    sizes = [n for _, n in case.sizes]
    decided = limit is not None and (sum(counts) > limit or math.prod(sizes) * max(sizes, default=1) <= limit)
    if spec.function is None and not spec.setup and not decided:
        try:
            with torch.no_grad():
                out = spec.bind(case.names)(
                    **{
                        t.name: torch.empty(
                            shape,
                            device="meta",
                            dtype=torch.int64 if t.kind == "other" else getattr(torch, case.dtype),
                        )
                        for t, shape in shapes.items()
                    }
                )
            counts += [out.numel()] if isinstance(out, torch.Tensor) else []
        except Exception:  # what needs values; the forward will say what it thinks of the shapes
            return counts
    return counts
