"""Find silently wrong gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lanewise.audit.runner import audit

__all__ = ["audit"]


def __getattr__(name: str) -> Any:
    # On demand: the gate and the faults are used where nothing is audited.
    if name == "audit":
        from lanewise.audit.runner import audit

        return audit
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
