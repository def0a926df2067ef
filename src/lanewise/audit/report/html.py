"""The report as one page that needs nothing else, with a map of what was covered."""

from __future__ import annotations

import html
from collections.abc import Iterator

from lanewise.audit.finding import CODES
from lanewise.audit.report import OUTCOMES, Report, Row
from lanewise.audit.report.console import finding_lines, sentence

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #1c1c28 }
table { border-collapse: collapse; font-size: 12px } td, th { border: 1px solid #ddd; padding: 3px 7px;
text-align: left; vertical-align: top } th { background: #f3f3f7 } pre { background: #f6f6fa; padding: 1em;
overflow-x: auto }
.map i { display: inline-block; width: 11px; height: 11px; margin: 1px; border-radius: 2px }
.passed { background: #3a9d5d } .failed { background: #c62828 } .crashed { background: #6a1b9a }
.inconclusive { background: #e0a800 } .skipped { background: #c4c4ce }
@media (prefers-color-scheme: dark) { body { background: #16161d; color: #e4e4ea } th, pre { background: #23232e }
td, th { border-color: #3a3a48 } }
"""


def page(report: Report) -> str:
    """The whole report as HTML."""
    return "\n".join(_parts(report)) + "\n"


def _parts(report: Report) -> Iterator[str]:
    yield "<!doctype html><html lang=en><meta charset=utf-8><title>lanewise audit</title>"
    yield f"<style>{_STYLE}</style><h1>lanewise audit</h1><p><b>{_(sentence(report))}</b>"
    machine = ", ".join(f"{k} {v}" for k, v in report.environment.items() if v is not None)
    yield f"<p>{_(machine)}; seed {report.seed}; {report.seconds:.0f} s, budget {_(report.budget)}"
    yield from (f"<p>{_(note)}" for note in report.notes)
    for finding in report.findings:
        yield f"<h2>{finding.code} {_(finding.title)}</h2>"
        yield "<pre>" + _("\n".join(list(finding_lines(finding))[1:])) + "</pre>"
        yield f"<p>{_(CODES[finding.code].explanation)}"
        if finding.repro is not None:
            yield f"<details><summary>repro.py</summary><pre>{_(finding.repro.source)}</pre></details>"
    yield "<h2>What was covered</h2><p>"
    yield " ".join(f"<span class=map><i class={o}></i></span>{o}" for o in OUTCOMES)
    yield "<p>Every square is a case. What was inconclusive or skipped was not found right: it was not told."
    yield "<table><tr><th>operator" + "".join(f"<th>{o}" for o in OUTCOMES) + "<th>cases"
    for operator, rows in report.coverage.by_operator().items():
        counts = "".join(f"<td>{sum(r.outcome == o for r in rows)}" for o in OUTCOMES)
        yield f"<tr><td>{_(operator)}{counts}<td class=map>{''.join(map(_square, rows))}"
    yield "</table><h2>Why not more</h2><table><tr><th>reason<th>cases"
    yield from (f"<tr><td>{_(reason)}<td>{n}" for reason, n in report.coverage.reasons().items())
    yield "</table></html>"


def _square(row: Row) -> str:
    setting = ", ".join(f"{k}={v}" for k, v in row.setting.items())
    text = f"{row.outcome}: {row.dtype} {dict(row.shapes)} {setting} {row.reason}"
    return f'<i class={row.outcome} title="{_(text)}"></i>'


def _(text: str) -> str:
    return html.escape(text)
