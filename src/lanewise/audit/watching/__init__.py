"""Watching a model while it trains: dead parameters, lost updates, NaN's origin, jumps, and probes of its layers."""

from __future__ import annotations

from lanewise.audit.watching.references import register_reference
from lanewise.audit.watching.telling import FindingError, FindingWarning
from lanewise.audit.watching.watcher import Watch, watch

__all__ = ["FindingError", "FindingWarning", "Watch", "register_reference", "watch"]
