"""What becomes of mutants: detected, missed, unreached; the incident's, each detected or explained."""

from __future__ import annotations

import dataclasses
import runpy
from collections.abc import Sequence
from pathlib import Path

import pytest

from lanewise.isa import Program
from lanewise.isa.examine import Examination
from lanewise.isa.mutate import NOTHING, mutants, sample
from lanewise.prove.mutation import OnSpec

WAVEFRONT = Path(__file__).parents[1] / "incidents" / "wavefront"


def assembly(build: str, arch: str) -> str:
    return (WAVEFRONT / f"{build}.{arch}.s").read_text()


def cases() -> list[dict]:
    return list(runpy.run_path(str(WAVEFRONT / "spec.py"))["cases"]())[1:]


def test_a_kernel_that_is_wrong_is_not_mutated() -> None:
    with pytest.raises(ValueError, match="wrong before it is mutated"):
        Examination(assembly("faulty", "gfx1151"), OnSpec(cases()))


class Lenient(OnSpec):
    def passes(self, program: Program, order: str, limit: int, cases: Sequence[int]) -> bool:
        return True


def test_what_a_lenient_check_misses_is_called_missed() -> None:
    text = assembly("fixed", "gfx942")
    dropped = next(m for m in mutants(text) if m.rule.name == "atomic" and m.after == NOTHING)
    assert Examination(text, Lenient(cases()), orders=("lockstep",)).examine(dropped).status == "missed"
    assert Examination(text, OnSpec(cases()), orders=("lockstep",)).examine(dropped).status == "value"


def test_a_mutant_that_does_not_end_is_detected() -> None:
    text = assembly("fixed", "gfx942")
    examination = Examination(text, OnSpec(cases()), orders=("lockstep",))
    stuck = next(m for m in mutants(text) if m.rule.name == "sum" and m.before.startswith("s_add_i32 s6, s6, 1"))
    forever = dataclasses.replace(stuck, after="s_add_i32 s6, s6, 0")
    outcome = examination.examine(forever)
    assert (outcome.status, outcome.detail.split(":")[0]) == ("error", "StepLimitError")


# Mutants of the fixed builds that change no output, by line: the reason that is found, and what one finds by reading.
ALONE = "one lane is on, the leader: there is no lane below it to count"
EQUIVALENT = {
    "gfx942": {
        44: ("another way", "lanes that hold another label stay on, but only the leader adds"),
        167: ("same effect", "the sum over lanes that are on begins with -0, and only the leader is on"),
        170: ("same effect", ALONE),
        171: ("same effect", ALONE),
        173: ("same effect", "of the one lane that is on the first is chosen: itself"),
    },
    "gfx1151": {
        50: ("another way", "lanes that hold another label stay on, but only the leader adds"),
        336: ("same effect", "a lane's number is taken modulo 32"),
        347: ("same effect", ALONE),
        351: ("changes nothing", "of the one lane that is on the first is chosen: itself"),
    },
}


@pytest.mark.parametrize("arch", EQUIVALENT)
def test_every_mutant_of_the_incident_is_detected_or_explained(arch: str) -> None:
    text = assembly("fixed", arch)
    examination = Examination(text, OnSpec(cases()), orders=("lockstep", "reverse"))
    drawn = sample(mutants(text), each=4)
    for mutant in mutants(text):
        if mutant.line in EQUIVALENT[arch] and mutant not in drawn:
            drawn.append(mutant)
    silent = [outcome for outcome in map(examination.examine, drawn) if outcome.status not in ("value", "error")]
    assert {outcome.status for outcome in silent} == {"same"}
    reasons = {line: reason for line, (reason, _) in EQUIVALENT[arch].items()}
    assert {outcome.mutant.line: outcome.reason for outcome in silent} == reasons
