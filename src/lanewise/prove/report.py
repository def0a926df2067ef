"""Rows for people: the verdict, what is not covered, and a page of HTML."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Sequence

from lanewise.prove.rows import Row

# What comes first is what a reader looks for first.
COLUMNS = (
    *("kernel", "config", "arch", "family", "wave", "compiled", "executed", "max_rel_err", "limit", "vgprs", "agprs"),
    *(
        "sgprs",
        "lds",
        "spills",
        "instructions",
        "cas_loops",
        "warps",
        "coverage",
        "reassembled",
        "compile_seconds",
        "run_seconds",
        "orders",
        "ok",
        "note",
    ),
)


def verdict(rows: Sequence[Row], version: str) -> str:
    """One sentence: what held, with which compiler, and where. "Executed" always means on an emulator."""
    executed = [row for row in rows if row.executed]
    failed = [row for row in rows if not row.ok]
    kernels = len({row.kernel for row in rows})
    where = ", ".join(dict.fromkeys(row.arch for row in executed)) or "nowhere"
    head = f"{len(failed)} of {len(rows)} rows FAILED" if failed else f"{len(rows)} rows hold"
    return f"{head}: {kernels} kernels, {version}, {len(executed)} rows executed on an emulator ({where})."


def not_covered(rows: Iterable[Row]) -> list[str]:
    """What this run says nothing about, one line a reason."""
    reasons = Counter((row.arch, row.note) for row in rows if not row.executed and row.ok)
    return [f"{arch}: {note} ({n} rows)" for (arch, note), n in sorted(reasons.items())]


def by_target(rows: Iterable[Row]) -> list[list[object]]:
    """A line a target: name, family, wave, rows compiled, rows executed, worst share of the limit, spilling rows,
    compare-and-swap rows, rows that failed."""
    targets: dict[str, list[Row]] = {}
    for row in rows:
        targets.setdefault(row.arch, []).append(row)
    return [
        [
            arch,
            mine[0].family,
            mine[0].wave,
            sum(row.compiled for row in mine),
            sum(row.executed for row in mine),
            max(
                (row.max_rel_err / row.limit for row in mine if row.max_rel_err is not None and row.limit), default=None
            ),
            sum(bool(row.spills) for row in mine),
            sum(bool(row.cas_loops) for row in mine),
            sum(not row.ok for row in mine),
        ]
        for arch, mine in targets.items()
    ]


def page(rows: Sequence[Row], title: str) -> str:
    """All rows as one HTML page that needs nothing else."""
    head = "".join(f"<th>{name.replace('_', ' ')}" for name in COLUMNS)
    body = "\n".join(
        f"<tr class={'ok' if row.ok and row.executed else 'open' if row.ok else 'bad'}>"
        + "".join(f"<td>{_cell(getattr(row, name))}" for name in COLUMNS)
        for row in rows
    )
    return f"""<!doctype html>
<meta charset=utf-8>
<title>lanewise prove</title>
<style>
body {{ font: 14px sans-serif; margin: 2em }} table {{ border-collapse: collapse; font-size: 12px }}
td, th {{ border: 1px solid #ccc; padding: 2px 6px; text-align: left; vertical-align: top }}
th {{ position: sticky; top: 0; background: #eee }}
.ok {{ background: #eefbee }} .open {{ background: #f6f6f6 }} .bad {{ background: #fdd }}
</style>
<h1>lanewise prove</h1>
<p>{html.escape(title)}
<table><thead><tr>{head}</thead><tbody>
{body}
</tbody></table>
"""


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else html.escape(str(value))
