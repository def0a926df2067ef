"""The whole audit, of operators with planted faults and of healthy ones."""

import json
import os
import signal
import subprocess
import sys
from functools import partial

import audited_functions as audited
import pytest
import torch

from lanewise.audit import audit
from lanewise.audit.case import Case
from lanewise.audit.child import Ended
from lanewise.audit.isolate import Isolator
from lanewise.audit.runner import as_result, audit_specs, parse_budget
from lanewise.audit.spec import Input, Spec
from lanewise.errors import InputError

PAIR = (torch.randn(8, 16), torch.randn(4, 16))


def here(fn):
    """The same function where no other process can import it: forked, it starts at once."""

    def local(x, *w):
        return fn(x, *w)

    return local


@pytest.fixture(scope="module")
def lost_rows():
    return audit(audited.loses_rows, PAIR, budget="40 cases")


@pytest.mark.slow
def test_rows_that_are_lost_past_32_are_found_and_shrunk(lost_rows):
    assert not lost_rows.ok
    (finding,) = lost_rows.findings
    assert (finding.code, finding.argument) == ("LW103", "w")
    assert finding.shapes["w"] == [33, 1]
    assert finding.shapes["x"] == [1, 1]
    assert finding.evidence["region"][0] == (32, 33)
    assert "confirmed by" in finding.evidence["second_probe"]
    assert finding.miss_probability < 1e-3
    assert "the operator's own backward pass" in finding.cause


