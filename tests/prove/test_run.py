"""The proof in small: plans, rows, and a fault that turns it red. Machine code is executed in this process."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from lanewise import InputError
from lanewise.cli import main
from lanewise.isa import MemoryFault
from lanewise.prove import run
from lanewise.prove.cases import Case
from lanewise.prove.compile import triton_version
from lanewise.prove.configurations import recorded
from lanewise.prove.execute import Emulation, emulated
from lanewise.prove.launches import Configuration
from lanewise.prove.rows import ANY_ORDER, SAME_IR, Code, Outcome, Row, completed, executed_rows
from lanewise.prove.run import ORDERS, Job, chosen_cases, chosen_targets, execute, execute_all, make_plan, prove
from lanewise.prove.training_gate import AdamState, Place
from lanewise.target import Target, compiles, find

pytest.importorskip("triton")


def test_targets_by_name_and_the_quick_ones():
    assert [t.name for t in chosen_targets("gfx942, sm_90a", False)] == ["gfx942", "sm_90"]
    everything, quick = chosen_targets(None, False), chosen_targets(None, True)
    assert {"xpu", "mps", "gfx1030", "sm_90"} <= {t.name for t in quick} < {t.name for t in everything}
    assert {t.family for t in everything if t.vendor == "amd"} == {t.family for t in quick if t.vendor == "amd"}
    with pytest.raises(InputError, match="gfx9999"):
        chosen_targets("gfx9999", False)


def test_cases_by_the_pattern_of_a_kernel():
    assert {k for case in chosen_cases("sum_records", False) for k in case.kernels} >= {"rasterize.sum_records"}
    assert all("adam.step" in case.kernels for case in chosen_cases("adam.*", True))
    with pytest.raises(InputError, match=r"--kernel: got 'nothing', expected a pattern for one of adam\.step"):
        chosen_cases("nothing", False)


def test_all_orders_everywhere_and_all_cases_on_one_target_of_a_family():
    plan = make_plan("*", chosen_targets(None, False), run.cases(), False, 1)
    assert plan.runs(find("gfx1100"), True) == ORDERS
    assert plan.runs(find("gfx1100"), False) == ("lockstep", "random")
    assert plan.runs(find("gfx1103"), True) == ("lockstep", "random")
    assert plan.runs(find("gfx1103"), False) == plan.runs(find("sm_90"), True) == ()
    slow = next(c for c in run.cases() if not c.quick)
    first, quick = (c for c in run.cases() if c.quick and c.kernels == ("statistics.observe",))
    for case, attributes, name, wanted in (
        (slow, True, "gfx1100", True),
        (slow, False, "gfx1100", False),
        (slow, True, "gfx1103", False),
        (first, False, "gfx1100", True),
        (quick, False, "gfx1100", False),
        (first, True, "gfx1103", True),
        (quick, True, "gfx1103", False),
        (quick, True, "gfx1100", True),
    ):
        assert plan.runs_case(case, find(name), attributes) is wanted
    alone = make_plan("*", (find("gfx1103"),), (), False, 1)
    assert alone.leader(find("gfx1103")) == find("gfx1103")
    assert alone.runs(find("gfx1103"), True) == ORDERS
    quick_plan = make_plan("*", chosen_targets(None, True), (), True, 1)
    assert (quick_plan.runs(find("gfx942"), True), quick_plan.runs(find("gfx942"), False)) == (
        ("lockstep", "random"),
        (),
    )


def test_jobs_are_the_cases_that_share_kernels_the_longest_first():
    cases = tuple(case for case in run.cases() if case.quick)
    by_case = recorded(cases)
    plan = make_plan("*", tuple(map(find, ("gfx1100", "gfx1101"))), cases, False, 1)
    jobs = run._jobs(plan, plan.targets, by_case)
    assert [job.length for job in jobs] == sorted((job.length for job in jobs), reverse=True)
    done = [(job.target.name, job.attributes, name) for job in jobs for name, _ in job.cases]
    assert len(done) == len(set(done))
    assert {name for arch, attributes, name in done if attributes and arch == "gfx1100"} == {c.name for c in cases}
    # Plain on the first, and on the other, so many that every kernel is launched.
    kernels = {case.name: set(case.kernels) for case in cases}
    plain, other = (
        [name for arch, jit, name in done if (arch, jit) == x] for x in (("gfx1100", False), ("gfx1101", True))
    )
    assert sorted(plain) == sorted(other)
    assert len(plain) + len(other) + len(cases) == len(done)
    assert set().union(*map(kernels.get, plain)) == set().union(*kernels.values())
    assert len(plain) < len(cases)
    assert {job.siblings for job in jobs if job.target.name == "gfx1101"} == {(find("gfx1100"),)}
    plain = next(job for job in jobs if not job.attributes)
    assert all(not config.attributes for config in plain.configurations)


def test_of_equally_long_jobs_one_for_each_number_of_lanes_is_first():
    """Two processes that begin with gfx90a and gfx942 would coalesce the same IR side by side."""
    cases = tuple(case for case in run.cases() if case.kernels == ("adam.step",))
    plan = make_plan("*", tuple(map(find, ("sm_90", "gfx90a", "gfx942", "gfx1100", "gfx1201"))), cases, False, 1)
    jobs = run._jobs(plan, plan.targets, recorded(cases))
    longest = [job.target.name for job in jobs if job.length == jobs[0].length]
    assert longest == ["gfx90a", "gfx1100", "gfx942", "gfx1201"]


def test_the_same_machine_code_is_executed_once_and_the_row_says_so():
    """gfx1200's is gfx1201's; gfx1101's is not gfx1100's, which hands its arguments over otherwise."""
    configs = tuple(recorded([next(c for c in run.cases() if c.name == "33 parameters")])["33 parameters"])
    ((config,), leader, target) = configs, find("gfx1201"), find("gfx1200")

    def job(target: Target, siblings: tuple[Target, ...]) -> Job:
        return Job((("33 parameters", configs),), target, True, ("lockstep", "reverse"), siblings)

    outcomes = [*execute_all(job(leader, ())), *execute_all(job(target, (leader,)))]
    assert [outcome.same_as for outcome in outcomes] == [None, leader]
    assert outcomes[1].orders == outcomes[1].gates == []
    (row,) = executed_rows(target, [config], completed(outcomes))
    assert (row.executed, row.reassembled, row.orders, row.ok) == (True, True, ["lockstep"], True)
    assert row.note.endswith(f"the same machine code as for gfx1201, executed there; {ANY_ORDER}")
    assert (SAME_IR.format("gfx1201") in row.note) == (row.ir_of == "gfx1201")
    assert row.max_rel_err is not None
    assert row.coverage is not None
    (other,) = execute_all(job(find("gfx1101"), (find("gfx1100"),)))
    assert (other.same_as, other.orders) == (None, ["lockstep"])


def test_what_fails_on_one_target_fails_on_those_with_its_machine_code():
    config = Configuration("lanewise.train.adam.kernels:step", (), (), (), ())
    code = {config: Code({"vgprs": 3}, True, np.array([True, False]), ("lockstep",))}
    off = Outcome("a", find("gfx1201"), True, code, ["lockstep"], [("lockstep", "x", 3e-6, 2e-6, False)])
    same = Outcome("a", find("gfx1200"), True, {config: Code({"vgprs": 3}, True)}, same_as=find("gfx1201"))
    (row,) = executed_rows(find("gfx1200"), [config], completed([off, same]))
    assert not row.ok
    assert "x is off by 3e-06" in row.note
    assert row.coverage == 0.5
    more = Outcome("a", find("gfx1201"), True, dict(code), ["lockstep"])
    more.code[dataclasses.replace(config, kernel="lanewise.train.adam.kernels:other")] = more.code[config]
    same = Outcome("a", find("gfx1200"), True, {config: Code({"vgprs": 3}, True)}, same_as=find("gfx1201"))
    (row,) = executed_rows(find("gfx1200"), [config], completed([more, same]))
    assert not row.ok
    assert "others than the configurations that were compared" in row.note


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
@pytest.mark.parametrize("attributes", [True, False])
def test_a_case_in_four_orders(arch: str, attributes: bool):
    """The loss is summed by waves that wait for one another at barriers."""
    outcome = execute("loss of 1025 programs", find(arch), attributes, ORDERS)
    assert outcome.stopped_by == ""
    assert outcome.orders == list(ORDERS)
    ((config, code),) = outcome.code.items()
    assert (config.name, bool(config.attributes)) == ("photometric.total", attributes)
    assert code.reassembled
    assert code.reached.mean() > 0.4
    assert (code.orders, code.any_order) == (ORDERS, False)
    assert code.columns["spills"] == 0
    assert 0 < code.seconds < 60
    assert code.columns["compile_seconds"] > 0
    assert {order for order, *_ in outcome.gates} == set(ORDERS)
    assert all(ok and error <= limit for _, _, error, limit, ok in outcome.gates)


def test_waves_that_never_meet_run_in_one_order_and_the_row_says_so():
    outcome = execute("33 parameters", find("gfx942"), True, ORDERS)
    assert outcome.stopped_by == ""
    assert outcome.orders == ["lockstep"]
    ((config, code),) = outcome.code.items()
    assert (code.orders, code.any_order) == (("lockstep",), True)
    row = rows_of([outcome], config)
    assert (row.orders, row.note, row.ok) == (["lockstep"], ANY_ORDER, True)
    assert row.run_seconds == code.seconds
    # Where another case has waves that do meet, nothing is said of one order.
    met = dataclasses.replace(code, orders=ORDERS, any_order=False)
    row = rows_of([outcome, Outcome("b", find("gfx942"), True, {config: met}, list(ORDERS))], config)
    assert (row.orders, row.note) == (list(ORDERS), "")


def test_what_no_wave_can_tell_is_taken_from_the_first_order():
    """In another order a launch with the same inputs runs no more; with others it does."""
    state, target = AdamState((31,), steps=1), find("gfx942")
    emulation, ran = Emulation(target), []
    program = next(iter(kept_programs(state, target).values()))
    with mock.patch.object(type(program), "run", autospec=True, side_effect=type(program).run) as run_:
        left = []
        for emulation.order in ORDERS:
            with emulated(emulation):
                left.append(state.run(Place("triton")))
            ran.append(run_.call_count)
        with emulated(emulation):
            dataclasses.replace(state, steps=2).run(Place("triton"))
    assert ran == [1, 1, 1, 1]
    assert run_.call_count == 2  # the second step has other inputs
    for other in left[1:]:
        assert all(bool((a == b).all()) for a, b in zip(left[0], other, strict=True))


def kept_programs(state: AdamState, target: Target) -> dict:
    from lanewise.prove import execute as executing

    with emulated(Emulation(target)):
        state.run(Place("triton"))
    return executing._programs


def test_a_fault_in_the_machine_code_is_seen(monkeypatch: pytest.MonkeyPatch):
    """The first multiplication of Adam's step becomes an addition."""
    from lanewise.prove import execute as executing

    honest = executing.isa.load
    monkeypatch.setattr(executing, "_programs", {})
    monkeypatch.setattr(
        executing.isa, "load", lambda text, name: honest(text.replace("v_mul_f32", "v_add_f32", 1), name)
    )
    outcome = execute("33 parameters", find("gfx942"), True, ("lockstep",))
    assert outcome.stopped_by == ""
    assert not all(ok for *_, ok in outcome.gates)


