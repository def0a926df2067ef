"""The report as SARIF 2.1.0, which code hosts show beside the source."""

from __future__ import annotations

import json
from typing import Any

from lanewise import __version__
from lanewise.audit.finding import CODES, Finding
from lanewise.audit.report import Report
from lanewise.audit.report.console import finding_lines

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(report: Report) -> str:
    """One `result` a finding, one `rule` a code that was found."""
    codes = sorted({finding.code for finding in report.findings})
    run = {
        "tool": {
            "driver": {
                "name": "lanewise audit",
                "version": __version__,
                "rules": [
                    {
                        "id": code,
                        "shortDescription": {"text": CODES[code].title},
                        "fullDescription": {"text": CODES[code].explanation},
                    }
                    for code in codes
                ],
            }
        },
        "invocations": [_invocation(report)],
        "results": [_result(finding, codes.index(finding.code)) for finding in report.findings],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _invocation(report: Report) -> dict[str, Any]:
    stopped = [{"level": "error", "message": {"text": report.stopped}}] if report.stopped else []
    return {"executionSuccessful": not stopped, "toolExecutionNotifications": stopped}


def _result(finding: Finding, rule: int) -> dict[str, Any]:
    logical = {"fullyQualifiedName": f"{finding.operator}.{finding.argument}", "kind": "function"}
    return {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": "error",
        "message": {"text": "\n".join(finding_lines(finding))},
        "locations": [{"logicalLocations": [logical]}],
        "partialFingerprints": {"lanewise/v1": finding.fingerprint},
    }
