"""The proof in small: plans, rows, and a fault that turns it red. Machine code is executed in this process."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lanewise import InputError
from lanewise.cli import main
from lanewise.prove import run
from lanewise.prove.cases import Case
from lanewise.prove.compile import triton_version
from lanewise.prove.execute import Emulation, emulated
from lanewise.prove.launches import Configuration
from lanewise.prove.rows import Outcome, Row, executed_rows
from lanewise.prove.run import ORDERS, chosen_cases, chosen_targets, execute, make_plan, prove
from lanewise.prove.training_gate import AdamState, Place
from lanewise.target import compiles, find

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


def test_all_orders_on_one_target_of_a_family():
    plan = make_plan("*", chosen_targets(None, False), (), False, 1)
    assert plan.runs(find("gfx1100"), True) == plan.runs(find("gfx1100"), False) == ORDERS
    assert plan.runs(find("gfx1103"), True) == ("lockstep",)
    assert plan.runs(find("gfx1103"), False) == plan.runs(find("sm_90"), True) == ()
    alone = make_plan("*", (find("gfx1103"),), (), False, 1)
    assert alone.runs(find("gfx1103"), True) == ORDERS
    quick = make_plan("*", chosen_targets(None, True), (), True, 1)
    assert (quick.runs(find("gfx942"), True), quick.runs(find("gfx942"), False)) == (("lockstep", "random"), ())


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
@pytest.mark.parametrize("attributes", [True, False])
def test_a_case_in_four_orders(arch: str, attributes: bool):
    outcome = execute("33 parameters", find(arch), attributes, ORDERS)
    assert outcome.stopped_by == ""
    assert outcome.orders == list(ORDERS)
    ((config, (numbers, reached, same)),) = outcome.code.items()
    assert (config.name, bool(config.attributes)) == ("adam.step", attributes)
    assert same
    assert reached.mean() > 0.4  # whole branches are for other numbers of parameters
    assert numbers["spills"] == 0
    assert len(outcome.gates) == 3 * 4
    assert all(ok and error <= limit for _, _, error, limit, ok in outcome.gates)


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
    target, code = find("gfx942"), {config: ({"vgprs": 3}, np.array([True, False]), True)}
    good = Outcome("a", target, True, code, ["lockstep"], [("lockstep", "x", 1e-6, 2e-6, True)])
    other = {config: ({"vgprs": 3}, np.array([False, True]), True)}
    worse = Outcome("b", target, True, other, ["reverse"], [("reverse", "y", 3e-6, 4e-6, True)])
    row = rows_of([good, worse], config)
    assert (row.max_rel_err, row.limit, row.coverage, row.orders) == (3e-6, 4e-6, 1.0, ["lockstep", "reverse"])
    assert row.ok
    off = Outcome("c", target, True, code, ["lockstep"], [("lockstep", "z", float("nan"), 2e-6, False)])
    assert not rows_of([good, off], config).ok
    assert "z is off by nan" in rows_of([good, off], config).note
    stopped = Outcome("d", target, True, code, [], [], None, "d, lockstep: it broke")
    assert not rows_of([good, stopped], config).ok
    unlike = Outcome("e", target, True, {config: ({}, np.array([True, True]), False)}, ["lockstep"])
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
    assert by_arch["sm_90"].compiled
    assert "no emulator for NVIDIA" in by_arch["sm_90"].note
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
