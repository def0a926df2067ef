"""What the audit's probes find, what they miss, and whether what they say about it is true.

usage: python benchmarks/audit_power.py [faults] [curve] [clean] [noise] [others] [--fault NAME] [--scale X]

- `faults`: every planted fault x float32, bfloat16, float16 x six operators x sizes, three seeds each: found by the
  operator's first probe (adjoint or jvp), and by any of its probes, against the fault's size in rounding floors (a
  floor is tolerance / lambda, which is what rounding is taken to be).
- `curve`: random errors of 1 to 100 floors: how often a verdict of three directions misses them, beside how often it
  said that it would.
- `clean`: 10,000 verdicts on healthy operators, with one-sided data, long sequential sums and every cotangent layout.
- `noise`: the rounding error of healthy gradients against float64, and what the probes take it to be.
- `others`: the same faults before gradcheck (fast and slow, float64) and `torch.allclose` with its defaults (against
  the float64 gradient), and what these say of healthy operators.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from _audit_operators import DTYPES, LONG, OPERATORS, PAIRS, SEQUENTIAL, SIZES, Operator, drawn
from _harness import merge

from lanewise.audit.call import Call
from lanewise.audit.faults import ALL_FAULTS, Fault, planted_call
from lanewise.audit.probes import applicable, probe
from lanewise.audit.probes.directions import Noise, Trial, begin, draw
from lanewise.audit.probes.jvp import push_forward
from lanewise.audit.tolerance import LAMBDA, unit

FLOORS = (1, 2, 3, 5, 8, 10, 15, 20, 30, 50, 100)
KINDS = ("normal", "one-sided", "positive", "tiny", "huge")
LAYOUTS = ("contiguous", "strided", "transposed", "expanded", "ones")
SLOW_LIMIT = 2500  # elements of input and output up to which slow gradcheck is run
KEY = ("part", "fault", "operator", "dtype", "size", "floors")
Row = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", default=["faults", "curve", "clean", "noise", "others"])
    parser.add_argument("--fault", help="only this planted fault, in `faults`")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the repeats, for a quick look")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for part in options.parts:
        start = time.perf_counter()
        rows = [{**dict.fromkeys(KEY), "part": part, **row} for row in PARTS[part](options)]
        for row in rows:
            print(row)
        merge("audit_power", rows, KEY)
        print(f"{part}: {time.perf_counter() - start:.0f} s")
    return 0


def faults(options: argparse.Namespace) -> Iterator[Row]:
    """Detection of every planted fault, by its size in floors."""
    seeds = max(1, round(3 * options.scale))
    planted = [fault for fault in ALL_FAULTS if options.fault in (None, fault.name)]
    for fault, dtype, operator in itertools.product(planted, DTYPES, OPERATORS):
        for size in SIZES:
            found: dict[str, int] = defaultdict(int)
            floors = []
            for seed in range(seeds):
                call = drawn(operator, size, dtype, seed)
                by, relative, floor = _found(call, operator.argument, fault, seed)
                floors.append(relative / floor if math.isfinite(relative) else math.inf)
                found["first"] += by == applicable(call, operator.argument)[0]
                found["any"] += by is not None
            least = min(floors)
            yield {
                "fault": fault.name, "operator": operator.name, "dtype": _short(dtype), "size": size, "runs": seeds,
                "size_in_floors": least if math.isfinite(least) else None, "first": found["first"], "any": found["any"],
            }  # fmt: skip


def _found(call: Call, argument: str, fault: Fault, seed: int) -> tuple[str | None, float, float]:
    """The first probe that fails; the fault's relative size and the rounding floor."""
    names = applicable(call, argument)
    healthy = probe(call, argument, names[0], seed=seed)
    faulty = planted_call(call, argument, fault)
    v = call.cotangents(call.output(), torch.Generator().manual_seed(seed))
    right, wrong = (c.gradient(v, names=(argument,))[argument].double() for c in (call, faulty))
    relative = float((wrong - right).norm() / right.norm())
    for name in names:
        if probe(planted_call(call, argument, fault), argument, name, seed=seed).outcome == "failed":
            return name, relative, _floor(healthy)
    return None, relative, _floor(healthy)


def _floor(verdict: Any) -> float:
    return verdict.tolerance / LAMBDA / verdict.gradient_norm


def curve(options: argparse.Namespace) -> Iterator[Row]:
    """Random errors of so many floors: how often the first probe finds them, and how often it said it would."""
    trials = max(5, round(24 * options.scale))
    for group, (dtype, operator) in enumerate(itertools.product(DTYPES, OPERATORS)):
        stated, missed = defaultdict(float), defaultdict(int)
        for seed in range(
            group * trials, (group + 1) * trials
        ):  # other directions for each, so that misses are independent
            call = drawn(operator, SIZES[0], dtype, seed)
            name = applicable(call, operator.argument)[0]
            healthy = probe(call, operator.argument, name, seed=seed)
            floor = _floor(healthy)
            for floors in FLOORS:
                faulty = planted_call(call, operator.argument, _error(floors * floor, seed))
                verdict = probe(faulty, operator.argument, name, seed=seed)
                missed[floors] += verdict.outcome != "failed"
                stated[floors] += verdict.miss_probability(floors * floor)  # what the reader of this verdict is told
        for floors in FLOORS:
            yield {
                "operator": operator.name, "dtype": _short(dtype), "floors": floors, "runs": trials,
                "missed": missed[floors], "stated": stated[floors],
            }  # fmt: skip


