"""What an audit says: findings, what was covered, and its views for people and machines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lanewise.audit.call import OUTPUT
from lanewise.audit.examine import Result
from lanewise.audit.finding import CODES, Finding
from lanewise.audit.spec import Spec
from lanewise.errors import InputError
from lanewise.io.json_lines import plain

SCHEMA = 1  # of the JSON; it grows when a field changes its meaning or goes, not when one is added
OUTCOMES = ("passed", "failed", "crashed", "inconclusive", "skipped")


@dataclass(frozen=True)
class Row:
    """One case of the coverage.

    Attributes:
        operator: name.
        outcome: one of `OUTCOMES`.
        reason: why nothing was passed or failed.
        shapes: of the inputs.
        dtype: of the inputs.
        setting: what else was not as usual.
        probes: (argument, probe, outcome, reason) of everything that was tried.
        miss_probability: of an error of 1% of the gradient of the argument that was probed worst; None when nothing
            passed.
        seconds: how long it took.
    """

    operator: str
    outcome: str
    reason: str
    shapes: Mapping[str, list[int]]
    dtype: str
    setting: Mapping[str, Any]
    probes: tuple[tuple[str, str, str, str], ...]
    miss_probability: float | None
    seconds: float


@dataclass
class Coverage:
    """What was tried, and what came of it. What did not run never counts as passed."""

    rows: list[Row] = field(default_factory=list)

    def add(self, result: Result, spec: Spec) -> None:
        """Note one case."""
        self.rows.append(
            Row(
                operator="chains of operators" if spec.chained else spec.name,
                outcome=result.outcome,
                reason=result.reason,
                shapes=result.case.shapes(spec),
                dtype=result.case.dtype,
                setting=result.case.setting | ({"source": spec.source} if spec.chained else {}),
                probes=tuple((v.argument, v.probe, v.outcome, v.reason) for v in result.verdicts),
                miss_probability=_missed(result),
                seconds=result.seconds,
            )
        )

    @property
    def counts(self) -> dict[str, int]:
        """Cases by outcome."""
        found = Counter(row.outcome for row in self.rows)
        return {outcome: found[outcome] for outcome in OUTCOMES}

    @property
    def ran(self) -> int:
        """Cases in which a probe could tell."""
        counts = self.counts
        return counts["passed"] + counts["failed"] + counts["crashed"]

    def by_operator(self) -> dict[str, list[Row]]:
        """The rows of each operator."""
        groups: dict[str, list[Row]] = {}
        for row in self.rows:
            groups.setdefault(row.operator, []).append(row)
        return groups

    def reasons(self) -> dict[str, int]:
        """Why cases were inconclusive or skipped, the most frequent first."""
        return dict(
            Counter(
                f"{r.outcome}: {r.reason}" for r in self.rows if r.reason and r.outcome not in ("failed", "crashed")
            ).most_common()
        )

    def __str__(self) -> str:
        return ", ".join(f"{n} {outcome}" for outcome, n in self.counts.items())


@dataclass
class Report:
    """The result of an audit.

    Attributes:
        findings: what is wrong, shrunk and explained.
        coverage: everything that was tried.
        environment: versions, device, flags.
        notes: what a reader should know about this run.
        seed: of everything that was random.
        budget: what it could take.
        seconds: that it took.
        known: findings that a baseline has too, and those of codes that were not asked for.
        stopped: why the audit ended before its budget did; None when it did not.
    """

    findings: list[Finding]
    coverage: Coverage
    environment: dict[str, Any]
    notes: list[str]
    seed: int
    budget: str
    seconds: float
    known: list[Finding] = field(default_factory=list)
    stopped: str | None = None

    @property
    def ok(self) -> bool:
        """Whether a probe ran, there are no findings, and nothing stopped the audit."""
        return self.coverage.ran > 0 and not self.findings and self.stopped is None

    def to_dict(self) -> dict[str, Any]:
        """Everything, in the versioned schema of the JSON."""
        return {
            "schema": SCHEMA,
            "ok": self.ok,
            "findings": [finding_facts(f) for f in self.findings],
            "known": [finding_facts(f) for f in self.known],
            "coverage": {"counts": self.coverage.counts, "cases": [asdict(row) for row in self.coverage.rows]},
            "environment": self.environment,
            "notes": self.notes,
            "stopped": self.stopped,
            "seed": self.seed,
            "budget": self.budget,
            "seconds": round(self.seconds, 3),
        }

    def to_json(self) -> str:
        """Everything as JSON: `schema`, `ok`, `findings`, `coverage`, `environment`, ... NaN and infinity are null."""
        return json.dumps(plain(self.to_dict()), indent=2, allow_nan=False)


def narrowing(
    select: Iterable[str] = (), ignore: Iterable[str] = (), baseline: Path | None = None
) -> Callable[[Report], Report]:
    """A function from a report to the same one in which only some findings count.

    Args:
        select: codes or their beginnings ("LW1") that count; all when empty.
        ignore: codes or their beginnings that do not.
        baseline: JSON of an earlier report, whose findings do not.

    Raises:
        InputError: a code that begins none, or a file that is no report.
    """
    chosen, ignored, old = _prefixes("--select", select), _prefixes("--ignore", ignore), _fingerprints(baseline)

    def counts(finding: Finding) -> bool:
        wanted = not chosen or finding.code.startswith(chosen)
        return wanted and not (ignored and finding.code.startswith(ignored)) and finding.fingerprint not in old

    def narrow(report: Report) -> Report:
        everything = report.findings + report.known
        return replace(
            report,
            findings=[finding for finding in everything if counts(finding)],
            known=[finding for finding in everything if not counts(finding)],
        )

    return narrow


def finding_facts(finding: Finding) -> dict[str, Any]:
    """A finding as JSON has it."""
    script = finding.repro
    return {
        **{k: getattr(finding, k) for k in ("code", "title", "operator", "argument", "shapes", "dtype", "setting")},
        **{k: getattr(finding, k) for k in ("evidence", "miss_probability", "cause", "workaround", "fingerprint")},
        "repro": None if script is None else script.source,
        "repro_verified": None if script is None else script.verified,
    }


def _missed(result: Result) -> float | None:
    """The worst argument's, each by its best probe."""
    best: dict[str, float] = {}
    for verdict in result.verdicts:
        if verdict.outcome == "passed" and verdict.argument != OUTPUT:
            best[verdict.argument] = min(best.get(verdict.argument, 1.0), verdict.miss_probability(0.01))
    return max(best.values(), default=None)


def _prefixes(option: str, codes: Iterable[str]) -> tuple[str, ...]:
    found = tuple(code.upper() for code in codes)
    for code in found:
        if not any(known.startswith(code) for known in CODES):
            raise InputError(option, got=repr(code), expected="codes such as LW103, or their beginnings such as LW1")
    return found


def _fingerprints(baseline: Path | None) -> set[str]:
    if baseline is None:
        return set()
    try:
        data = json.loads(baseline.read_text())
        return {finding["fingerprint"] for finding in data["findings"] + data["known"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        expected = "the JSON of an earlier report (--json)"
        raise InputError("--baseline", got=baseline, expected=expected, why=str(error)) from error
