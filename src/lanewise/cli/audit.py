"""`lanewise audit`: are the gradients right, on this machine?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from lanewise.cli.console import CommonOptions, duration, say, show_table, warn, write_json
from lanewise.errors import InputError

if TYPE_CHECKING:
    from lanewise.audit.report import Report
    from lanewise.audit.spec import Spec

COLUMNS = ("operator", "passed", "failed", "crashed", "inconclusive", "skipped", "1% missed (median)")


@dataclass(kw_only=True)
class Options(CommonOptions):
    """Look for silently wrong gradients: of a function or module of yours, of torch, or of Lanewise.

    A function NAME needs an example of its inputs beside it: NAME_inputs, a tuple of arguments, a dictionary of
    keyword arguments, or a function that returns one of them. Exits with 0 when probes ran and found nothing, with 1
    when there are findings, and with 5 when no probe could tell or the device was lost on the way.

    Examples:
      lanewise audit ops.py:my_operator
      lanewise audit package.module:layer --device cuda --budget 5m --html report.html
      lanewise audit torch --budget 10m --compile --json report.json --repros repros
      lanewise audit lanewise --baseline report.json
    """

    target: Annotated[str, tyro.conf.Positional]
    """FILE.py:NAME, package.module:NAME, torch, or lanewise."""
    device: str | None = None
    """Where to run: cpu, cuda, cuda:1; without this the GPU when there is one."""
    budget: str = "60s"
    """Time for everything, such as 60s, 10m or 1h; or a number of cases, such as "200 cases"."""
    memory: float | None = None
    """GiB that a case may use; half of what is free without this."""
    seed: int = 0
    """Of inputs, order and probes."""
    compile: bool = False
    """Try everything under torch.compile too, and programs of several operators."""
    junit: Path | None = None
    """Write the report as JUnit XML to this file."""
    sarif: Path | None = None
    """Write the report as SARIF to this file."""
    html: Path | None = None
    """Write the report as one page to this file."""
    repros: Path | None = None
    """Write a script for every finding into this folder."""
    baseline: Path | None = None
    """JSON of an earlier report, whose findings do not count."""
    select: str | None = None
    """Codes that count, or their beginnings, with commas between them (LW1,LW301)."""
    ignore: str | None = None
    """Codes that do not."""


def run(options: Options) -> int:
    """Audit, show, write; the exit code is 1 when there are findings, 5 when no probe could tell or it was stopped."""
    from lanewise.audit.report.console import reasons, sentence, table
    from lanewise.audit.runner import audit_specs, default_device, parse_budget

    for option in ("junit", "sarif", "html", "repros"):
        path = getattr(options, option)
        if path is not None and not path.parent.is_dir():
            raise InputError(f"--{option}", got=path, expected="a place in a folder that exists")
    parse_budget(options.budget)
    narrow = _narrowing(options)
    report = audit_specs(
        specs_of(options.target),
        device=options.device or default_device(),
        budget=options.budget,
        seed=options.seed,
        compile=options.compile,
        memory=options.memory,
        tell=lambda line: say(line, style="red"),
    )
    report = narrow(report)
    scripts = _write(options, report)
    _show_findings(report, scripts)
    show_table("What was covered", COLUMNS, table(report))
    for line in reasons(report):
        say(f"  {line}", style="yellow")
    for note in report.notes:
        warn(note)
    style = "green" if report.ok else "bold red" if report.findings or report.stopped else "yellow"
    say(f"{sentence(report)} {duration(report.seconds)}.", style=style)
    write_json(options.json, report.to_dict())
    return 1 if report.findings else 0 if report.ok else 5


def specs_of(target: str) -> list[Spec]:
    """The operators that a target names.

    Raises:
        InputError: there is no such catalogue, file, module or name, or no example of its inputs.
    """
    from lanewise.audit.catalogue import NAMES, catalogue
    from lanewise.audit.load import load

    if target in NAMES:
        return catalogue(target)
    return [load(target)]


def _narrowing(options: Options) -> Callable[[Report], Report]:
    """What --select, --ignore and --baseline ask for; whether they can is found out before the work."""
    from lanewise.audit.report import narrowing

    select = options.select.split(",") if options.select else ()
    ignore = options.ignore.split(",") if options.ignore else ()
    return narrowing(select, ignore, options.baseline)


def _show_findings(report: Report, scripts: dict[str, str]) -> None:
    from lanewise.audit.report.console import finding_lines

    for finding in report.findings:
        first, *others = finding_lines(finding, scripts.get(finding.fingerprint))
        say(first, style="bold red")
        for line in others:
            say(line)
        say()


def _write(options: Options, report: Report) -> dict[str, str]:
    """Write what was asked for; where the scripts are, by fingerprint."""
    from lanewise.audit.report.html import page
    from lanewise.audit.report.junit import junit
    from lanewise.audit.report.sarif import sarif
    from lanewise.io.files import atomic_write

    for path, view in ((options.junit, junit), (options.sarif, sarif), (options.html, page)):
        if path is not None:
            with atomic_write(path) as stream:
                stream.write(view(report).encode())
    scripts: dict[str, str] = {}
    for number, finding in enumerate(report.findings, 1):
        if options.repros is not None and finding.repro is not None:
            folder = options.repros / f"{number:02d}-{finding.code}"
            scripts[finding.fingerprint] = str(finding.repro.write(folder))
    return scripts
