"""Telling of findings: a warning, an error, a function, and a line in the log."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch

from lanewise.audit.finding import Finding
from lanewise.audit.report import finding_facts
from lanewise.errors import InputError, LanewiseError
from lanewise.io.json_lines import JsonLines

OnFinding = Literal["warn", "raise", "ignore"] | Callable[[Finding], None]


class FindingWarning(UserWarning):
    """A watched run shows a finding."""


class FindingError(LanewiseError, ArithmeticError):
    """A watched run shows a finding, and was to stop; `finding` has it."""

    exit_code = 1

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        super().__init__(_sentence(finding))


class Teller:
    """Tells each finding once.

    Args:
        on_finding: as of `watch`.
        log: of the lines; None for no log.

    Raises:
        InputError: `on_finding` is not one of its values.
        StorageError: the log cannot be written.
    """

    def __init__(self, on_finding: OnFinding, log: Path | str | None) -> None:
        if not callable(on_finding) and on_finding not in ("warn", "raise", "ignore"):
            raise InputError("on_finding", got=repr(on_finding), expected='"warn", "raise", "ignore", or a function')
        self.findings: list[Finding] = []
        self._on_finding = on_finding
        self._told: set[tuple[str, str, str]] = set()
        self._log = None if log is None else JsonLines(_of_this_process(Path(log)))

    def tell(self, finding: Finding) -> None:
        """Tell, unless the same was told before.

        Raises:
            FindingError: where findings are to be raised.
        """
        key = finding.code, finding.operator, finding.argument
        if key in self._told:
            return
        self._told.add(key)
        self.findings.append(finding)
        self.write("finding", finding.evidence["step"], finding=finding_facts(finding))
        if callable(self._on_finding):
            self._on_finding(finding)
        elif self._on_finding == "raise":
            raise FindingError(finding)
        elif self._on_finding == "warn":
            warnings.warn(_sentence(finding), FindingWarning, stacklevel=2)

    def write(self, event: str, step: int, **facts: Any) -> None:
        """Append a line to the log. Raises `StorageError`."""
        if self._log is not None:
            self._log.write({"event": event, "step": step, **facts})


def _sentence(finding: Finding) -> str:
    return f"{finding} in step {finding.evidence.get('step')}: {finding.cause}"


def _of_this_process(path: Path) -> Path:
    """The path, with the rank in its name for all processes of a group but the first."""
    distributed = torch.distributed
    rank = distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0
    return path if rank == 0 else path.with_name(f"{path.stem}.rank{rank}{path.suffix}")
