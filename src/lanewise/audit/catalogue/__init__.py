"""Operators that are audited by name: torch's and Lanewise's own."""

from __future__ import annotations

from lanewise.audit.spec import Spec
from lanewise.errors import InputError

NAMES = ("torch", "lanewise")


def catalogue(name: str) -> list[Spec]:
    """The operators of "torch" or "lanewise".

    Raises:
        InputError: there is no such catalogue.
    """
    if name == "torch":
        from lanewise.audit.catalogue.torch_operators import SPECS

        return list(SPECS)
    if name == "lanewise":
        from lanewise.audit.catalogue.own import SPECS

        return list(SPECS)
    raise InputError("catalogue", got=repr(name), expected=f"one of {', '.join(NAMES)}")
