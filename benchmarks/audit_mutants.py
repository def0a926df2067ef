"""How many small changes of the audit's probes and tolerances do the tests notice?

usage: python benchmarks/audit_mutants.py [--part 1/4] [--files tolerance,verdict] [--jobs 2] [--again]

A mutant is one file with one comparison, sign, constant, `max` or `and` changed. Of the tests of the probes, the
tolerance, the verdict and the conditioning those run that execute the changed statement; the first that fails, or no
end within `--timeout` seconds, is the mutant's end. What became of each is kept in results/audit_mutants.json, and a
later run goes on from there; a file that changes loses its results. What survives is printed with its line, and may be
given a reason there: a later run keeps the reasons of the same changes, as long as they survive.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections import Counter
from typing import Any

import _harness
from _mutant_tests import ROOT, outcomes, survey
from _mutations import Mutant, mutants

AUDIT = ROOT / "src" / "lanewise" / "audit"
FIRST = ("tolerance.py", "verdict.py", "probes/measure.py", "conditioning.py")  # the numbers that decide
FILES = tuple(dict.fromkeys((*(AUDIT / name for name in FIRST), *sorted((AUDIT / "probes").glob("*.py")))))
TESTS = (
    "tests/audit/probes",
    "tests/audit/test_tolerance.py",
    "tests/audit/test_verdict.py",
    "tests/audit/test_conditioning.py",
)
NAME = "audit_mutants"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="1/1", help="i/n: every n-th mutant from the i-th on")
    parser.add_argument("--files", default="", help="only files of these names, without .py, with commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds a mutant")
    parser.add_argument("--longest", type=float, default=math.inf, help="only tests of at most so many seconds")
    parser.add_argument("--again", action="store_true", help="those too that survived before")
    options = parser.parse_args()
    found = [mutant for file in FILES for mutant in mutants(file)]
    stored = _stored()
    rows, reasons = known(stored, found), {(r["file"], r["change"]): r["why"] for r in stored if "why" in r}
    for mutant, outcome in _tried(chosen(found, rows, options), options):
        rows[mutant.key] = row(mutant, outcome, reasons)
        _harness.write(NAME, [rows[m.key] for m in found if m.key in rows])
    for kept in rows.values():
        if kept["outcome"] == "survived":
            print(f"{kept['file']}:{kept['line']}: {kept['change']}  ({kept.get('why', 'not explained')})")
    counts = Counter(kept["outcome"] for kept in rows.values())
    print(f"{len(rows)} of {len(found)} mutants:", ", ".join(f"{n} {outcome}" for outcome, n in counts.items()))


def known(stored: list[dict[str, Any]], found: list[Mutant]) -> dict[str, dict[str, Any]]:
    """The results of mutants that there still are, by their keys."""
    keys = {mutant.key for mutant in found}
    return {kept["key"]: kept for kept in stored if kept["key"] in keys}


def _stored() -> list[dict[str, Any]]:
    path = _harness.RESULTS / f"{NAME}.json"
    return json.loads(path.read_text())["rows"] if path.exists() else []


def chosen(found: list[Mutant], rows: dict[str, dict[str, Any]], options: argparse.Namespace) -> list[Mutant]:
    """The mutants to try: of this part and these files, and without a result so far."""
    first, step = map(int, options.part.split("/"))
    files = set(options.files.split(",")) - {""}
    return [
        mutant
        for mutant in found[first - 1 :: step]
        if (not files or mutant.file.stem in files)
        and (mutant.key not in rows or (options.again and rows[mutant.key]["outcome"] == "survived"))
    ]


def row(mutant: Mutant, outcome: str, reasons: dict[tuple[str, str], str]) -> dict[str, Any]:
    """What is kept of a mutant; the reason of a change only while it survives."""
    file = str(mutant.file.relative_to(ROOT))
    why = reasons.get((file, mutant.change)) if outcome == "survived" else None
    kept = {"file": file, "line": mutant.line, "change": mutant.change, "outcome": outcome}
    return {**kept, **({"why": why} if why else {}), "key": mutant.key}


def _tried(wanted: list[Mutant], options: argparse.Namespace) -> Any:
    """`outcomes`, with a line on what was done so far."""
    tests = [test for test in survey(FILES, TESTS) if test.seconds <= options.longest] if wanted else []
    start = time.monotonic()
    for number, (mutant, outcome) in enumerate(outcomes(wanted, tests, jobs=options.jobs, timeout=options.timeout), 1):
        each = (time.monotonic() - start) / number
        print(f"  {number} of {len(wanted)}, {each:.1f} s each: {outcome}  ", end="\r", file=sys.stderr, flush=True)
        yield mutant, outcome


if __name__ == "__main__":
    main()
