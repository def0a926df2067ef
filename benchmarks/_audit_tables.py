"""The rows of audit_power.json as the tables of docs/how-it-works/audit-probes.md.

usage: python benchmarks/_audit_tables.py
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections import defaultdict
from typing import Any

from _harness import RESULTS
from _tables import table
from scipy import stats

EDGES = (0, 1, 3, 10, 30, 100, math.inf)
Row = dict[str, Any]


def main() -> int:
    rows = json.loads((RESULTS / "audit_power.json").read_text())["rows"]
    parts: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        parts[row["part"]].append(row)
    for title, make, part in (
        ("faults by size", by_size, "faults"),
        ("faults of 30 floors and more that were missed", missed, "faults"),
        ("curve", curve, "curve"),
        ("clean", clean, "clean"),
        ("noise, in units of the dtype", noise, "noise"),
    ):
        print(f"\n{title}\n\n{table(make(parts[part]))}")
    print(f"\nothers\n\n{table(others(parts['others'], parts['faults']))}")
    return 0


def by_size(rows: list[Row]) -> list[Row]:
    """Planted faults found, by their size in rounding floors."""
    out = []
    for low, high in itertools.pairwise(EDGES):
        some = [r for r in rows if low <= _floors(r) < high or _floors(r) == high]
        runs = sum(r["runs"] for r in some)
        if runs:
            first, by_any = (sum(r[key] for r in some) for key in ("first", "any"))
            size = f"{low} to {high}" if high < math.inf else f"{low} and more"
            out.append({"floors": size, "runs": runs, "first probe": first / runs, "any probe": by_any / runs})
    return out


def missed(rows: list[Row]) -> list[Row]:
    """What was missed by the first probe although it is at least thirty floors large."""
    keys = ("fault", "operator", "dtype", "size", "size_in_floors", "runs", "first", "any")
    return [{k: r[k] for k in keys} for r in rows if _floors(r) >= 30 and r["first"] < r["runs"]]


def _floors(row: Row) -> float:
    return math.inf if row["size_in_floors"] is None else row["size_in_floors"]


def curve(rows: list[Row]) -> list[Row]:
    """Misses of random errors, observed and stated, of all operators together."""
    out = []
    for floors in sorted({r["floors"] for r in rows}):
        some = [r for r in rows if r["floors"] == floors]
        runs, misses, stated = (sum(r[key] for r in some) for key in ("runs", "missed", "stated"))
        low, high = stats.binom.interval(0.99, runs, stated / runs)
        out.append(
            {
                "floors": floors, "runs": runs, "missed": misses / runs, "stated": stated / runs,
                "99% interval of the stated": f"{low / runs:.3g} to {high / runs:.3g}",
            }
        )  # fmt: skip
    return out


def clean(rows: list[Row]) -> list[Row]:
    """Verdicts on healthy operators by probe and outcome."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        for key, count in row.items():
            if ": " in key:
                name, outcome = key.split(": ")
                counts[name][outcome] += count or 0
    outcomes = ("passed", "failed", "inconclusive")
    return [{"probe": name, **{o: found[o] for o in outcomes}} for name, found in counts.items()]


def noise(rows: list[Row]) -> list[Row]:
    """The error against float64, what rescaling says, and what is taken for it."""
    return [{key: row[key] for key in ("operator", "dtype", "error", "rescaling", "sigma")} for row in rows]


def others(rows: list[Row], audit: list[Row]) -> list[Row]:
    """How many operators and sizes each check finds each fault in; for "none", how many it calls wrong."""
    checks = sorted({key for row in rows for key in row if key.startswith(("gradcheck", "allclose"))})
    out = []
    for fault in dict.fromkeys(row["fault"] for row in rows):
        some = [row for row in rows if row["fault"] == fault]
        line: Row = {"fault": fault}
        for dtype in ("float32", "bfloat16", "float16"):
            ours = [r for r in audit if r["fault"] == fault and r["dtype"] == dtype]
            runs = sum(r["runs"] for r in ours)
            line[f"audit {dtype}"] = f"{sum(r['any'] for r in ours) / runs:.0%}" if runs else "-"
        for check in checks:
            found = [row[check] for row in some if row.get(check) is not None]
            line[check.replace("_", " ")] = f"{sum(found) / len(found):.0%}" if found else "-"
        out.append(line)
    return out


if __name__ == "__main__":
    sys.exit(main())
