"""The report as JUnit XML: a test case an operator and setting."""

from __future__ import annotations

from xml.etree import ElementTree

from lanewise.audit.report import Report
from lanewise.audit.report.console import finding_lines


def junit(report: Report) -> str:
    """One `testcase` for every case of the coverage and one for every finding.

    Only findings are failures; cases that crashed or failed belong to one or to a baseline. What was inconclusive or
    skipped is `skipped`, with its reason. What stopped the audit is an error.
    """
    rows = report.coverage.rows
    suite = ElementTree.Element("testsuite", name="lanewise audit", time=f"{report.seconds:.3f}")
    for row in rows:
        setting = " ".join(f"{k}={v}" for k, v in row.setting.items())
        shapes = " ".join(f"{name}{shape}" for name, shape in row.shapes.items())
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=f"audit.{row.operator}",
            name=_clean(f"{row.dtype} {shapes} {setting}"),
            time=f"{row.seconds:.3f}",
        )
        if row.outcome in ("inconclusive", "skipped"):
            ElementTree.SubElement(case, "skipped", message=_clean(f"{row.outcome}: {row.reason}"))
    for finding in report.findings:
        case = ElementTree.SubElement(
            suite, "testcase", classname=f"audit.{finding.operator}", name=f"finding {finding.code} {finding.argument}"
        )
        failure = ElementTree.SubElement(case, "failure", type=finding.code, message=_clean(finding.title))
        failure.text = _clean("\n".join(finding_lines(finding)))
    if report.stopped:
        case = ElementTree.SubElement(suite, "testcase", classname="audit", name="the whole audit")
        ElementTree.SubElement(case, "error", message=_clean(report.stopped))
    stopped = int(report.stopped is not None)
    skipped = sum(row.outcome in ("inconclusive", "skipped") for row in rows)
    suite.set("tests", str(len(rows) + len(report.findings) + stopped))
    suite.set("failures", str(len(report.findings)))
    suite.set("errors", str(stopped))
    suite.set("skipped", str(skipped))
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _clean(text: str) -> str:
    """Without the characters that XML cannot hold."""
    return "".join(c for c in text if c in "\t\n\r" or c >= " ")
