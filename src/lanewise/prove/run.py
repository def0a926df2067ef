"""The proof: cases on targets in wave orders, spread over processes, and what came out as rows."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

import torch

from lanewise.errors import InputError
from lanewise.prove.cases import Case, cases
from lanewise.prove.compile import Compiled, CompileError, as_launched, compile_for, triton_version
from lanewise.prove.configurations import of_large_launches, recorded
from lanewise.prove.launches import Configuration, kernels, short
from lanewise.prove.reassemble import reassembled
from lanewise.prove.rows import (
    Code,
    Outcome,
    Row,
    absent_row,
    compiled_row,
    completed,
    executed_rows,
    left_row,
    missing_rows,
)
from lanewise.target import TARGETS, Target, compiles, find

# The target of a family on which all cases are executed.
EXECUTED = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1201")
LARGE_TARGETS = ("gfx942", "gfx1100", "sm_90")  # what is too large to be executed is compiled for
ORDERS = ("lockstep", "forward", "reverse", "random")  # of the waves
QUICK_ORDERS = ("lockstep", "random")
ONE_OF_A_KERNEL = "a quick proof compiles one configuration of a kernel for it"
QUICK_TARGETS = (*EXECUTED, "sm_90", "xpu", "mps")


@dataclass(frozen=True)
class Job:
    """Cases that launch much the same kernels, on one target: one process compiles and decodes each kernel once.

    Attributes:
        cases: names, and the configurations that each is known to launch.
        orders: of the waves.
        siblings: executed targets of the same family, whose machine code may be the same.
    """

    cases: tuple[tuple[str, tuple[Configuration, ...]], ...]
    target: Target
    attributes: bool
    orders: tuple[str, ...]
    siblings: tuple[Target, ...] = ()

    @property
    def configurations(self) -> set[Configuration]:
        """All of them."""
        return {config for _, configs in self.cases for config in configs}

    @property
    def length(self) -> int:
        """About how long it takes, for the longest to be first."""
        return len(self.orders) * sum(len(configs) for _, configs in self.cases)


def execute_all(job: Job) -> list[Outcome]:
    """The cases of a job; never raises."""
    outcomes = []
    for name, configs in job.cases:
        same_as = _same_code(configs, job.target, job.siblings)
        if same_as is None:
            outcomes.append(execute(name, job.target, job.attributes, job.orders))
            continue
        code = {c: Code(_numbers(compile_for(c, job.target)), _reassembled(c, job.target)) for c in configs}
        outcomes.append(Outcome(name, job.target, job.attributes, code, same_as=same_as))
    return outcomes


def _same_code(configs: Sequence[Configuration], target: Target, siblings: Sequence[Target]) -> Target | None:
    """The first of a target's siblings with the same machine code for all of these configurations."""
    for sibling in siblings:
        with contextlib.suppress(CompileError):
            pairs = ((compile_for(config, target), compile_for(config, sibling)) for config in configs)
            if all(mine.machine_code == other.machine_code for mine, other in pairs):
                return sibling
    return None


@functools.cache
def _reassembled(config: Configuration, target: Target) -> bool:
    return reassembled(compile_for(config, target))


def execute(case_name: str, target: Target, attributes: bool, orders: Sequence[str]) -> Outcome:
    """One case on one target, in wave orders; never raises."""
    from lanewise.prove.execute import Emulation, emulated

    torch.set_num_threads(1)
    case = next(case for case in cases() if case.name == case_name)
    outcome, emulation = Outcome(case_name, target, attributes), Emulation(target, attributes)
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
        if all(done.any_order for done in emulation.executed.values()):
            break
    undeclared = {config.name for config in emulation.executed} - set(case.kernels)
    if undeclared and not outcome.stopped_by:
        outcome.stopped_by = f"{case_name} launches {', '.join(sorted(undeclared))}, which it does not declare"
    for config, done in emulation.executed.items():
        outcome.code[config] = Code(
            _numbers(done.compiled), _reassembled(config, target), done.reached, tuple(done.orders), done.any_order,
            done.seconds,
        )  # fmt: skip
    return outcome


def _numbers(compiled: Compiled) -> dict[str, Any]:
    """A row's columns about machine code."""
    names = (
        "vgprs",
        "agprs",
        "sgprs",
        "lds",
        "spills",
        "warps",
        "instructions",
        "cas_loops",
        "compile_seconds",
        "ir_of",
    )
    return {name: getattr(compiled, name) for name in names}


