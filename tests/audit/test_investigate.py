"""From a failed case to a finding, with cases that are examined by stand-ins."""

import math

import pytest

from lanewise.audit import investigate
from lanewise.audit.case import Case
from lanewise.audit.examine import Result
from lanewise.audit.investigate import Investigator
from lanewise.audit.spec import Input, Spec
from lanewise.audit.verdict import Verdict

SPEC = Spec("f", "2 * x", (Input("x", "B C"),), {"B": 8, "C": 4}, linear=("x",), dtypes=("float16",))
LARGE = Case("f", (("B", 2**29 + 1), ("C", 4)), dtype="float16")
FAILED = Verdict("truth", "x", "failed", 1.0, 1e-6, 3, 1.0, code="LW101")


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when a case is examined, and not otherwise."""

    class Clock:
        now = 0.0

    monkeypatch.setattr(investigate.time, "monotonic", lambda: Clock.now)
    monkeypatch.setattr(investigate, "_script", lambda *args: None)
    return Clock


def investigated(clock, least, *, limit):
    """The finding of an operator that fails from `least` elements on, where examining a case takes a second."""

    def one(spec, case, only):
        clock.now += 1.0
        wrong = math.prod(n for _, n in case.sizes) >= least
        return Result(case, "failed" if wrong else "passed", "", (FAILED,) if wrong else ())

    investigator = Investigator(one, lambda *args: None, lambda *args: (), limit)
    return investigator.look_into(SPEC, one(SPEC, LARGE, None))[1]


def test_a_limit_of_size_is_named_where_smaller_cases_are_right(clock):
    finding = investigated(clock, 2**31 + 1, limit=1000.0)
    assert (finding.code, finding.shapes) == ("LW201", {"x": [2**29 + 1, 4]})


@pytest.mark.parametrize(("least", "code"), [(2**31 + 1, "LW201"), (1000, "LW101")])
def test_where_there_was_no_time_to_shrink_one_case_within_the_limit_decides(clock, least, code):
    finding = investigated(clock, least, limit=4.5)
    assert finding.shapes["x"][0] == 2**29 + 1
    assert finding.code == code


def test_what_shrinks_below_every_limit_is_of_none(clock):
    finding = investigated(clock, 1000, limit=1000.0)
    assert (finding.code, math.prod(finding.shapes["x"])) == ("LW101", 1000)


def test_a_crash_is_blamed_on_the_argument_whose_gradient_alone_ends_the_process(clock):
    asked = []

    def one(spec, case, only):
        asked.append(only)
        return Result(case, "crashed" if only in (None, ("w", "truth")) else "passed", "SIGSEGV")

    spec = Spec("f", "x * w", (Input("x", "B"), Input("w", "B")), {"B": 1}, linear=("x", "w"))
    case = Case("f", (("B", 1),))
    investigator = Investigator(one, lambda *args: None, lambda *args: (), 1000.0)
    _, finding = investigator.look_into(spec, one(spec, case, None))
    assert (finding.code, finding.argument) == ("LW204", "w")
    assert ("x", "truth") in asked
    _, again = investigator.look_into(spec, one(spec, case, None))
    assert again is None
