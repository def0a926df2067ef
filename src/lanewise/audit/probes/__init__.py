"""The probes: each asks in its own way whether a gradient is right, and says how likely it would miss a fault."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import torch

from lanewise.audit.call import Call, ForwardError
from lanewise.audit.probes.adjoint import adjoint
from lanewise.audit.probes.directions import multilinear
from lanewise.audit.probes.exact import exact
from lanewise.audit.probes.jvp import jvp
from lanewise.audit.probes.poison import poison
from lanewise.audit.probes.repeats import repeats
from lanewise.audit.probes.slices import slices
from lanewise.audit.probes.truth import truth
from lanewise.audit.verdict import Verdict, skipped
from lanewise.errors import InputError


class Probe(Protocol):
    """One way of asking whether the gradient of an argument is right."""

    def __call__(self, call: Call, argument: str, *, probes: int = 3, seed: int = 0) -> Verdict:
        """The verdict, of so many random directions or repeats."""
        ...


PROBES: Mapping[str, Probe] = MappingProxyType(
    {
        "adjoint": adjoint,
        "jvp": jvp,
        "exact": exact,
        "slices": slices,
        "truth": truth,
        "repeats": repeats,
        "poison": poison,
    }
)


def applicable(call: Call, argument: str) -> tuple[str, ...]:
    """The probes that can say something about this argument, those first that cost least for what they see."""
    names = ["adjoint" if argument in call.linear else "jvp"]
    names += ["exact"] * multilinear(call)
    names += ["slices"] * (call.batch is not None)
    return (*names, "truth", "repeats", "poison")


def probe(call: Call, argument: str, name: str, *, probes: int = 3, seed: int = 0) -> Verdict:
    """Run one probe on the gradient of one argument.

    What the forward refuses is skipped, running out of memory is inconclusive; a backward pass that raises anything
    else fails, without a code: it was not silent.

    Args:
        call: the operator and its inputs.
        argument: a name among `call.names`.
        name: a name in `PROBES`.
        probes: random directions or repeats.
        seed: of the random directions.

    Raises:
        InputError: there is no such probe, or no such argument.
    """
    if name not in PROBES:
        raise InputError("probe", got=repr(name), expected=f"one of {', '.join(PROBES)}")
    call.value(argument)
    try:
        return PROBES[name](call, argument, probes=probes, seed=seed)
    except ForwardError as error:
        return skipped(name, argument, str(error))
    except (torch.OutOfMemoryError, MemoryError) as error:
        return Verdict(name, argument, "inconclusive", reason=f"out of memory: {error}")
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        why = f"the backward raised {type(error).__name__}: {error}"
        return Verdict(name, argument, "failed", reason=why)
