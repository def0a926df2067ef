"""`lanewise prove`: every kernel, compiled for every target and executed on an emulator of AMD's machines."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lanewise.cli.console import CommonOptions, duration, progress, say, show_table, write_json
from lanewise.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    from lanewise.prove.rows import Row

COLUMNS = ("target", "family", "wave", "compiled", "executed", "worst / limit", "spill", "swap loops", "failed")


@dataclass(kw_only=True)
class Options(CommonOptions):
    """Compile every kernel for every GPU, execute AMD's machine code on an emulator, and compare with fp64. No GPU.

    Kernels run as they are launched, forward and backward, on small inputs around the boundaries of waves, blocks and
    tiles, in four orders of the waves where waves can tell the order. Exits with 1 when a row fails.

    Examples:
      lanewise prove --quick
      lanewise prove --kernel "composite*" --arch gfx942,gfx1100 --json rows.json --html rows.html
      lanewise prove --asm kernel.gfx1151.s --spec spec.py
    """

    kernel: str = "*"
    """Pattern of the kernels to look at, such as "composite*" or "sh.*"."""
    arch: str | None = None
    """Targets, with commas between them; all of the table without this (with --quick one a family)."""
    quick: bool = False
    """Fewer inputs and targets, two orders of the waves, and only launches as Triton's JIT compiles them: about three
    minutes of two cores; about a quarter of an hour without this."""
    jobs: int | None = None
    """Processes; as many as there are cores without this."""
    html: Path | None = None
    """Write all rows as a page to this file."""
    asm: Path | None = None
    """Assembly of a kernel of yours for an AMD GPU, to run instead of Lanewise's kernels; with --spec."""
    spec: Path | None = None
    """Python file that says how to launch it and what it should compute."""


def run(options: Options) -> int:
    """Show the table; the exit code is 1 when a row failed and 5 when there is none."""
    from lanewise.prove import report

    if (options.asm is None) != (options.spec is None):
        raise InputError(
            "--asm and --spec", got="one of them", expected="both: machine code, and what it should compute"
        )
    if options.jobs is not None and options.jobs < 1:
        raise InputError("--jobs", got=options.jobs, expected="1 or more")
    if options.html is not None and not options.html.parent.is_dir():
        raise InputError("--html", got=options.html, expected="a file in a folder that exists")
    begin = time.monotonic()
    rows, version = _assembly(options) if options.asm else _kernels(options)
    show_table("What was proved", COLUMNS, report.by_target(rows))
    for row in rows:
        if not row.ok:
            say(f"FAILED {row.kernel} [{row.config}] on {row.arch}: {row.note}", style="bold red")
    for line in report.not_covered(rows):
        say(f"not covered: {line.replace('not covered: ', '')}", style="yellow")
    sentence, failed = report.verdict(rows, version), any(not row.ok for row in rows)
    say(f"{sentence} {duration(time.monotonic() - begin)}.", style="bold red" if failed else "green")
    if options.html is not None:
        from lanewise.io.files import atomic_write

        with atomic_write(options.html) as stream:
            stream.write(report.page(rows, sentence).encode())
    from lanewise.prove.rows import as_json

    write_json(options.json, {"verdict": sentence, "compiler": version, "rows": as_json(rows)})
    return 5 if not rows else 1 if failed else 0


def _assembly(options: Options) -> tuple[list[Row], str]:
    """Rows of somebody else's kernel."""
    from lanewise.prove.asm import prove_assembly

    assert options.asm is not None
    assert options.spec is not None
    return prove_assembly(options.asm, options.spec), f"assembly {options.asm.name}"


def _kernels(options: Options) -> tuple[list[Row], str]:
    """Rows of Lanewise's kernels."""
    from lanewise.splat._backend import has_triton

    if not has_triton():
        raise MissingDependencyError("triton", needed_for="compiling the kernels", install="pip install triton")
    if os.environ.get("TRITON_INTERPRET") == "1":
        raise InputError("TRITON_INTERPRET", got="1", expected="no interpreter: kernels are compiled here")
    from lanewise.prove.compile import triton_version
    from lanewise.prove.run import chosen_cases, chosen_targets, make_plan, prove

    targets = chosen_targets(options.arch, options.quick)
    cases = chosen_cases(options.kernel, options.quick)
    plan = make_plan(options.kernel, targets, cases, options.quick, options.jobs)
    with progress("proving") as tell:
        return prove(plan, tell), f"Triton {triton_version()}"
