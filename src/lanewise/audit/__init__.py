"""Find silently wrong gradients."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lanewise.audit.runner import audit
    from lanewise.audit.watching import FindingError, FindingWarning, Watch, register_reference, watch

__all__ = ["FindingError", "FindingWarning", "Watch", "audit", "register_reference", "watch"]


def __getattr__(name: str) -> Any:
    # On demand: the gate and the faults are used where nothing is audited.
    if name in __all__:
        return getattr(importlib.import_module(f"{__name__}.{'runner' if name == 'audit' else 'watching'}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
