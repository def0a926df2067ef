"""The proof: cases on targets in wave orders, spread over processes, and what came out as rows."""

from __future__ import annotations

import fnmatch
import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

from lanewise.errors import InputError
from lanewise.prove.cases import Case, cases
from lanewise.prove.compile import Compiled, CompileError, compile_for, triton_version
from lanewise.prove.configurations import of_large_launches, recorded
from lanewise.prove.launches import Configuration, kernels, short
from lanewise.prove.reassemble import reassembled
from lanewise.target import TARGETS, Target, compiles, find

# Which target of a family is executed in all orders of the waves; the others in one.
EXECUTED = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1201")
ORDERS = ("lockstep", "forward", "reverse", "random")  # of the waves
QUICK_ORDERS = ("lockstep", "random")
QUICK_TARGETS = (*EXECUTED, "sm_90", "xpu", "mps")


@dataclass
class Row:
    """One configuration of a kernel on one target.

    Attributes:
        orders: the wave orders that it ran in.
        max_rel_err: of the output or gradient that came closest to its limit (or passed it), against fp64.
        limit: of that one.
        coverage: share of the instructions that were reached.
        reassembled: whether the executed text is the binary, byte by byte.
        note: what to know, above all why something was not done.
    """

    kernel: str
    config: str
    arch: str
    family: str
    wave: int
    compiled: bool = False
    executed: bool = False
    max_rel_err: float | None = None
    vgprs: int | None = None
    lds: int | None = None
    spills: int | None = None
    orders: list[str] = field(default_factory=list)
    ok: bool = True
    note: str = ""
    limit: float | None = None
    coverage: float | None = None
    reassembled: bool | None = None
    warps: int | None = None
    agprs: int | None = None
    sgprs: int | None = None
    instructions: int | None = None
    cas_loops: int | None = None


@dataclass
class Outcome:
    """What a case on a target said: machine code by configuration, gates by order, and what stopped it."""

    case: str
    target: Target
    code: dict[Configuration, tuple[dict[str, Any], np.ndarray, bool]] = field(default_factory=dict)
    orders: list[str] = field(default_factory=list)
    gates: list[tuple[str, str, float, float, bool]] = field(default_factory=list)  # order, name, error, limit, ok
    stopped_at: Configuration | None = None
    stopped_by: str = ""


def execute(case_name: str, target: Target, attributes: bool, orders: Sequence[str]) -> Outcome:
    """One case on one target, in wave orders; never raises."""
    from lanewise.prove.execute import Emulation, emulated

    torch.set_num_threads(1)
    case = next(case for case in cases() if case.name == case_name)
    outcome, emulation = Outcome(case_name, target), Emulation(target, attributes)
    for seed, order in enumerate(orders):
        emulation.order, emulation.seed = order, seed
        try:
            with emulated(emulation):
                gates = case.gates()
        except Exception as error:
            outcome.stopped_at = emulation.current
            outcome.stopped_by = f"{case_name}, {order}: {type(error).__name__}: {error}"
            break
        outcome.orders.append(order)
        outcome.gates += [(order, gate.name, gate.error, gate.limit, gate.ok) for gate in gates]
    undeclared = {config.name for config in emulation.executed} - set(case.kernels)
    if undeclared and not outcome.stopped_by:
        outcome.stopped_by = f"{case_name} launches {', '.join(sorted(undeclared))}, which it does not declare"
    for config, done in emulation.executed.items():
        outcome.code[config] = (
            numbers(done.compiled),
            done.reached,
            reassembled(done.compiled),
        )
    return outcome


def numbers(compiled: Compiled) -> dict[str, Any]:
    """A row's columns about machine code."""
    names = ("vgprs", "agprs", "sgprs", "lds", "spills", "warps", "instructions", "cas_loops")
    return {name: getattr(compiled, name) for name in names}


