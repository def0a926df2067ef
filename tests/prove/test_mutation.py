"""Mutants of the product's kernels: recorded launches, chosen cases, and mutants that only a strict gate shows."""

from __future__ import annotations

import numpy as np
import pytest

from lanewise.audit.gate import GateResult
from lanewise.isa import Buffer
from lanewise.isa.examine import Examination
from lanewise.isa.mutate import Mutant, mutants
from lanewise.prove.cases import Case, cases
from lanewise.prove.compile import compile_for
from lanewise.prove.mutation import Launching, OnCases, chosen, copies, launched
from lanewise.target import find

pytest.importorskip("triton")
GFX1100 = find("gfx1100")


def case_of(name: str) -> Case:
    return next(case for case in cases() if case.name == name)


def examination(case: Case, kernel: str) -> tuple[Examination, list[Mutant]]:
    """A kernel in one case, in one order, and its mutants."""
    config, launching = next((c, found) for c, found in launched([case], GFX1100).items() if c.name == kernel)
    compiled = compile_for(config, GFX1100)
    trial = OnCases(launching, GFX1100, config)
    found = mutants(compiled.assembly, compiled.function)
    return Examination(compiled.assembly, trial, compiled.function, ("lockstep",)), list(found)


def test_arguments_are_copied_and_what_was_one_array_stays_one() -> None:
    x = np.arange(4)
    a, b, number = copies([Buffer(x, address=64, start=1), x, 7])
    assert (a.address, a.start, number) == (64, 1, 7)
    assert a.array is b
    assert b is not x
    assert (b == x).all()


def test_cases_are_chosen_until_everything_that_can_be_is_reached() -> None:
    case = case_of("33 parameters")
    reached = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [1, 1, 1, 0]]
    launching = [Launching(case, (), np.array(row, bool)) for row in reached]
    places = {id(one): place for place, one in enumerate(launching)}
    assert [places[id(one)] for one in chosen(launching, 2)] == [0, 1, 3]
    assert [places[id(one)] for one in chosen(launching, 3)] == [0, 1, 2, 3]


def test_a_total_of_the_lists_that_is_too_large_is_detected() -> None:
    """It costs memory alone: every list, and every picture, stays as it is."""
    examined, found = examination(case_of("31 Gaussians, 7 x 9, one channel"), "binning.count")
    atomics = [k for k, line in enumerate(examined.text.split("\n"), 1) if "global_atomic_add" in line]
    assert len(atomics) == 2
    for atomic in atomics:  # which the one thread that adds is chosen for
        chooses = [m for m in found if m.before.startswith("s_and_saveexec") and m.line < atomic][-1]
        assert examined.examine(chooses).status in ("value", "error")


def test_a_lane_whose_low_half_is_lost_is_detected() -> None:
    """A sum in fp64 is then wrong by less than fp32's gate; the case of the sums alone sees each bit of the loss."""
    case = case_of("loss of 1025 programs")
    examined, found = examination(case, "photometric.total")
    exchanges = [m for m in found if m.rule.name == "cross-lane control"]
    outcomes = [examined.examine(m) for m in exchanges[:: max(len(exchanges) // 12, 1)]]
    assert {outcome.status for outcome in outcomes} <= {"value", "same"}
    assert sum(outcome.status == "value" for outcome in outcomes) > len(outcomes) / 2


def test_a_case_that_fails_by_itself_is_left_out() -> None:
    case = case_of("33 parameters")
    failing = Case("failing", case.kernels, lambda: [*case.gates(), GateResult("wrong", 1.0, 0.0)])
    assert [len(found) for found in launched([case, failing], GFX1100).values()] == [1]
