"""Documentation build: puts the help of every command into the reference, so that it cannot be out of date."""

import contextlib
import io
import os
import re
from typing import Any

MARK = "<!-- help of every command -->"
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the mark by one section a command."""
    if MARK not in markdown:
        return markdown
    from lanewise.cli.app import COMMANDS

    sections = (f"## {name}\n\n```text\n{_help(name)}\n```\n" for name in COMMANDS)
    return markdown.replace(MARK, "\n".join(sections))


def _help(name: str) -> str:
    from lanewise.cli.app import main

    os.environ["COLUMNS"] = "100"
    with contextlib.redirect_stdout(io.StringIO()) as text:
        code = main([name, "--help"])
    if code != 0:
        raise RuntimeError(f"lanewise {name} --help ended with exit code {code}")
    return ANSI.sub("", text.getvalue()).strip()
