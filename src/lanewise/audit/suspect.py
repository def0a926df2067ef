"""Who is to blame, and what helps: causes that follow from what a failure needs, and workarounds that were tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from lanewise.audit.call import pull_back
from lanewise.audit.case import Case
from lanewise.audit.examine import RAISED
from lanewise.audit.spec import Spec
from lanewise.audit.verdict import Verdict
from lanewise.target.table import WINDOW_BYTES

KERNELS_SHOWN = 3
_CAUSES = {
    "LW101": "the backward pass writes nothing, or nothing of it arrives",
    "LW102": "a value that nobody wrote, or an overflow, reaches the gradient",
    "LW103": "rows or terms of a sum are lost: a partial tile, a wave, or a slice of a split reduction",
    "LW104": "right values in wrong places, or another tensor's stride",
    "LW105": "a factor, or an accumulator of too few bits",
    "LW106": "a race, or memory that nobody wrote",
    "LW204": "an access outside of a tensor, or a launch that the device refuses",
    "LW302": "the backward pass changes what the graph has saved",
    "LW303": "part of an output is never written",
}


@dataclass(frozen=True)
class Workaround:
    """Something a user can do; `case` is how it is tried."""

    text: str
    case: Case


def code_of(spec: Spec, case: Case, verdict: Verdict) -> str:
    """The code of a finding, from what its smallest case needs and what the probe saw."""
    if RAISED in verdict.reason:
        return "LW204"
    if case.cotangent != "contiguous" or case.layout != "contiguous":
        return "LW301"
    elements = _largest(spec, case)
    if elements > 2**31:
        return "LW201"
    if elements * torch.finfo(getattr(torch, case.dtype)).bits // 8 > WINDOW_BYTES:
        return "LW202"
    if max((n for _, n in case.sizes), default=0) > 65535:
        return "LW203"
    return verdict.code or "LW104"


def within_limit(spec: Spec, case: Case, code: str) -> Case | None:
    """The case with its largest size cut until it is within the limit of this code; None where the code is of none."""
    name, size = max(case.sizes, key=lambda item: item[1], default=("", 0))
    each = _largest(spec, case) / size if size else 0
    bytes_each = torch.finfo(getattr(torch, case.dtype)).bits // 8
    most = {"LW201": 2**31 / each, "LW202": WINDOW_BYTES / bytes_each / each, "LW203": 65535} if each else {}
    return case.resized(**{name: int(most[code])}) if 1 <= most.get(code, 0) < size else None


def cause(spec: Spec, case: Case, code: str, kernels: tuple[str, ...] = ()) -> str:
    """What is suspected, and the library and kernels where they can be told."""
    parts = []
    if code == "LW301":
        if case.cotangent != "contiguous":
            parts.append(f"the backward pass takes an incoming gradient that is {case.cotangent} for a contiguous one")
        if case.layout != "contiguous":
            parts.append(f"an input that is {case.layout} is taken for a contiguous one")
    elif code in ("LW201", "LW202", "LW203"):
        parts.append("an index, an address or a grid that does not reach this far")
    else:
        parts.append(_CAUSES.get(code, "unknown"))
    if case.compiled:
        parts.append("torch.compile (Inductor): eager is right")
    elif spec.function is not None:
        parts.append("the operator's own backward pass")
    else:
        parts.append(f"library: {library(case.device)}")
    if kernels:
        parts.append(f"kernels of the backward pass: {', '.join(kernels)}")
    return "; ".join(parts)


def library(device: str) -> str:
    """The libraries that torch's operators rest on there."""
    if device.startswith("cuda"):
        if torch.version.hip:
            return f"ROCm {torch.version.hip} (MIOpen, hipBLASLt)"
        return f"CUDA {torch.version.cuda} (cuDNN {torch.backends.cudnn.version()}, cuBLAS)"
    return f"torch {torch.__version__} on {device} (oneDNN, MKL)" if device == "cpu" else f"torch on {device}"


def workarounds(spec: Spec, case: Case) -> Iterator[Workaround]:
    """What may help, the least intrusive first. None is recommended before it was seen to help."""
    if case.compiled:
        yield Workaround("leave this function out of torch.compile", replace(case, compiled=False))
    if case.cotangent != "contiguous":
        text = "make the incoming gradient contiguous: y.register_hook(lambda g: g.contiguous())"
        yield Workaround(text, replace(case, cotangent="contiguous"))
    if case.layout != "contiguous":
        yield Workaround("pass contiguous inputs: x.contiguous()", replace(case, layout="contiguous"))
    for flag in _flags(case.device):
        yield Workaround(flag, replace(case, flags=(*case.flags, flag)))
    if spec.batch and case.slices == 1:
        for slices in (2, 8):
            text = f"cut the batch into {slices} slices and put the outputs together again"
            yield Workaround(text, replace(case, slices=slices))
    if spec.alternative:
        instead = spec.alternative.splitlines()[-1].removeprefix("return ")
        yield Workaround(f"use {instead}{_whose(spec.alternative)}", replace(case, alternative=True))
    if case.dtype in ("float16", "bfloat16"):
        yield Workaround("compute in float32", replace(case, dtype="float32"))


def _whose(alternative: str) -> str:
    """Where an alternative comes from, when that is Lanewise."""
    return " of lanewise.conv" if "from lanewise.conv" in alternative else ""


def _flags(device: str) -> tuple[str, ...]:
    if device.startswith("cuda"):
        return (
            "torch.backends.cudnn.benchmark = True",
            "torch.backends.cudnn.deterministic = True",
            "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False",
            "torch.backends.cudnn.enabled = False",
        )
    return ("torch.backends.mkldnn.enabled = False",) if device == "cpu" else ()


def _largest(spec: Spec, case: Case) -> int:
    return max((torch.Size(shape).numel() for shape in case.shapes(spec).values()), default=0)


def kernels_of(spec: Spec, case: Case) -> tuple[str, ...]:
    """What the backward pass spends most time in, from torch's profiler: kernels on a GPU, operators on a CPU."""
    on_gpu = case.device.startswith("cuda")
    activity = torch.profiler.ProfilerActivity
    with case.in_force():
        call = case.call(spec)
        leaves, outputs = call.graph()
        vs = call.cotangents(outputs, torch.Generator(outputs[0].device).manual_seed(case.seed))
        pull_back(outputs, leaves, vs)  # what is compiled or chosen at the first call
        with torch.profiler.profile(activities=[activity.CUDA if on_gpu else activity.CPU]) as profile:
            pull_back(outputs, leaves, vs)
            if on_gpu:
                torch.cuda.synchronize()
    events = profile.key_averages()
    if on_gpu:  # and not what the host does for them, such as cuLaunchKernel; AMD's are called CUDA too
        spent = {event.key: event.device_time_total for event in events if event.device_type.name == "CUDA"}
    else:
        spent = {event.key: event.self_cpu_time_total for event in events if event.key.startswith("aten::")}
    return tuple(name[:100] for name in sorted(spent, key=lambda name: -spent[name])[:KERNELS_SHOWN])
