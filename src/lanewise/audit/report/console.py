"""The report for a terminal, in a linter's style."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from lanewise.audit.finding import Finding
from lanewise.audit.report import OUTCOMES, Report, Row

REASONS_SHOWN = 8
LINES_SHOWN = 40


def finding_lines(finding: Finding, script: str | None = None) -> Iterator[str]:
    """A finding: the fact, where, the evidence, the suspected cause, what helps.

    Args:
        finding: to be shown.
        script: where its script was written.
    """
    shapes = ", ".join(f"{name} {shape}" for name, shape in finding.shapes.items())
    setting = ", ".join(f"{name}={value}" for name, value in finding.setting.items())
    yield f"{finding.code} {finding.title}"
    yield f"  --> argument {finding.argument}; {shapes}; {finding.dtype}; {setting}"
    evidence = finding.evidence
    if "probe" in evidence:
        yield f"  probe {evidence['probe']}: {evidence['reason']}; {evidence['second_probe']}"
        if evidence["region"]:
            yield f"  wrong region: {region(evidence['region'])}"
    else:
        yield f"  {evidence['reason']}"
    yield f"  seen again with {evidence['again']}"
    yield f"  cause: {finding.cause}"
    if finding.miss_probability is not None:
        yield f"  miss: these probes overlook an error of 1% with probability {finding.miss_probability:.2g} at most"
    yield f"  help: {finding.workaround}" if finding.workaround else "  help: none of the workarounds tried helps"
    if finding.repro is not None:
        said = {True: "run, it shows the fault", False: "run, it does not show the fault", None: "not run"}
        yield f"  repro: {script or 'in the JSON'} ({said[finding.repro.verified]})"


def region(ranges: object) -> str:
    """[0:32, 5:6] for index ranges a dimension."""
    assert isinstance(ranges, (tuple, list))
    return "[" + ", ".join(f"{start}:{stop}" for start, stop in ranges) + "]"


def table(report: Report) -> list[list[object]]:
    """A line an operator: name, cases by outcome, and in half of those that passed, errors of 1% are missed with a
    probability of at most this. Of many operators, those that did nothing but pass share a line."""
    groups = report.coverage.by_operator()
    if len(groups) > LINES_SHOWN:
        healthy = [name for name, mine in groups.items() if _plain(mine)]
        together = [row for name in healthy for row in groups.pop(name)]
        groups[f"{len(healthy)} other operators"] = together
    rows: list[list[object]] = []
    for operator, mine in groups.items():
        missed = [row.miss_probability for row in mine if row.miss_probability is not None]
        counts = [sum(row.outcome == outcome for row in mine) for outcome in OUTCOMES]
        rows.append([operator, *counts, median(missed) if missed else "-"])
    return rows


def _plain(rows: Sequence[Row]) -> bool:
    """Whether nothing failed and something passed."""
    outcomes = {row.outcome for row in rows}
    return "passed" in outcomes and not outcomes & {"failed", "crashed"}


def reasons(report: Report) -> list[str]:
    """Why cases were inconclusive or skipped."""
    found = list(report.coverage.reasons().items())
    shown = [f"{reason} ({n})" for reason, n in found[:REASONS_SHOWN]]
    return shown + ([f"and {len(found) - REASONS_SHOWN} other reasons"] if len(found) > REASONS_SHOWN else [])


def sentence(report: Report) -> str:
    """The verdict in one sentence."""
    stopped = f"Stopped: {report.stopped.rstrip('.')}. " if report.stopped else ""
    if not report.coverage.ran:
        return f"{stopped}Nothing could be told: {report.coverage}."
    count = len(report.findings)
    head = f"{count} finding{'s' * (count != 1)}" if count else "No findings"
    known = f", {len(report.known)} not counted (baseline, --select, --ignore)" if report.known else ""
    return f"{stopped}{head}{known}: {report.coverage}."


def text(report: Report) -> str:
    """All of it as plain text."""
    blocks = ["\n".join(finding_lines(finding)) for finding in report.findings]
    return "\n\n".join((*blocks, sentence(report)))