def _error(relative: float, seed: int) -> Fault:
    """An error in a random direction, linear in the gradient."""

    def apply(grad: torch.Tensor) -> torch.Tensor:
        direction = torch.randn(grad.shape, generator=torch.Generator().manual_seed(7919 + seed)).double()
        wide = grad.double()
        return (wide + relative * wide.norm() * direction / direction.norm()).to(grad)

    return Fault("error", "LW105", "a random direction", apply)


def clean(options: argparse.Namespace) -> Iterator[Row]:
    """Verdicts on healthy operators: which are not passed."""
    total = round(10_000 * options.scale)
    cases = list(_clean_cases())
    rounds = -(-total // len(cases))
    counts: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for seed, (operator, size, dtype, kind, layout) in itertools.islice(
        ((seed, case) for seed in range(rounds) for case in cases), total
    ):
        call = drawn(operator, size, dtype, seed, kind, cotangent=layout)
        names = applicable(call, operator.argument)
        for name in names[:1] if seed else names:
            verdict = probe(call, operator.argument, name, seed=seed)
            counts[operator.name, _short(dtype)][f"{'first' if name == names[0] else name}: {verdict.outcome}"] += 1
            if verdict.outcome == "failed":
                print("false alarm", operator.name, size, dtype, kind, layout, seed, verdict, flush=True)
    for (operator, dtype), outcomes in counts.items():
        yield {"operator": operator, "dtype": dtype, **dict(sorted(outcomes.items()))}


def _clean_cases() -> Iterator[tuple[Operator, int, torch.dtype, str, str]]:
    for operator, size, dtype, kind, layout in itertools.product(OPERATORS, SIZES[:2], DTYPES, KINDS, LAYOUTS):
        sums_in_16_bits = operator.name == "embedding" and dtype != torch.float32
        if sums_in_16_bits and layout in ("expanded", "ones"):
            continue  # torch's own fault: the sum stops at 256 (bf16) and 2048 (fp16), see docs/findings.md
        yield operator, size, dtype, kind, layout
    for size, kind, layout in itertools.product(LONG, KINDS[:3], LAYOUTS):
        yield SEQUENTIAL, size, torch.float32, kind, layout


def noise(options: argparse.Namespace) -> Iterator[Row]:
    """The rounding error of healthy gradients against float64, beside what the probes take it to be, in units."""
    for dtype, operator in itertools.product(DTYPES, (*OPERATORS, PAIRS)):
        errors, taken, measured = [], [], []
        for seed in range(max(2, round(10 * options.scale))):
            call, argument = drawn(operator, SIZES[1], dtype, seed), operator.argument
            trial = begin(call, argument, "noise")
            assert isinstance(trial, Trial)
            directions = draw(trial, 3, seed)
            estimate = Noise(trial, directions, push_forward)
            for d in directions:
                exact = call.double().gradient([v.double() for v in d.cotangents], names=(argument,))[argument]
                size = d.norm * unit(dtype)
                errors.append(float((d.gradient.double() - exact).norm()) / size)
                taken.append(estimate.sigma(d) / size)
            measured.append(estimate.measured / unit(dtype))
        mean = [math.sqrt(sum(x**2 for x in xs) / len(xs)) for xs in (errors, measured, taken)]
        row = dict(zip(("error", "rescaling", "sigma"), mean, strict=True))
        yield {"operator": operator.name, "dtype": _short(dtype), **row}


def others(_: argparse.Namespace) -> Iterator[Row]:
    """The same faults before gradcheck and allclose, and healthy operators (fault "none")."""
    for fault, operator, size in itertools.product((None, *ALL_FAULTS), OPERATORS, SIZES):
        call = drawn(operator, size, torch.float64, 0)
        row: Row = {"fault": fault.name if fault else "none", "operator": operator.name, "dtype": "any", "size": size}
        if operator.name == "attention" and size > SIZES[0]:
            call = drawn(operator, SIZES[0], torch.float64, 0)
        row["gradcheck_fast"] = not _gradcheck(call, operator.argument, fault, True)
        work = call.value(operator.argument).numel() + sum(y.numel() for y in call.output())
        if work <= SLOW_LIMIT:
            row["gradcheck_slow"] = not _gradcheck(call, operator.argument, fault, False)
        for dtype in DTYPES:
            row[f"allclose_{_short(dtype)}"] = not _allclose(drawn(operator, size, dtype, 0), operator.argument, fault)
        yield row


def _gradcheck(call: Call, argument: str, fault: Fault | None, fast: bool) -> bool:
    if fault is not None:
        call = planted_call(call, argument, fault)
    x = call.value(argument).clone().requires_grad_()
    # The fast mode runs the slow one after a failure, to word its message.
    with mock.patch.object(sys.modules["torch.autograd.gradcheck"], "_run_slow_mode_and_get_error", return_value=""):
        return torch.autograd.gradcheck(
            lambda value: call.output({argument: value}), (x,), fast_mode=fast, raise_exception=False
        )


def _allclose(call: Call, argument: str, fault: Fault | None) -> bool:
    faulty = planted_call(call, argument, fault) if fault else call
    v = call.cotangents(call.output(), torch.Generator().manual_seed(0))
    got = faulty.gradient(v, names=(argument,))[argument]
    truth = call.double().gradient([x.double() for x in v], names=(argument,))[argument]
    return torch.allclose(got.double(), truth)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


PARTS = {"faults": faults, "curve": curve, "clean": clean, "noise": noise, "others": others}


if __name__ == "__main__":
    sys.exit(main())
