"""Our kernels or the vendor's: for each launch the faster one, of those that are right.

Libraries rank their kernels by time alone; a kernel that writes nothing is the fastest of all. Here nobody is timed who
has not been probed, on this device, at this size.
"""

from __future__ import annotations

import functools
import math
import os
import statistics
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import astuple, replace

import torch
from torch import Tensor

from lanewise.audit.probes.measure import dot, norm
from lanewise.audit.tolerance import LAMBDA
from lanewise.audit.verdict import Verdict
from lanewise.conv import backends, reference
from lanewise.conv.backends import Backend
from lanewise.conv.choices import Choice, Choices
from lanewise.conv.precision import Precision
from lanewise.conv.problem import Problem
from lanewise.conv.sliced import memory_format
from lanewise.errors import InputError, UnsupportedError

ROUNDS = 5  # of interleaved timings
# So many times what rounding explains is an algorithm that rounds more, such as Winograd's (cuDNN 9's weight gradient
# of a 3x3 layer is 1.6e-5 off), and no fault: nothing to report, but to be used only where there is nothing better.
INEXACT = 16
LEAST_MS = 0.5  # that a timing lasts, in repeats
# What decides who runs in torch: `torch.backends.cudnn.enabled` and so on, as their attributes read them.
_enabled, _benchmark = torch._C._get_cudnn_enabled, torch._C._get_cudnn_benchmark
_deterministic, _algorithms = torch._C._get_cudnn_deterministic, torch.are_deterministic_algorithms_enabled


def convolve(
    precision: Precision,
    problem: Problem,
    first: Tensor,
    second: Tensor,
    bias: Tensor | None,
    out: Tensor | None = None,
) -> Tensor:
    """The result of one launch, by whoever was chosen for it; arguments as of `backends.call`."""
    backend = choose(problem, first.device, precision)
    return backends.call(backend, problem, first, second, bias, precision, out)


def choose(problem: Problem, device: torch.device, precision: Precision) -> Backend:
    """Who runs a launch.

    `LANEWISE_CONV` decides: "ours" (the vendor's where we have no kernel) and "vendor" without a check, "auto", the
    default, by measurement. On a CPU that is always the vendor's.

    Raises:
        InputError: LANEWISE_CONV is something else.
        UnsupportedError: nothing was chosen yet, and a CUDA graph is being captured.
    """
    question = (problem, device, precision, *wishes())
    backend = _chosen.get(question)
    if backend is None:
        backend = _chosen[question] = _decide(*question)
    return backend


def wishes() -> tuple[str, bool, bool, bool, bool]:
    """What decides who runs a launch beside the launch itself: LANEWISE_CONV and torch's flags."""
    return os.environ.get("LANEWISE_CONV", "auto"), _enabled(), _benchmark(), _deterministic(), _algorithms()


_lock = threading.Lock()  # backward passes of several devices run in threads of their own
_chosen: dict[tuple[object, ...], Backend] = {}


def _decide(problem: Problem, device: torch.device, precision: Precision, asked: str, *flags: bool) -> Backend:
    if asked not in ("ours", "vendor", "auto"):
        raise InputError("LANEWISE_CONV", got=repr(asked), expected="'ours', 'vendor' or 'auto'")
    if asked == "vendor" or (asked == "auto" and device.type == "cpu"):
        return "vendor"
    able = backends.refusal(problem, device) is None
    if asked == "ours":
        return "ours" if able else "vendor"
    known, key = _choices(device), str((*astuple(problem), precision, *flags))
    choice = known.get(key)
    if choice is None:
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise UnsupportedError(
                f"choosing who runs {problem} inside the capture of a CUDA graph",
                why="nothing can be probed or timed there",
                fix="run the model once before the capture, or set LANEWISE_CONV to 'ours' or 'vendor'",
            )
        with _lock:
            candidates: tuple[Backend, ...] = ("vendor", "ours") if able else ("vendor",)
            choice = known.get(key) or measure(problem, device, precision, candidates)
            known.put(key, choice)
    return choice.backend


@functools.cache
def _choices(device: torch.device) -> Choices:
    return Choices(backends.versions(device))