@pytest.mark.slow
def test_its_script_needs_only_torch_and_shows_the_fault(lost_rows, tmp_path):
    repro = lost_rows.findings[0].repro
    assert repro.verified
    script = repro.write(tmp_path)
    done = subprocess.run([sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "relative error" in done.stdout
    assert "lanewise" not in repro.source


@pytest.mark.slow
def test_an_element_that_should_be_zero_and_is_not_is_in_the_wrong_place():
    """As `trace` of torch 2.11, also in float64."""
    (finding,) = audit(audited.wraps_diagonal, (torch.randn(7, 3),), budget="40 cases").findings
    assert (finding.code, finding.shapes["x"]) == ("LW104", [3, 1])
    assert "right values in wrong places" in str(finding.cause)


@pytest.mark.slow
def test_its_json_is_of_the_schema(lost_rows):
    data = json.loads(lost_rows.to_json())
    assert data["schema"] == 1
    assert data["findings"][0]["code"] == "LW103"
    assert data["coverage"]["counts"]["failed"] >= 1
    assert data["environment"]["torch"] == torch.__version__


@pytest.mark.slow
def test_a_healthy_operator_has_no_findings_and_something_ran():
    report = audit(here(audited.healthy), PAIR, budget="60 cases")
    assert report.ok
    assert report.coverage.ran > 30
    assert report.coverage.counts["failed"] == 0


@pytest.mark.slow
def test_a_layout_fault_is_found_with_a_workaround_that_was_tried():
    report = audit(audited.takes_for_contiguous, (torch.randn(6, 5),), budget="16 cases")
    assert {finding.code for finding in report.findings} == {"LW301"}
    assert all(finding.setting["cotangent"] != "contiguous" for finding in report.findings)
    assert all("register_hook(lambda g: g.contiguous())" in str(finding.workaround) for finding in report.findings)
    assert any(finding.repro.verified for finding in report.findings)


@pytest.mark.slow
def test_a_crash_is_a_finding_and_not_the_end():
    report = audit(here(audited.crashes_past_16), (torch.randn(6, 5),), budget="20 cases")
    (finding,) = report.findings
    assert finding.code == "LW204"
    assert finding.shapes["x"] == [17, 1]
    assert "SIGSEGV" in finding.evidence["reason"]
    assert report.coverage.counts["passed"] > 0


def test_what_the_forward_refuses_is_skipped():
    report = audit(here(audited.refuses_others), PAIR, budget="24 cases")
    assert report.ok
    assert any("expected 8" in row.reason for row in report.coverage.rows if row.outcome == "skipped")


def test_when_no_probe_could_run_the_report_is_not_ok():
    report = audit(here(audited.refuses_everything), (torch.ones(3),), budget="2 cases")
    assert not report.ok
    assert not report.findings
    assert "not today" in next(iter(report.coverage.reasons()))


def unusable(shared, device):
    raise RuntimeError("CUDA error: initialization error")


@pytest.mark.parametrize("ends", ["raises", "dies"])
def test_a_device_that_is_lost_ends_the_audit_and_the_report_is_not_ok(monkeypatch, ends):
    """One case that says so, and the others are not tried; what the device did to a process is no finding then."""

    def lost(x):
        if x.shape[0] <= 5:
            return 2 * x
        if ends == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        raise RuntimeError("CUDA error: initialization error")

    monkeypatch.setattr("lanewise.audit.runner.Isolator", partial(Isolator, check=unusable))
    report = audit(lost, (torch.ones(5),), budget="40 cases")
    assert report.stopped is not None
    assert "cpu cannot be used any more" in report.stopped
    assert "initialization error" in report.stopped
    assert report.coverage.counts["passed"] > 0
    assert report.coverage.counts["inconclusive" if ends == "raises" else "crashed"] == 1
    assert not report.ok
    assert not report.findings


def test_a_case_that_loses_the_device_for_itself_alone_is_inconclusive_and_the_audit_goes_on():
    report = audit(here(audited.cannot_use_the_device_at_8), (torch.ones(5),), budget="40 cases")
    assert report.stopped is None
    assert any("the device cannot be used" in reason for reason in report.coverage.reasons())
    assert report.coverage.counts["inconclusive"] > 0
    assert report.ok


def test_a_closure_is_forked_and_the_report_says_so():
    factor = torch.tensor(3.0)
    report = audit(lambda x: factor * x, (torch.randn(4),), budget="2 cases")
    assert report.ok
    assert "forked from this process" in report.notes[0]


def test_a_case_that_needs_too_much_memory_is_named():
    spec = Spec("double", "2 * x", (Input("x", "N"),), {"N": 8}, linear=("x",), setup="# alone")
    report = audit_specs([spec], budget="40 cases", memory=0.25)
    skipped = [row for row in report.coverage.rows if "GiB of memory" in row.reason]
    assert skipped
    assert all(row.shapes["x"][0] > 2**24 for row in skipped)


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60), ("10m", 600), ("1.5h", 5400), ("90", 90), (2, 2), (0.5, 0.5)]
)
def test_budgets(text, seconds):
    assert parse_budget(text) == (seconds, None)


def test_a_budget_of_cases():
    assert parse_budget("200 cases") == (float("inf"), 200)


@pytest.mark.parametrize("text", ["", "soon", "10 years", "0s", "-3"])
def test_what_is_no_budget(text):
    with pytest.raises(InputError, match="budget: got"):
        parse_budget(text)


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="device: got 'tpu'"):
        audit(audited.healthy, PAIR, device="tpu")


def test_how_a_process_ends_decides_what_a_case_is():
    case = Case("f", ())
    assert as_result(Ended("hung", reason="no end after 30 s"), case).outcome == "inconclusive"
    assert as_result(Ended("crashed", reason="the process ended with SIGKILL"), case).outcome == "inconclusive"
    assert (
        as_result(Ended("crashed", reason="the process ended with exit code 1: KeyError"), case).outcome
        == "inconclusive"
    )
    assert as_result(Ended("crashed", reason="the process ended with SIGSEGV"), case).outcome == "crashed"


def test_operators_without_a_case_are_named():
    specs = [
        Spec(f"f{number}", "2 * x", (Input("x", "N"),), {"N": 8}, linear=("x",), setup="# alone")
        for number in range(20)
    ]
    report = audit_specs(specs, budget="3 cases")
    (note,) = report.notes
    assert "before 17 of 20 operators had a case" in note
    assert note.endswith("...")
