"""`lanewise explain`: what a finding's code means."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from typing import Annotated

import tyro

from lanewise.cli.console import CommonOptions, say, show_table, write_json

WIDTH = 100


@dataclass(kw_only=True)
class Options(CommonOptions):
    """Explain a code of `lanewise audit`; without one, list them all.

    Examples:
      lanewise explain LW103
      lanewise explain
    """

    code: Annotated[str | None, tyro.conf.Positional] = None
    """Such as LW103."""


def run(options: Options) -> int:
    """Print one code or the table of all."""
    from lanewise.audit.finding import CODES, find_code

    if options.code is None:
        show_table("Codes of findings", ("code", "what"), [[c.code, c.title] for c in CODES.values()])
        write_json(options.json, {"codes": [asdict(code) for code in CODES.values()]})
        return 0
    code = find_code(options.code)
    say(f"{code.code}: {code.title}", style="bold")
    say("\n".join(textwrap.wrap(code.explanation, WIDTH)))
    write_json(options.json, asdict(code))
    return 0
