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
from lanewise.audit.call import OUTPUT, Call, ForwardError, pull_back
from lanewise.audit.case import Case
from lanewise.audit.conditioning import conditioning
from lanewise.audit.probes.measure import norm
from lanewise.audit.spec import Spec
from lanewise.audit.verdict import Verdict

EAGER = "eager"  # the name of the comparison of a compiled function's output with eager's
PLAINLY = 1e-2  # relative difference of outputs that no order of operations explains
PROBES = 3  # random directions a probe
RAISED = "the backward raised"  # how such a verdict's reason begins
_NOT_WRITTEN = re.compile(r"not implemented|NotImplemented|derivative for|not supported")
# What says nothing of the operator: the driver does not start in this process, or the device is gone.
_DEVICE_LOST = re.compile(
    r"initialization error|no (CUDA|HIP)-capable device|re-initialize (CUDA|XPU) in forked|driver shutting down"
    r"|driver version is insufficient|busy or unavailable|system (not yet initialized|driver mismatch)"
    r"|uncorrectable ECC|device lost"
)
_ASSERTED = "device-side assert"  # an index out of range; whatever comes after it in the same process fails too
UNUSABLE = "the device cannot be used"  # how the reason of a case begins that met what `_DEVICE_LOST` names
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
    inconclusive, a device that died is "crashed", and one that cannot be used at all is inconclusive.

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


def prepared(spec: Spec, call: Call) -> Call:
    """The call, with what a user's function shows about itself: where it is affine, what its batch is."""
    if spec.function is None:
        return call
    return replace(call, linear=infer.linear_arguments(call, call.names), batch=infer.independent_batch(call))


def _examine(spec: Spec, case: Case, only: tuple[str, str] | None) -> Result:
    try:
        call = case.call(spec)
        outputs = [y for y in call.graph()[1] if y.requires_grad]
        if case.device.startswith("cuda"):
            torch.cuda.synchronize()  # a launch that fails says so here
        call = prepared(spec, call)
    except Exception as error:
        return _refused(spec, case, error)
    if not any(y.numel() for y in outputs):
        return Result(case, "skipped", "the output is empty or does not depend on what is differentiated")
    if not all(bool(y.detach().isfinite().all()) for y in outputs):
        return Result(case, "inconclusive", "the output itself is not finite with these values")
    verdicts: list[Verdict] = []
    if case.compiled and (only is None or only == (OUTPUT, EAGER)):
        verdicts.append(_beside_eager(case, spec, call))
    for argument in _reached(case, call) if only is None else only[:1]:
        for name in _chosen(spec, case, call, argument):
            if only is not None and name != only[1]:
                continue
            verdict = probes.probe(call, argument, name, probes=PROBES, seed=case.seed)
            reason = f"{name} of {argument}: {verdict.reason}"
            if _DEVICE_LOST.search(verdict.reason):
                return Result(case, "inconclusive", f"{UNUSABLE}: {reason}", tuple(verdicts), fatal=True)
            if _DEVICE_DIED.search(verdict.reason) or _ASSERTED in verdict.reason:
                return Result(case, "crashed", reason, tuple(verdicts), fatal=True)
            verdicts.append(_without_derivative(verdict))
    return Result(case, *_summary(verdicts), tuple(verdicts))


def _reached(case: Case, call: Call) -> tuple[str, ...]:
    """The arguments that some output depends on. Compiled outputs do not say: all inputs are leaves there."""
    if not case.compiled:
        return call.names
    leaves, outputs = call.graph()
    cotangents = call.cotangents(outputs, torch.Generator(outputs[0].device).manual_seed(case.seed))
    return tuple(pull_back(outputs, leaves, cotangents))


def _chosen(spec: Spec, case: Case, call: Call, argument: str) -> tuple[str, ...]:
    """The probes to take. Under a compiler those that call the function one way only, so that it is compiled once."""
    names = probes.applicable(call, argument)
    return tuple(name for name in names if not case.compiled or name in ("adjoint", "jvp", "truth"))


def _without_derivative(verdict: Verdict) -> Verdict:
    """What raised because nobody has written it is no fault."""
    if verdict.outcome == "failed" and RAISED in verdict.reason and _NOT_WRITTEN.search(verdict.reason):
        return replace(verdict, outcome="skipped")
    return verdict


def _beside_eager(case: Case, spec: Spec, call: Call) -> Verdict:
    """Whether the compiled function is the same function: a forward that is plainly another has no right gradient."""
    reference = replace(case, compiled=False).call(spec)
    pairs = list(zip(call.graph()[1], reference.output(), reference.double().output(), strict=True))
    off = max(norm(y, minus=truth.to(y)) for y, _, truth in pairs)
    allowed = max(8 * norm(eager, minus=truth.to(eager)) + PLAINLY * norm(truth) for _, eager, truth in pairs)
    outcome, code = ("passed", None) if off <= allowed else ("failed", "LW104")
    size = max(norm(truth) for *_, truth in pairs)
    reason = "" if code is None else f"the output is off by {off:.3g} of {size:.3g} beside eager's"
    return Verdict(EAGER, OUTPUT, outcome, off, allowed, 1, size, "certain", reason, code=code)


def explained(spec: Spec, case: Case, argument: str) -> float | None:
    """What the function's conditioning explains of a difference of its gradient (`conditioning`), eager."""
    call = replace(case, compiled=False).call(spec)
    if argument not in call.names:
        return None
    return conditioning(call, argument, getattr(torch, case.dtype), case.seed)


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
    if _DEVICE_LOST.search(str(error)):
        return Result(case, "inconclusive", f"{UNUSABLE}: {_first_line(error)}", fatal=True)
    if _DEVICE_DIED.search(str(error)):
        return Result(case, "crashed", _first_line(error), fatal=True)
    fatal = "CUDA error" in str(error) or "HIP error" in str(error)
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
    error = error.__cause__ if isinstance(error, ForwardError) and isinstance(error.__cause__, Exception) else error
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200] if text else ''}"
