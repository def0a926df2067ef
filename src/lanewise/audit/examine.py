"""What is done with one case, in whatever process: build it, run it forward, probe every gradient."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from lanewise.audit import infer, probes
from lanewise.audit.call import Call
from lanewise.audit.case import Case
from lanewise.audit.spec import Spec
from lanewise.audit.verdict import Verdict

PROBES = 3  # random directions a probe
_DEVICE_DIED = re.compile(r"illegal (memory access|instruction|address)|misaligned address|unspecified launch failure")


@dataclass(frozen=True)
class Result:
    """What came of one case.

    Attributes:
        case: which.
        outcome: "failed" when a probe failed, "passed" when one passed and none failed, "inconclusive" when what ran
            could not tell, "skipped" when nothing ran, "crashed" when the process died or the device did.
        reason: why nothing was passed or failed.
        verdicts: what each probe said about each argument.
        seconds: how long it took.
        fatal: nothing more can be run in this process.
    """

    case: Case
    outcome: Literal["passed", "failed", "inconclusive", "skipped", "crashed"]
    reason: str = ""
    verdicts: tuple[Verdict, ...] = field(default=(), repr=False)
    seconds: float = 0.0
    fatal: bool = False

    @property
    def failures(self) -> tuple[Verdict, ...]:
        """The verdicts that failed."""
        return tuple(v for v in self.verdicts if v.outcome == "failed")


def examine(spec: Spec, case: Case, only: tuple[str, str] | None = None) -> Result:
    """Probe the gradients of one case.

    Nothing that the operator does is raised: what its forward refuses is skipped, what does not fit into memory is
    inconclusive, and a device that died is "crashed".

    Args:
        spec: the operator.
        case: what to run it on.
        only: (argument, probe) to take; all that are applicable when None.
    """
    begin = time.monotonic()
    with warnings.catch_warnings(), case.in_force():
        warnings.simplefilter("ignore")
        result = _examine(spec, case, only)
    return replace(result, seconds=time.monotonic() - begin)


def prepared(spec: Spec, case: Case) -> Call:
    """The case's call, with what a user's function shows about itself: where it is affine, what its batch is."""
    call = case.call(spec)
    if spec.function is None:
        return call
    linear = infer.linear_arguments(call, call.names)
    return replace(call, linear=linear, batch=infer.independent_batch(call))


def _examine(spec: Spec, case: Case, only: tuple[str, str] | None) -> Result:
    try:
        call = case.call(spec)
        outputs = [y for y in call.graph()[1] if y.requires_grad]
        torch.cuda.synchronize() if case.device.startswith("cuda") else None
        call = prepared(spec, case) if spec.function is not None else call
    except Exception as error:
        return _refused(spec, case, error)
    if not any(y.numel() for y in outputs):
        return Result(case, "skipped", "the output is empty or does not depend on what is differentiated")
    if not all(bool(y.detach().isfinite().all()) for y in outputs):
        return Result(case, "inconclusive", "the output itself is not finite with these values")
    verdicts: list[Verdict] = []
    for argument in call.names if only is None else only[:1]:
        if call.value(argument).numel() == 0:
            continue
        for name in probes.applicable(call, argument) if only is None else only[1:]:
            try:
                verdicts.append(probes.probe(call, argument, name, probes=PROBES, seed=case.seed))
                torch.cuda.synchronize() if case.device.startswith("cuda") else None
            except Exception as error:
                if _DEVICE_DIED.search(str(error)):
                    reason = f"{name} of {argument}: {_first_line(error)}"
                    return Result(case, "crashed", reason, tuple(verdicts), fatal=True)
                reason = "out of memory" if _out_of_memory(error) else f"raised {_first_line(error)}"
                verdicts.append(Verdict(name, argument, "inconclusive", reason=reason))
    return Result(case, *_summary(verdicts), tuple(verdicts))


def _summary(verdicts: Sequence[Verdict]) -> tuple[Literal["passed", "failed", "inconclusive", "skipped"], str]:
    for outcome in ("failed", "passed", "inconclusive"):
        those = [v for v in verdicts if v.outcome == outcome]
        if those:
            return outcome, "" if outcome == "passed" else f"{those[0].probe} of {those[0].argument}: {those[0].reason}"
    reasons = dict.fromkeys(v.reason for v in verdicts)
    return "skipped", "; ".join(reasons) or "no probe is applicable"


def _refused(spec: Spec, case: Case, error: Exception) -> Result:
    """What it means that inputs could not be made or the forward pass raised."""
    if _out_of_memory(error):
        return Result(case, "inconclusive", "out of memory")
    if _DEVICE_DIED.search(str(error)):
        return Result(case, "crashed", _first_line(error), fatal=True)
    fatal = "CUDA error" in str(error) or "HIP error" in str(error)  # a device-side assertion: an index out of range
    if case.compiled and not fatal:
        try:
            replace(case, compiled=False).call(spec).output()
        except Exception as eager:
            return Result(case, "skipped", f"the forward refuses: {_first_line(eager)}")
        return Result(case, "inconclusive", f"torch.compile refuses what eager takes: {_first_line(error)}")
    return Result(case, "skipped", f"the forward refuses: {_first_line(error)}", fatal=fatal)


def _out_of_memory(error: Exception) -> bool:
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200] if text else ''}"