def test_a_launch_that_fails_has_not_been_executed(monkeypatch: pytest.MonkeyPatch):
    """The emulator refuses the first store: the row says why, and not that something ran."""
    from lanewise.prove import execute as executing

    def refuse(*_: object, **__: object) -> None:
        raise MemoryFault("outside every buffer")

    monkeypatch.setattr(executing.isa.Program, "run", refuse)
    outcome = execute("33 parameters", find("gfx942"), True, ORDERS)
    assert (outcome.code, outcome.orders) == ({}, [])
    assert outcome.stopped_by == "33 parameters, lockstep: MemoryFault: outside every buffer"
    assert outcome.stopped_at is not None
    row = rows_of([outcome], outcome.stopped_at)
    assert (row.executed, row.ok, row.note) == (False, False, outcome.stopped_by)


def test_unwritten_memory_is_poison_and_tensors_change_in_place():
    with emulated(Emulation(find("gfx1100"))):
        import torch

        assert torch.empty(3).isnan().all()
        assert (torch.empty_like(torch.zeros(2, dtype=torch.int32)) == 0x5EADBEEF).all()
        got = AdamState((31,), steps=1).run(Place("triton"))
    want = AdamState((31,), steps=1).run(Place("reference"))
    assert all(np.allclose(a, b, rtol=1e-5) for a, b in zip(got, want, strict=True))