def compile_only(config: Configuration, target: Target) -> dict[str, Any] | str:
    """Numbers of a configuration on a target, or why there are none; never raises."""
    try:
        return numbers(compile_for(config, target))
    except CompileError as error:
        return str(error)


@dataclass(frozen=True)
class Plan:
    """What is asked for.

    Attributes:
        kernel: pattern of kernels' names.
        targets: to compile for.
        cases: to execute.
        orders: of the waves, for launches with the JIT's attributes and for plain ones (none: not executed).
        jobs: processes.
        quick: without what is only compiled for large launches.
    """

    kernel: str
    targets: tuple[Target, ...]
    cases: tuple[Case, ...]
    orders: dict[bool, tuple[str, ...]]
    jobs: int
    quick: bool = False

    def runs(self, target: Target, attributes: bool) -> tuple[str, ...]:
        """The orders that a target is executed in: all on one target of a family, the first on the others."""
        if target.vendor != "amd" or compiles(target.name, triton_version()) is False:
            return ()
        family = [t for t in self.targets if t.family == target.family]
        first = next((t for t in family if t.name in EXECUTED), family[0])
        if target == first:
            return self.orders[attributes]
        return self.orders[attributes][:1] if attributes else ()


def make_plan(kernel: str, targets: tuple[Target, ...], cases: tuple[Case, ...], quick: bool, jobs: int | None) -> Plan:
    """What a complete proof and a quick one look at."""
    orders = {True: QUICK_ORDERS if quick else ORDERS, False: () if quick else ORDERS}
    return Plan(kernel, targets, cases, orders, jobs or multiprocessing.cpu_count(), quick)


def chosen_targets(names: str | None, quick: bool) -> tuple[Target, ...]:
    """The targets of a list with commas; without one all that are not the CPU, or those that a quick proof takes.

    Raises:
        InputError: a name that is not in the table.
    """
    if names is not None:
        return tuple(find(name.strip()) for name in names.split(","))
    return tuple(t for t in TARGETS if t.vendor != "cpu" and (not quick or t.name in QUICK_TARGETS))


def chosen_cases(pattern: str, quick: bool) -> tuple[Case, ...]:
    """The cases that launch a kernel whose name matches.

    Raises:
        InputError: no kernel has such a name.
    """
    names = sorted({short(name) for name in kernels()})
    wanted = {name for name in names if fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(name.split(".")[1], pattern)}
    if not wanted:
        raise InputError("--kernel", got=repr(pattern), expected=f"a pattern for one of {', '.join(names)}")
    return tuple(case for case in cases() if wanted & set(case.kernels) and (case.quick or not quick))