def compile_only(config: Configuration, target: Target) -> dict[str, Any] | str:
    """Numbers of a configuration on a target, or why there are none; never raises."""
    try:
        return _numbers(compile_for(config, target))
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
        quick: of what is only compiled one configuration of a kernel, and none of large launches.
    """

    kernel: str
    targets: tuple[Target, ...]
    cases: tuple[Case, ...]
    orders: dict[bool, tuple[str, ...]]
    jobs: int
    quick: bool = False

    def runs(self, target: Target, attributes: bool) -> tuple[str, ...]:
        """The orders that a target is executed in: all on one target of a family, some on the others; plain launches on
        that one alone."""
        if target.vendor != "amd" or compiles(target.name, triton_version()) is False:
            return ()
        if target == self.leader(target):
            return self.orders[attributes]
        return QUICK_ORDERS if attributes else ()

    def runs_case(self, case: Case, target: Target, attributes: bool) -> bool:
        """Whether a case is executed: with the JIT's attributes all are on one target of a family; plain, and on the
        family's others, so many that every kernel is launched. (Attributes decide how a kernel loads and stores, not
        what it computes.)"""
        return (attributes and target == self.leader(target)) or case.name in self.covering

    @functools.cached_property
    def covering(self) -> set[str]:
        """Names of the first quick cases that together launch every kernel that any of them does."""
        launched: set[str] = set()
        chosen = set()
        for case in self.cases:
            if case.quick and not launched.issuperset(case.kernels):
                launched.update(case.kernels)
                chosen.add(case.name)
        return chosen

    def leader(self, target: Target) -> Target:
        """The one target of a family that stands for it."""
        family = [t for t in self.targets if t.family == target.family]
        return next((t for t in family if t.name in EXECUTED), family[0])


def make_plan(kernel: str, targets: tuple[Target, ...], cases: tuple[Case, ...], quick: bool, jobs: int | None) -> Plan:
    """What a complete proof and a quick one look at."""
    orders = {True: QUICK_ORDERS if quick else ORDERS, False: () if quick else QUICK_ORDERS}
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
    by_case = recorded(plan.cases)
    launched = _matching(plan, set().union(*by_case.values()))
    possible = [t for t in plan.targets if t.path == "triton" and compiles(t.name, triton_version()) is not False]
    jobs = _jobs(plan, possible, by_case)
    executed = {job.target for job in jobs}
    builds = list(_builds(plan, possible, launched, executed))
    with ProcessPoolExecutor(plan.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        runs = [pool.submit(execute_all, job) for job in jobs]
        compiled = [pool.submit(compile_only, config, target) for config, target, _ in builds]
        lengths = {**dict(zip(runs, (job.length for job in jobs), strict=True)), **dict.fromkeys(compiled, 1)}
        done = 0
        for future in as_completed(lengths):
            future.result()
            done += lengths[future]
            progress(done, sum(lengths.values()))
    outcomes = completed(outcome for run in runs for outcome in run.result())
    ran = _matching(plan, {config for o in outcomes for config in (*o.code, o.stopped_at) if config})
    rows = [row for target in plan.targets if target in executed for row in executed_rows(target, ran, outcomes)]
    planned = {(config, job.target) for job in jobs for config in _matching(plan, job.configurations)}
    rows += missing_rows(planned, rows)
    rows += [compiled_row(*build, future.result()) for build, future in zip(builds, compiled, strict=True)]
    rows += [absent_row(config, target) for target in plan.targets if target not in possible for config in launched]
    others = {target: plan.leader(target) for target in executed}
    tried = planned | {(config, target) for config, target, _ in builds}
    for target in possible:
        why = f"{others[target].name} stands for the family with it" if target in others else ONE_OF_A_KERNEL
        left = dict.fromkeys(as_launched(config, target) for config in launched)
        rows += [left_row(config, target, why) for config in left if (config, target) not in tried]
    return sorted(rows, key=lambda row: (row.kernel, row.config))


def _jobs(plan: Plan, possible: Sequence[Target], by_case: Mapping[str, set[Configuration]]) -> list[Job]:
    """What is executed, the longest first; of equally long ones first one for each number of lanes, whose compilation
    the others share in part (`coalesced`)."""
    groups: dict[str, list[Case]] = {}
    for case in plan.cases:
        groups.setdefault(case.group, []).append(case)
    jobs = []
    for place, target in enumerate(possible):
        leader = plan.leader(target)
        others = (leader, *(t for t in possible[:place] if t.family == target.family and t != leader))
        for attributes in (True, False):
            orders = plan.runs(target, attributes)
            for group in groups.values() if orders else ():
                mine = [case for case in group if plan.runs_case(case, target, attributes)]
                known = tuple((case.name, _known(by_case[case.name], target, attributes)) for case in mine)
                jobs.append(Job(known, target, attributes, orders, () if target == leader else others))
    jobs = [job for job in jobs if job.cases]
    kinds = [(target.vendor, target.wave) for target in possible]
    turns = {target: kinds[:place].count(kinds[place]) for place, target in enumerate(possible)}
    return sorted(jobs, key=lambda job: (-job.length, turns[job.target]))


def _builds(
    plan: Plan, possible: Sequence[Target], launched: Sequence[Configuration], executed: set[Target]
) -> Iterator[tuple[Configuration, Target, str]]:
    """What is only compiled, and why."""
    large = [] if plan.quick else _matching(plan, of_large_launches(launched))
    for target in possible:
        if target not in executed:
            chosen = {config.name: config for config in reversed(launched)}.values() if plan.quick else launched
            others = dict.fromkeys(as_launched(config, target) for config in chosen)
            yield from ((config, target, "there is no emulator for NVIDIA") for config in others)
        if target.name in LARGE_TARGETS:
            others = dict.fromkeys(as_launched(config, target) for config in large)
            yield from ((config, target, "launches too large for it") for config in others)


def _known(configs: Iterable[Configuration], target: Target, attributes: bool) -> tuple[Configuration, ...]:
    return tuple({as_launched(config if attributes else config.plain(), target) for config in configs})


def _matching(plan: Plan, found: Iterable[Configuration]) -> list[Configuration]:
    names = (plan.kernel, f"*.{plan.kernel}")
    return sorted((c for c in found if any(fnmatch.fnmatch(c.name, n) for n in names)), key=lambda c: (c.name, c.label))