def rows_of(outcomes: list[Outcome], config: Configuration) -> Row:
    (row,) = executed_rows(find("gfx942"), [config], outcomes)
    return row


def test_a_row_stands_as_the_worst_of_its_cases():
    config = Configuration("lanewise.train.adam.kernels:step", (), (), (), ())
    target, code = find("gfx942"), {config: Code({"vgprs": 3}, True, np.array([True, False]), ("lockstep",))}
    good = Outcome("a", target, True, code, ["lockstep"], [("lockstep", "x", 1e-6, 2e-6, True)])
    other = {config: Code({"vgprs": 3}, True, np.array([False, True]), ("reverse",))}
    worse = Outcome("b", target, True, other, ["reverse"], [("reverse", "y", 3e-6, 4e-6, True)])
    row = rows_of([good, worse], config)
    assert (row.max_rel_err, row.limit, row.coverage, row.orders) == (3e-6, 4e-6, 1.0, ["lockstep", "reverse"])
    assert row.ok
    off = Outcome("c", target, True, code, ["lockstep"], [("lockstep", "z", float("nan"), 2e-6, False)])
    assert not rows_of([good, off], config).ok
    assert "z is off by nan" in rows_of([good, off], config).note
    stopped = Outcome("d", target, True, code, [], [], None, "d, lockstep: it broke")
    assert not rows_of([good, stopped], config).ok
    unlike = Outcome("e", target, True, {config: Code({}, False, np.array([True, True]))}, ["lockstep"])
    assert "does not assemble" in rows_of([good, unlike], config).note


