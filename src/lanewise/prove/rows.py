"""What cases on targets said, as rows: one a configuration of a kernel and target."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from lanewise.prove.compile import triton_version
from lanewise.prove.launches import Configuration
from lanewise.target import Target, compiles


@dataclass
class Row:
    """One configuration of a kernel on one target.

    Attributes:
        executed: on an emulator; where `note` says that another target's machine code is the same, it was that one's.
        orders: the wave orders that it ran in; lockstep alone where no wave can tell the order.
        max_rel_err: of the output or gradient that came closest to its limit (or passed it), against fp64.
        limit: of that one.
        coverage: share of the instructions that were reached.
        reassembled: whether the executed text is the binary, byte by byte.
        ir_of: the target whose GPU IR (TTGIR) was compiled, where Triton makes the same one for both.
        compile_seconds, run_seconds: of the processor, for compiling it and for executing it.
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
    ir_of: str = ""
    compile_seconds: float | None = None
    run_seconds: float | None = None


SAME_IR = "compiled from {}'s GPU IR, which is the same"
ANY_ORDER = "no wave can tell in which order they run: one order stands for all"


@dataclass(frozen=True)
class Code:
    """A configuration's machine code on a target, and how it was run.

    Attributes:
        columns: numbers of a row.
        reassembled: whether the text assembles to the binary.
        reached: which instructions were; None: none was run.
        orders: of the waves, those that it ran in.
        any_order: whether in no launch a wave can tell the order.
        seconds: of the processor, for running it.
    """

    columns: dict[str, Any]
    reassembled: bool
    reached: np.ndarray | None = None
    orders: tuple[str, ...] = ()
    any_order: bool = False
    seconds: float = 0.0


@dataclass
class Outcome:
    """What a case on a target said: machine code by configuration, gates by order, and what stopped it.

    Attributes:
        same_as: the target whose outcome stands for this one, because all machine code is the same.
    """

    case: str
    target: Target
    attributes: bool = True
    code: dict[Configuration, Code] = field(default_factory=dict)
    orders: list[str] = field(default_factory=list)
    gates: list[tuple[str, str, float, float, bool]] = field(default_factory=list)  # order, name, error, limit, ok
    stopped_at: Configuration | None = None
    stopped_by: str = ""
    same_as: Target | None = None


def completed(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """The same, where those without a run of their own hold the run that stands for them."""
    outcomes = list(outcomes)
    runs = {(o.case, o.target, o.attributes): o for o in outcomes}
    for outcome in outcomes:
        if outcome.same_as is None:
            continue
        run = runs[outcome.case, outcome.same_as, outcome.attributes]
        outcome.orders, outcome.gates = run.orders, run.gates
        outcome.stopped_at, outcome.stopped_by = run.stopped_at, run.stopped_by
        if run.code.keys() != outcome.code.keys() and not run.stopped_by:
            outcome.stopped_by = f"{run.case} launched others than the configurations that were compared"
        for config, code in outcome.code.items():
            if config in run.code:
                there = run.code[config]
                how = {"reached": there.reached, "orders": there.orders, "any_order": there.any_order}
                outcome.code[config] = replace(code, **how)
    return outcomes


def executed_rows(target: Target, configs: Iterable[Configuration], outcomes: Iterable[Outcome]) -> Iterable[Row]:
    """Rows of an executed target: a configuration stands as the worst of the cases that launched it."""
    mine = [outcome for outcome in outcomes if outcome.target == target]
    for config in configs:
        row, reached, notes, any_order = start_row(config, target), None, [], True
        for outcome in mine:
            if config in outcome.code:
                code = outcome.code[config]
                row.compiled, row.executed = True, True
                row.reassembled = code.reassembled and row.reassembled is not False
                if code.reached is not None:
                    reached = code.reached if reached is None else reached | code.reached
                compiling = max(row.compile_seconds or 0.0, code.columns.get("compile_seconds", 0.0))
                for name, value in code.columns.items():
                    setattr(row, name, value)
                row.compile_seconds, row.run_seconds = compiling, (row.run_seconds or 0.0) + code.seconds
                row.orders += [order for order in code.orders if order not in row.orders]
                any_order &= code.any_order
                if outcome.same_as is not None:
                    notes.append(f"the same machine code as for {outcome.same_as.name}, executed there")
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
        if row.ir_of:
            notes.insert(0, SAME_IR.format(row.ir_of))
        if row.executed and any_order:
            notes.append(ANY_ORDER)
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


def missing_rows(expected: Iterable[tuple[Configuration, Target]], rows: list[Row]) -> list[Row]:
    """Rows of what should have been executed, but its cases stopped before it."""
    there = {(row.kernel, row.config, row.arch) for row in rows}
    missing = [start_row(*pair) for pair in expected]
    missing = [row for row in missing if (row.kernel, row.config, row.arch) not in there]
    for row in missing:
        row.ok, row.note = False, "not covered: every case that launches it stopped before"
    return missing


def compiled_row(config: Configuration, target: Target, why: str, found: dict[str, Any] | str) -> Row:
    """The row of what is compiled, but for a reason not executed; `found`: its numbers, or why there are none."""
    row = start_row(config, target)
    if isinstance(found, str):  # where nobody has tried this Triton, it may refuse
        row.ok = compiles(target.name, triton_version()) is not True
        row.note = f"not covered: Triton {triton_version()}: {found}"
        return row
    row.compiled = True
    for name, value in found.items():
        setattr(row, name, value)
    row.note = f"compiled; not executed: {why}{'; ' * bool(row.ir_of)}{SAME_IR.format(row.ir_of) * bool(row.ir_of)}"
    return row


def absent_row(config: Configuration, target: Target) -> Row:
    """The row of a target that nothing is compiled for."""
    row = start_row(config, target)
    unsupported = target.path == "cpu"
    row.note = "not supported, CPU path" if unsupported else f"Triton {triton_version()} does not compile for it"
    return row


def left_row(config: Configuration, target: Target, why: str) -> Row:
    """The row of a configuration that is not tried on a target."""
    row = start_row(config, target)
    row.note = f"not tried: {why}"
    return row


def start_row(config: Configuration, target: Target) -> Row:
    """A row that says nothing yet."""
    return Row(config.name, config.label, target.name, target.family, target.wave)


def as_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows for machines."""
    return [asdict(row) for row in rows]
