"""The views of a report: nothing is lost, and what is skipped never looks like a pass."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from lanewise.audit.case import Case
from lanewise.audit.examine import Result
from lanewise.audit.finding import Finding
from lanewise.audit.report import Coverage, Report, narrowing
from lanewise.audit.report.console import sentence, table, text
from lanewise.audit.report.html import page
from lanewise.audit.report.junit import junit
from lanewise.audit.report.sarif import sarif
from lanewise.audit.repro import Repro
from lanewise.audit.spec import Input, Spec
from lanewise.audit.verdict import Verdict
from lanewise.errors import InputError

SPEC = Spec("<linear>", "x", (Input("x", "B"),), {"B": 8})
CASE = Case("<linear>", (("B", 8),))
PASSED = Verdict("adjoint", "x", "passed", 1e-9, 1e-7, 3, 1.0)
FAILED = Verdict("adjoint", "x", "failed", float("nan"), 1e-7, 3, 1.0, reason="NaN & more")


def coverage():
    found = Coverage()
    found.add(Result(CASE, "passed", verdicts=(PASSED,), seconds=0.5), SPEC)
    found.add(Result(CASE, "failed", "adjoint of x: NaN & more", (FAILED,)), SPEC)
    found.add(Result(CASE, "inconclusive", "out of memory"), SPEC)
    found.add(Result(CASE, "skipped", "the forward refuses: <no>"), SPEC)
    return found


def finding(code="LW102"):
    evidence = {
        "probe": "adjoint",
        "residual": float("nan"),
        "reason": "NaN & more",
        "region": ((0, 3),),
        "second_probe": "confirmed by truth",
        "again": "4 of 4 other seeds",
    }
    repro = Repro("print(1 < 2)", verified=True)
    where = ({"x": [3]}, "float32", {"device": "cpu"})
    return Finding(code, "<linear>", "x", *where, evidence, 0.01, "a cause", "a help", repro)


def report(*findings, covered=None):
    return Report(list(findings), coverage() if covered is None else covered, {"torch": "2"}, ["a note"], 0, "60s", 1.5)


def test_ok_needs_a_probe_that_ran_and_no_finding():
    assert report().ok
    assert not report(finding()).ok
    nothing = Coverage()
    nothing.add(Result(CASE, "skipped", "no"), SPEC)
    assert not report(covered=nothing).ok
    assert "Nothing could be told" in sentence(report(covered=nothing))


def test_what_stopped_the_audit_is_no_success_in_any_view():
    stopped = replace(report(), stopped="cuda cannot be used any more: <gone>")
    assert not stopped.ok
    assert "Stopped: cuda cannot be used any more: <gone>. No findings: 1 passed" in sentence(stopped)
    assert json.loads(stopped.to_json())["stopped"] == stopped.stopped
    suite = ElementTree.fromstring(junit(stopped))
    assert (suite.get("tests"), suite.get("errors")) == ("5", "1")
    (error,) = suite.findall("testcase/error")
    assert error.get("message") == stopped.stopped
    (run,) = json.loads(sarif(stopped))["runs"]
    assert run["invocations"][0]["executionSuccessful"] is False
    assert "Stopped: cuda" in page(stopped)
    (run,) = json.loads(sarif(report()))["runs"]
    assert run["invocations"][0]["executionSuccessful"] is True


def test_counts_keep_what_did_not_run_apart():
    assert coverage().counts == {"passed": 1, "failed": 1, "crashed": 0, "inconclusive": 1, "skipped": 1}
    assert coverage().reasons() == {"inconclusive: out of memory": 1, "skipped: the forward refuses: <no>": 1}
    assert table(report())[0][:6] == ["<linear>", 1, 1, 0, 1, 1]


def test_json_is_strict_and_complete():
    data = json.loads(report(finding()).to_json(), parse_constant=lambda name: pytest.fail(name))
    assert data["schema"] == 1
    assert data["ok"] is False
    assert data["findings"][0]["evidence"]["residual"] is None
    assert data["findings"][0]["repro"] == "print(1 < 2)"
    assert [case["outcome"] for case in data["coverage"]["cases"]] == ["passed", "failed", "inconclusive", "skipped"]
    assert data["coverage"]["cases"][0]["miss_probability"] < 1e-3


def test_the_console_shows_evidence_cause_and_help():
    shown = text(report(finding()))
    for part in (
        "LW102 <linear>",
        "argument x; x [3]; float32",
        "[0:3]",
        "cause: a cause",
        "help: a help",
        "it shows the fault",
    ):
        assert part in shown


def test_junit_counts_agree():
    suite = ElementTree.fromstring(junit(report(finding())))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "1", "2")
    assert len(suite.findall("testcase/skipped")) == 2
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.get("type") == "LW102"
    assert "NaN & more" in (failure.text or "")


def test_sarif_names_rules_and_results():
    (run,) = json.loads(sarif(report(finding(), finding("LW301"))))["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["LW102", "LW301"]
    assert [(result["ruleId"], result["ruleIndex"]) for result in run["results"]] == [("LW102", 0), ("LW301", 1)]


def test_the_page_stands_alone_and_escapes():
    shown = page(report(finding()))
    assert "<linear>" not in shown
    assert "&lt;linear&gt;" in shown
    assert "http" not in shown
    assert shown.count("<i class=") == 4 + 5  # a square a case, and the legend


@pytest.mark.parametrize(
    ("select", "ignore", "left"),
    [((), (), ["LW102", "LW301"]), (["LW1"], (), ["LW102"]), ((), ["lw102"], ["LW301"]), (["LW301"], ["LW3"], [])],
)
def test_select_and_ignore(select, ignore, left):
    narrowed = narrowing(select, ignore)(report(finding(), finding("LW301")))
    assert [f.code for f in narrowed.findings] == left
    assert len(narrowed.findings) + len(narrowed.known) == 2


def test_a_baseline_hides_what_it_has(tmp_path):
    path = tmp_path / "baseline.json"
    path.write_text(report(finding()).to_json())
    narrowed = narrowing(baseline=path)(report(finding(), finding("LW301")))
    assert [f.code for f in narrowed.findings] == ["LW301"]


def test_what_is_no_code_and_no_report_is_refused(tmp_path):
    with pytest.raises(InputError, match="--select: got 'E501'"):
        narrowing(["E501"])
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(InputError, match="--baseline"):
        narrowing(baseline=tmp_path / "x.json")


def test_of_many_operators_the_healthy_ones_share_a_line():
    covered = Coverage()
    for number in range(60):
        spec = Spec(f"f{number}", "x", (Input("x", "B"),), {"B": 2})
        outcome = "failed" if number == 7 else "skipped" if number == 8 else "passed"
        covered.add(Result(Case(spec.name, (("B", 2),)), outcome), spec)
    assert [(row[0], *row[1:3]) for row in table(report(covered=covered))] == [
        ("f7", 0, 1),
        ("f8", 0, 0),
        ("58 other operators", 58, 0),
    ]