def test_a_case_that_launches_more_than_it_declares_fails(monkeypatch: pytest.MonkeyPatch):
    case = next(c for c in run.cases() if c.name == "31 parameters")
    monkeypatch.setattr(run, "cases", lambda: (Case(case.name, (), case.gates),))
    outcome = execute(case.name, find("gfx942"), True, ("lockstep",))
    assert outcome.stopped_by == "31 parameters launches adam.step, which it does not declare"


@pytest.mark.slow
def test_rows_of_executed_compiled_and_absent_targets(tmp_path: Path):
    targets = tuple(map(find, ("gfx942", "gfx1030", "sm_90", "mps")))
    plan = make_plan("adam.step", targets, chosen_cases("adam.step", True), True, 1)
    rows = prove(plan)
    assert all(row.ok for row in rows)
    by_arch = {row.arch: row for row in rows}
    assert by_arch["gfx942"].executed
    assert by_arch["gfx942"].reassembled
    assert any(row.compiled and "no emulator for NVIDIA" in row.note for row in rows if row.arch == "sm_90")
    assert by_arch["mps"].note == "not supported, CPU path"
    if compiles("gfx1030", triton_version()) is False:
        assert (by_arch["gfx1030"].compiled, by_arch["gfx1030"].executed) == (False, False)
        assert triton_version() in by_arch["gfx1030"].note


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_quick_proof(tmp_path: Path):
    """What CI runs: every kernel, an AMD target of every family."""
    out, page = tmp_path / "rows.json", tmp_path / "rows.html"
    assert main(["prove", "--quick", "--json", str(out), "--html", str(page)]) == 0
    found = json.loads(out.read_text())
    rows = found["rows"]
    assert f"Triton {triton_version()}" in found["verdict"]
    assert {
        *(
            "kernel",
            "config",
            "arch",
            "family",
            "wave",
            "compiled",
            "executed",
            "max_rel_err",
            "vgprs",
            "lds",
            "spills",
        ),
        *("orders", "ok", "note"),
    } <= rows[0].keys()
    executed = {(row["kernel"], row["arch"]) for row in rows if row["executed"]}
    families = [name for name in run.EXECUTED if compiles(name, triton_version()) is not False]
    assert executed >= {(run.short(kernel), name) for kernel in run.kernels() for name in families}
    assert all(row["orders"] and row["reassembled"] and row["coverage"] > 0.2 for row in rows if row["executed"])
    assert page.read_text().count("<tr class=") == len(rows)
