"""The command line: one file a command, each with a dataclass `Options` and a function `run(options) -> exit code`."""

from lanewise.cli.app import main

__all__ = ["main"]