def prove(plan: Plan, progress: Callable[[int, int], None] = lambda done, total: None) -> list[Row]:
    """Compile and execute; rows by kernel, configuration and target."""
    launched = _matching(plan, set().union(*recorded(plan.cases).values()))
    large = [] if plan.quick else _matching(plan, of_large_launches(launched))
    possible = [t for t in plan.targets if t.path == "triton" and compiles(t.name, triton_version()) is not False]
    runs = [(c.name, t, a, o) for t in possible for a in (True, False) if (o := plan.runs(t, a)) for c in plan.cases]
    executed = {target for _, target, _, _ in runs}
    with ProcessPoolExecutor(plan.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        cases_ = [pool.submit(execute, *run) for run in runs]
        builds = {
            (config, target): pool.submit(compile_only, config, target)
            for target in possible
            for config in (large if target in executed else launched + large)
        }
        for done, future in enumerate(as_completed([*cases_, *builds.values()]), 1):
            future.result()
            progress(done, len(cases_) + len(builds))
    outcomes, compiled = [f.result() for f in cases_], {key: f.result() for key, f in builds.items()}
    ran = _matching(plan, {config for o in outcomes for config in (*o.code, o.stopped_at) if config})
    rows = [row for target in plan.targets if target in executed for row in _executed_rows(target, ran, outcomes)]
    rows += _missing_rows(launched, executed, rows)
    rows += [_compiled_row(config, target, found) for (config, target), found in compiled.items()]
    rows += [_absent_row(config, target) for target in plan.targets if target not in possible for config in launched]
    return sorted(rows, key=lambda row: (row.kernel, row.config))


def _matching(plan: Plan, found: Iterable[Configuration]) -> list[Configuration]:
    names = (plan.kernel, f"*.{plan.kernel}")
    return sorted((c for c in found if any(fnmatch.fnmatch(c.name, n) for n in names)), key=lambda c: (c.name, c.label))


def _row(config: Configuration, target: Target) -> Row:
    return Row(config.name, config.label, target.name, target.family, target.wave)


def _executed_rows(target: Target, configs: Iterable[Configuration], outcomes: Iterable[Outcome]) -> Iterable[Row]:
    """Rows of an executed target: a configuration stands as the worst of the cases that launched it."""
    mine = [outcome for outcome in outcomes if outcome.target == target]
    for config in configs:
        row, reached, notes = _row(config, target), None, []
        for outcome in mine:
            if config in outcome.code:
                columns, seen, same = outcome.code[config]
                row.compiled, row.executed = True, True
                row.reassembled = same and row.reassembled is not False
                reached = seen if reached is None else reached | seen
                for name, value in columns.items():
                    setattr(row, name, value)
                row.orders += [order for order in outcome.orders if order not in row.orders]
                _take_gates(row, outcome, notes)
            if outcome.stopped_at == config or (
                outcome.stopped_by and not outcome.stopped_at and config in outcome.code
            ):
                row.ok = False
                notes.append(outcome.stopped_by)
        if not row.executed and not notes:
            continue  # another target's
        if row.reassembled is False:
            row.ok = False
            notes.append("the executed text does not assemble to the binary")
        row.coverage = None if reached is None else float(reached.mean())
        row.note = "; ".join(dict.fromkeys(notes))
        yield row


def _take_gates(row: Row, outcome: Outcome, notes: list[str]) -> None:
    for order, name, error, limit, ok in outcome.gates:
        if limit and (row.max_rel_err is None or row.limit is None or error / limit > row.max_rel_err / row.limit):
            row.max_rel_err, row.limit = error, limit
        if not ok:
            row.ok = False
            notes.append(f"{outcome.case}, {order}: {name} is off by {error:.3g}, limit {limit:.3g}")


def _missing_rows(launched: list[Configuration], executed: set[Target], rows: list[Row]) -> list[Row]:
    """Rows of what should have been executed, but its cases stopped before it."""
    there = {(row.kernel, row.config, row.arch) for row in rows}
    missing = [_row(config, target) for target in executed for config in launched]
    missing = [row for row in missing if (row.kernel, row.config, row.arch) not in there]
    for row in missing:
        row.ok, row.note = False, "not covered: every case that launches it stopped before"
    return missing


def _compiled_row(config: Configuration, target: Target, found: dict[str, Any] | str) -> Row:
    """The row of what is compiled, but not executed."""
    row = _row(config, target)
    if isinstance(found, str):  # where nobody has tried this Triton, it may refuse
        row.ok = compiles(target.name, triton_version()) is not True
        row.note = f"not covered: Triton {triton_version()}: {found}"
        return row
    row.compiled = True
    for name, value in found.items():
        setattr(row, name, value)
    large = target.vendor == "amd"
    row.note = "compiled; not executed: " + (
        "launches too large for it" if large else "there is no emulator for NVIDIA"
    )
    return row


def _absent_row(config: Configuration, target: Target) -> Row:
    """The row of a target that nothing is compiled for."""
    row = _row(config, target)
    unsupported = target.path == "cpu"
    row.note = "not supported, CPU path" if unsupported else f"Triton {triton_version()} does not compile for it"
    return row


def as_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows for machines."""
    return [asdict(row) for row in rows]
