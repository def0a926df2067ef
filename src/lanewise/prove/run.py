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
from lanewise.prove.compile import Compiled, CompileError, compile_for, instructions, triton_version
from lanewise.prove.launches import Configuration, kernels, short
from lanewise.prove.reassemble import reassembled
from lanewise.target import TARGETS, Target, compiles, find

# Which target of a family is executed; the others are compiled, and their instructions compared with its.
EXECUTED = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1201")
ORDERS = ("lockstep", "forward", "reverse", "random")  # of the waves
QUICK_ORDERS = ("lockstep", "random")
RECORDED_ON = "gfx942"  # every Triton compiles for it: where configurations come from when no AMD target is asked for


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
    code: dict[Configuration, tuple[dict[str, Any], np.ndarray, bool, str]] = field(default_factory=dict)
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
            _digest(done.compiled),
        )
    return outcome


def numbers(compiled: Compiled) -> dict[str, Any]:
    """A row's columns about machine code."""
    names = ("vgprs", "agprs", "sgprs", "lds", "spills", "warps", "instructions", "cas_loops")
    return {name: getattr(compiled, name) for name in names}


def _digest(compiled: Compiled) -> str:
    """The same for two targets whose instructions are the same."""
    import hashlib

    return hashlib.sha256("\n".join(instructions(compiled.assembly)).encode()).hexdigest()


def compile_only(config: Configuration, target: Target) -> tuple[dict[str, Any], str] | str:
    """Numbers and digest of a configuration on a target, or why there are none; never raises."""
    try:
        compiled = compile_for(config, target)
    except CompileError as error:
        return str(error)
    return numbers(compiled), _digest(compiled) if target.vendor == "amd" else ""


@dataclass(frozen=True)
class Plan:
    """What is asked for.

    Attributes:
        kernel: pattern of kernels' names.
        targets: to compile for.
        cases: to execute.
        orders: of the waves, for launches with the JIT's attributes and for plain ones (none: not executed).
        jobs: processes.
    """

    kernel: str
    targets: tuple[Target, ...]
    cases: tuple[Case, ...]
    orders: dict[bool, tuple[str, ...]]
    jobs: int

    @property
    def executed(self) -> dict[str, Target]:
        """The target of every family of AMD's that is executed, by family."""
        chosen: dict[str, Target] = {}
        for target in self.targets:
            possible = target.vendor == "amd" and compiles(target.name, triton_version()) is not False
            if possible and (target.family not in chosen or target.name in EXECUTED):
                chosen[target.family] = target
        return chosen


def make_plan(kernel: str, targets: tuple[Target, ...], cases: tuple[Case, ...], quick: bool, jobs: int | None) -> Plan:
    """What a complete proof and a quick one look at."""
    orders = {True: QUICK_ORDERS if quick else ORDERS, False: () if quick else ORDERS}
    return Plan(kernel, targets, cases, orders, jobs or multiprocessing.cpu_count())


def chosen_targets(names: str | None) -> tuple[Target, ...]:
    """The targets of a list with commas; all that are not the CPU without one.

    Raises:
        InputError: a name that is not in the table.
    """
    if names is None:
        return tuple(target for target in TARGETS if target.vendor != "cpu")
    return tuple(find(name.strip()) for name in names.split(","))


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
    executed = list(plan.executed.values())
    wanted = [
        (c.name, t, a, plan.orders[a]) for t in executed for a in (True, False) if plan.orders[a] for c in plan.cases
    ]
    if not executed:  # the launches tell which configurations there are
        wanted = [(c.name, find(RECORDED_ON), True, ("lockstep",)) for c in plan.cases]
    with ProcessPoolExecutor(plan.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        outcomes: list[Outcome] = []
        futures = [pool.submit(execute, *job) for job in wanted]
        for done, future in enumerate(as_completed(futures), 1):
            outcomes.append(future.result())
            progress(done, 2 * len(futures))
        configs = _matching(plan, outcomes)
        others = [t for t in plan.targets if t not in executed and compiles(t.name, triton_version()) is not False]
        tasks = {(c, t): pool.submit(compile_only, c, t) for t in others for c in configs}
        for done, future in enumerate(as_completed(tasks.values()), 1):
            future.result()
            progress(len(futures) + done * len(futures) // len(tasks), 2 * len(futures))
        compiled = {key: future.result() for key, future in tasks.items()}
    rows = [row for target in executed for row in _executed_rows(target, configs, outcomes)]
    return sorted([*rows, *_compiled_rows(plan, configs, compiled, rows, outcomes)], key=lambda r: (r.kernel, r.config))


def _matching(plan: Plan, outcomes: Iterable[Outcome]) -> list[Configuration]:
    found = {config for outcome in outcomes for config in outcome.code}
    found |= {o.stopped_at for o in outcomes if o.stopped_at}
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
                columns, seen, same, _ = outcome.code[config]
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


def _compiled_rows(
    plan: Plan, configs: Iterable[Configuration], compiled: dict, rows: list[Row], outcomes: list[Outcome]
) -> Iterable[Row]:
    """Rows of the targets that are compiled, or not even that."""
    digests = {(c, o.target.family): (code[3], o.target.name) for o in outcomes for c, code in o.code.items()}
    by_name = {(row.kernel, row.config, row.arch): row for row in rows}
    version = triton_version()
    for target in plan.targets:
        if target in plan.executed.values():
            continue
        for config in configs:
            row = _row(config, target)
            if target.path == "cpu":
                row.note = "not supported, CPU path: nothing is compiled"
            elif (config, target) not in compiled:
                row.note = f"not covered: Triton {version} does not compile for {target.name}"
            elif isinstance(found := compiled[config, target], str):
                known = compiles(target.name, version)
                row.ok, row.note = known is not True, f"not covered: Triton {version}: {found}"
            else:
                row.compiled = True
                for name, value in found[0].items():
                    setattr(row, name, value)
                _compare(row, config, found[1], digests, by_name)
            yield row


def _compare(row: Row, config: Configuration, digest: str, digests: dict, by_name: dict) -> None:
    """Take over what was executed, where the instructions are the same ones."""
    mine, twin = digests.get((config, row.family), ("", ""))
    other = by_name.get((config.name, config.label, twin))
    if not digest:
        row.note = "compiled; not executed: there is no emulator for NVIDIA"
    elif other is None or mine != digest:
        row.note = (
            f"compiled; not covered by execution: its instructions are not those of {twin or 'an executed target'}"
        )
    else:
        row.executed, row.orders, row.ok = other.executed, list(other.orders), other.ok
        row.max_rel_err, row.limit, row.coverage = other.max_rel_err, other.limit, other.coverage
        row.note = f"the same instructions as {twin}, executed there"


def as_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows for machines."""
    return [asdict(row) for row in rows]
