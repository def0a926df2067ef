"""From a failed case to a finding: is it there again, how small can it be, who else sees it, what helps."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lanewise.audit import compose, suspect
from lanewise.audit import repro as scripts
from lanewise.audit.case import Case
from lanewise.audit.examine import EAGER, Result
from lanewise.audit.finding import Finding
from lanewise.audit.shrink import shrink
from lanewise.audit.spec import Spec
from lanewise.audit.verdict import Verdict

Explained = Callable[[Spec, Case, str], float | None]
Kernels = Callable[[Spec, Case], tuple[str, ...]]
One = Callable[[Spec, Case, tuple[str, str] | None], Result]

AGAIN = 4  # fresh seeds with which a failure is tried again
HEADROOM = 32.0  # times what conditioning does to a gradient that a residual must be, to be a fault
RELATIVE = 0.01  # the error whose probability to be missed a finding states


class Investigator:
    """Looks into failures, and knows which of them it has seen before.

    Args:
        one: examines a case in a process of its own.
        explained: what a function's conditioning explains (`examine.explained`), in a process of its own.
        kernels: what its backward pass runs (`suspect.kernels_of`), in a process of its own.
        limit: seconds for one failure.

    Attributes:
        findings: what was found so far.
    """

    def __init__(self, one: One, explained: Explained, kernels: Kernels, limit: float) -> None:
        self._one, self._explained_by, self._kernels, self._limit = one, explained, kernels, limit
        self._known: list[tuple[Spec, Case, str]] = []
        self.findings: list[Finding] = []

    def look_into(self, spec: Spec, result: Result) -> tuple[Result, Finding | None]:
        """The result, "inconclusive" when it failed but never again, and the finding when it is a new one."""
        crashed = result.outcome == "crashed"
        argument, probe, verdict = _worst(result)
        if self._explained(spec, result.case, argument):
            return result, None
        only = None if crashed else (argument, probe)
        deadline = time.monotonic() + self._limit
        tried: dict[tuple[str, Case], Result] = {}

        def outcome(spec: Spec, case: Case) -> Result | None:
            key = (spec.source, case)
            if key not in tried:
                if time.monotonic() > deadline:
                    return None
                tried[key] = self._one(spec, case, only)
            return tried[key]

        def fails(spec: Spec, case: Case) -> bool:
            seen = outcome(spec, case)
            return seen is not None and seen.outcome == result.outcome and self._doubt(spec, seen) is None

        if (doubt := self._doubt(spec, result)) is not None:
            return replace(result, outcome="inconclusive", reason=doubt), None
        seeds = [replace(result.case, seed=result.case.seed + 1 + i) for i in range(AGAIN)]
        again = sum(fails(spec, case) for case in seeds)
        if not again:
            reason = f"failed once, and not again with {AGAIN} other seeds ({result.reason})"
            return replace(result, outcome="inconclusive", reason=reason), None
        first = next(case for case in seeds if fails(spec, case))
        spec, case = shrink(spec, first, fails)
        if any(self._same(spec, case, argument, known) for known in self._known):
            return result, None
        small = outcome(spec, case) or tried[(spec.source, first)] if (spec.source, first) in tried else result
        if not crashed and small.failures:
            verdict = small.failures[0]
        code = "LW204" if verdict is None else suspect.code_of(spec, case, verdict)
        if verdict is not None and time.monotonic() > deadline:  # whether smaller ones fail was not found out
            within = suspect.within_limit(spec, case, code)
            if within is not None and self._one(spec, within, only).outcome == "failed":
                code = verdict.code or "LW104"
        blamed = self._ending(spec, case) if crashed else argument
        finding = self._finding(spec, case, blamed, probe, verdict, small, code, f"{again} of {AGAIN} other seeds")
        self._known.append((spec, case, argument))
        self.findings.append(finding)
        return result, finding

    def _finding(
        self,
        spec: Spec,
        case: Case,
        argument: str,
        probe: str,
        verdict: Verdict | None,
        small: Result,
        code: str,
        again: str,
    ) -> Finding:
        evidence = _evidence(verdict, small) | {"again": again}
        if verdict is not None:
            evidence["second_probe"] = self._second(spec, case, argument, probe)
        helps = [w.text for w in suspect.workarounds(spec, case) if self._helps(spec, w.case, argument)]
        finding = Finding(
            code=code,
            operator=spec.name,
            argument=argument,
            shapes=case.shapes(spec),
            dtype=case.dtype,
            setting=case.setting,
            evidence=evidence,
            miss_probability=None if verdict is None else _miss(verdict),
            cause=suspect.cause(spec, case, code, () if verdict is None else self._kernels(spec, case)),
            workaround="; or ".join(helps) or None,
        )
        return replace(finding, repro=_script(spec, case, argument, probe, finding.title))

    def _ending(self, spec: Spec, case: Case) -> str:
        """The argument whose gradient alone ends the process; "-" where no single one does."""
        crash = (a for a in spec.differentiable if self._one(spec, case, (a, "truth")).outcome == "crashed")
        return next(crash, "-")

    def _helps(self, spec: Spec, case: Case, argument: str) -> bool:
        """Whether probes of the argument pass there, and none fails."""
        result = self._one(spec, case, None)
        mine = [v for v in result.verdicts if v.argument == argument] or result.verdicts  # of an output, or of a crash
        outcomes = {verdict.outcome for verdict in mine}
        return result.outcome != "crashed" and "failed" not in outcomes and "passed" in outcomes

    def _doubt(self, spec: Spec, result: Result) -> str | None:
        """Why a failure may be no fault; None when it is one.

        Derivatives by differences have errors of their own, which the gradient in float64 has not. Rounding of sums of
        products is known. What exp, tanh or a division make of it depends on the values: there, a
        finding must be far more than what rounding every intermediate value does.
        """
        _, _, verdict = _worst(result)
        if verdict is None or verdict.probe in ("exact", EAGER) or set(spec.differentiable) <= set(spec.linear):
            return None
        if verdict.probe == "jvp" and self._one(spec, result.case, (verdict.argument, "truth")).outcome == "passed":
            return f"jvp of {verdict.argument}: {verdict.reason}, but the whole gradient is that of float64"
        moved = self._explained_by(spec, result.case, verdict.argument)
        if moved is None:
            moved = scripts.PLAIN[result.case.dtype] * verdict.gradient_norm / HEADROOM
        if not verdict.residual <= HEADROOM * moved:  # NaN too
            return None
        return (
            f"residual {verdict.residual:.2g}, and rounding what it is computed from moves the gradient by {moved:.2g}"
        )

    def _second(self, spec: Spec, case: Case, argument: str, probe: str) -> str:
        """What the other probes say about the smallest case."""
        others = [
            v for v in self._one(spec, case, None).verdicts if v.argument == argument and v.probe != probe and v.probes
        ]
        failed = [v.probe for v in others if v.outcome == "failed"]
        if failed:
            return f"confirmed by {', '.join(failed)}"
        passed = [v.probe for v in others if v.outcome == "passed"]
        return f"not confirmed: {', '.join(passed)} passed" if passed else "no other probe is applicable"

    def _explained(self, spec: Spec, case: Case, argument: str) -> bool:
        """Whether the case has all that a known finding needs, so that it would shrink to the same."""
        return any(
            (known.name == spec.name or _part_of(known, spec)) and to == argument and _contains(case, small)
            for known, small, to in self._known
        )

    @staticmethod
    def _same(spec: Spec, case: Case, argument: str, known: tuple[Spec, Case, str]) -> bool:
        """Whether another failure has shrunk to the same: chains have names of their own, but the same statements."""
        other, small, to = known
        same = spec.name == other.name or _part_of(other, spec)
        return same and to == argument and _contains(case, small)


def _part_of(known: Spec, spec: Spec) -> bool:
    """Whether a program has all the statements that a known one has been shrunk to."""
    if not (known.chained and spec.chained):
        return False
    mine, needed = (Counter(map(compose.pattern, compose.statements(s)[0])) for s in (spec, known))
    return needed <= mine


def _contains(case: Case, small: Case) -> bool:
    """Whether what is unusual about `small` is in `case` too, and no size is smaller."""
    mine, needed = case.setting, small.setting
    unusual = all(mine.get(name) == value for name, value in needed.items())
    sizes = dict(case.sizes)
    return unusual and all(sizes.get(name, 0) >= n for name, n in small.sizes) and case.dtype == small.dtype


def _worst(result: Result) -> tuple[str, str, Verdict | None]:
    """(argument, probe, verdict) of the failure that is furthest from its tolerance."""
    if result.outcome == "crashed":
        return "-", scripts.CRASH, None

    def excess(verdict: Verdict) -> float:
        ratio = verdict.residual / verdict.tolerance if verdict.tolerance > 0 else float("inf")
        return ratio if ratio == ratio else float("inf")

    worst = max(result.failures, key=excess)
    return worst.argument, worst.probe, worst


def _evidence(verdict: Verdict | None, small: Result) -> dict[str, Any]:
    if verdict is None:
        return {"reason": small.reason}
    seen = {
        "probe": verdict.probe,
        "residual": verdict.residual,
        "tolerance": verdict.tolerance,
        "probes": verdict.probes,
        "gradient_norm": verdict.gradient_norm,
        "reason": verdict.reason,
        "region": verdict.region,
    }
    context: Mapping[str, Any] = vars(verdict.context) if verdict.context is not None else {}
    return seen | {"context": {name: str(value) for name, value in context.items()}}


def _miss(verdict: Verdict) -> float:
    """The probability that the same probes, on a gradient with an error of `RELATIVE`, see nothing."""
    return replace(verdict, outcome="passed").miss_probability(RELATIVE)


def _script(spec: Spec, case: Case, argument: str, probe: str, title: str) -> scripts.Repro | None:
    """The first script that shows it when it is run; else the most telling, which says that it does not."""
    try:
        candidates = scripts.make(spec, case, argument, probe, title)
    except Exception:  # a user's object that cannot be written to a file
        return None
    first = None
    for candidate in candidates:
        verified = candidate.verify()
        if verified.verified:
            return verified
        first = first or verified
    return first