@torch.inference_mode(False)
@torch.no_grad()
def measure(problem: Problem, device: torch.device, precision: Precision, candidates: tuple[Backend, ...]) -> Choice:
    """Probe the candidates, time those that pass, and warn of those that do not.

    Where memory is too small for it, a smaller batch is probed.

    Args:
        problem: one launch.
        device: where.
        precision: of fp32.
        candidates: who may run it; when none passes, the reference does.
    """
    choice = None
    while choice is None:
        try:
            choice = _judged(problem, device, precision, candidates)
        except torch.OutOfMemoryError:
            if problem.n == 1:
                raise
            problem = replace(problem, n=problem.n // 2)
    for name, fault in choice.faults.items():
        who = "the vendor's convolution" if name == "vendor" else "Lanewise's own kernel"
        versions = ", ".join(f"{key} {value}" for key, value in backends.versions(device).items())
        warnings.warn(
            f"{who} is wrong and is not used: {fault}. {problem}, precision {precision}. {versions}. "
            f"In its place: {choice.backend}. Please report this.",
            RuntimeWarning,
            stacklevel=2,
        )
    return choice


def _judged(problem: Problem, device: torch.device, precision: Precision, candidates: tuple[Backend, ...]) -> Choice:
    faults: dict[Backend, str] = {}
    inexact: dict[Backend, str] = {}
    for name in candidates:
        try:
            result = probe(name, problem, device, precision)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # of a library or a compiler: whatever it is, the other one may do better
            faults[name] = f"{type(error).__name__}: {error}"
            continue
        if not result.ok:
            report = f"adjoint residual {result.residual:.3g}, rounding explains {result.tolerance:.3g}"
            (inexact if result.residual <= INEXACT * result.tolerance else faults)[name] = report
    sound: list[Backend] = [name for name in candidates if name not in faults | inexact] or list(inexact)
    if len(sound) < 2:
        return Choice(sound[0] if sound else "reference", {}, faults, inexact)
    first, second = _operands(problem, device)
    runs: dict[Backend, Callable[[], Tensor]] = {
        name: functools.partial(backends.call, name, problem, first, second, None, precision) for name in sound
    }
    ms = _interleaved(runs, device)
    return Choice(min(sound, key=ms.__getitem__), ms, faults, inexact)


def probe(backend: Backend, problem: Problem, device: torch.device, precision: Precision) -> Verdict:
    """Whether a launch is the transpose of what it should be the transpose of, which the reference computes in fp64.

    A convolution is the transpose of its input gradient, and both gradients are those of the convolution. So the other
    side of the adjoint identity never comes from the backend that is probed: two that both write nothing would agree.

    Args:
        backend: who is probed.
        problem: one launch.
        device: where.
        precision: of fp32.
    """
    first, second = _operands(problem, device)
    # What is probed takes the upstream gradient and one other operand, which is scaled so that fp16 holds all values.
    other = (first if problem.direction == "weight_grad" else second) * problem.reduction**-0.25
    generator = _seeded(device, 1)
    u = torch.empty(problem.result_shape, dtype=problem.dtype, device=device).normal_(generator=generator)
    image = _transpose(problem, u, other)
    v = _packed(torch.empty(image.shape, dtype=u.dtype, device=device).normal_(generator=generator), problem)
    operands = (other, v) if problem.direction == "weight_grad" else (v, other)
    result = backends.call(backend, problem, *operands, None, precision)
    residual, size = abs(dot(result, u) - dot(v, image)), norm(result)
    tolerance = LAMBDA * _unit(problem, precision) * (size + norm(image))
    outcome = "passed" if residual <= tolerance else "failed"  # NaN fails
    return Verdict("adjoint", problem.direction, outcome, residual, tolerance, 1, size)


def _transpose(problem: Problem, leaf: Tensor, other: Tensor) -> Tensor:
    """In fp64: the linear map whose transpose `problem` is, at `leaf`, which has the shape of the problem's result."""
    if problem.direction == "forward":
        return reference.input_grad(leaf, other, problem)
    if problem.direction == "input_grad":
        return reference.forward(leaf, other, None, problem)
    return reference.forward(other, leaf, None, problem)


def _unit(problem: Problem, precision: Precision) -> float:
    """What rounding does to an element of the result. It grows with the length of a sum; cuDNN's error of 3.2e-6 over
    16.8 million products, which is no fault, is 0.4 of this."""
    tf32 = problem.dtype == torch.float32 and precision == "tf32"
    return (2.0**-10 if tf32 else torch.finfo(problem.dtype).eps) * max(1.0, math.sqrt(problem.reduction) / 64)


def _operands(problem: Problem, device: torch.device) -> tuple[Tensor, Tensor]:
    """Random ones, packed."""
    x, w, y = problem.x_shape, problem.w_shape, problem.y_shape
    shapes = {"forward": (x, w), "input_grad": (y, w), "weight_grad": (x, y)}[problem.direction]
    generator = _seeded(device)
    first, second = (
        _packed(torch.empty(shape, dtype=problem.dtype, device=device).normal_(generator=generator), problem)
        for shape in shapes
    )
    return first, second


def _packed(tensor: Tensor, problem: Problem) -> Tensor:
    return tensor.contiguous(memory_format=memory_format(problem.dims, problem.channels_last))


def _seeded(device: torch.device, seed: int = 0) -> torch.Generator:
    """A generator of its own: the user's random numbers stay what they are."""
    return torch.Generator(device=device).manual_seed(seed)


def _interleaved(runs: Mapping[Backend, Callable[[], Tensor]], device: torch.device) -> dict[Backend, float]:
    """Median milliseconds of each, taken in turns: a clock that drifts then drifts for all."""
    repeats = {}
    for name, run in runs.items():
        _milliseconds(run, device, 1)  # compilers and the libraries' own searches
        repeats[name] = min(20, 1 + int(LEAST_MS / max(_milliseconds(run, device, 1), 1e-3)))
    times: dict[Backend, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            times[name].append(_milliseconds(run, device, repeats[name]))
    return {name: statistics.median(taken) for name, taken in times.items()}


def _milliseconds(run: Callable[[], Tensor], device: torch.device, repeats: int) -> float:
    """Of one run, launch included."""
    _wait(device)
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    _wait(device)
    return (time.perf_counter() - start) * 1e3 / repeats


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
