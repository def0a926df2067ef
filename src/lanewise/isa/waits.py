"""Wait counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lanewise.isa.program import Program


def check(program: Program) -> None:
    """Placeholder until the analysis is in."""
    del program
