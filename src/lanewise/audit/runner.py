"""The audit: sweep, examine each case in a process of its own, and look into what failed."""

from __future__ import annotations

import math
import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from lanewise import __version__
from lanewise.audit.case import Case
from lanewise.audit.child import Ended, Task
from lanewise.audit.examine import Result, examine, explained
from lanewise.audit.infer import spec_of
from lanewise.audit.investigate import Investigator
from lanewise.audit.isolate import Isolator
from lanewise.audit.report import Coverage, Report
from lanewise.audit.spec import Spec
from lanewise.audit.suspect import kernels_of
from lanewise.audit.sweep import Plan, Sweep
from lanewise.errors import InputError

Tell = Callable[[str], None]

TOGETHER = 16  # cases that share a process while none fails: a fresh one takes longer to warm up than a case
COMPILED_TOGETHER = 4  # what fails is looked into after these, and each takes seconds
UNTRIED_SHOWN = 8
_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


class Budget(NamedTuple):
    """How much an audit may try: seconds, or a number of cases, which is the same on every machine."""

    seconds: float
    cases: int | None = None


def audit(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    wrt: Sequence[str | int] | str | int | None = None,
    device: str | torch.device | None = None,
    budget: str | float = "60s",
    seed: int = 0,
    *,
    compile: bool = False,
    memory: float | None = None,
    name: str | None = None,
) -> Report:
    """Look for silently wrong gradients of a function or module, on this machine.

    The example is audited as it is, then at other sizes (those that are equal in the example vary together), dtypes,
    layouts of inputs and incoming gradients, and scales of the values. What the function refuses is skipped.

    Args:
        fn: a function of tensors, or a module.
        args: an example of its positional arguments.
        kwargs: an example of its keyword arguments.
        wrt: names or places of the arguments to differentiate; None for every floating-point tensor, whether it has
            `requires_grad` or not, and a module's parameters.
        device: where to run it; where the first tensor of the example is when None.
        budget: time for all of it, such as "60s", "10m" or a number of seconds, after which what was found last is
            still looked into; or "200 cases", which is the same audit on every machine.
        seed: of inputs, order and probes: the same seed gives the same audit, as far as time allows.
        compile: also under `torch.compile`.
        memory: GiB that a case may use; half of what is free when None.
        name: how the report calls it.

    Returns:
        `Report`: `.ok`, `.findings`, `.coverage`, `.to_json()`.

    Raises:
        InputError: there is nothing to differentiate, `wrt` names what is not there, the device is not there, or the
            budget is not a time.
    """
    spec = spec_of(fn, args, kwargs, wrt, name)
    assert spec.example is not None
    if device is None:
        device = next(iter(spec.example.values())).device
    return audit_specs([spec], device=str(device), budget=budget, seed=seed, compile=compile, memory=memory)


def audit_specs(
    specs: Sequence[Spec],
    *,
    device: str = "cpu",
    budget: str | float = "60s",
    seed: int = 0,
    compile: bool = False,
    memory: float | None = None,
    tell: Tell = lambda line: None,
) -> Report:
    """Audit operators that are described by specs (`lanewise.audit.catalogue`); arguments and errors as for `audit`.

    Args:
        specs: the operators.
        device: where to run them.
        budget: for all of them together.
        seed: of everything that is random.
        compile: also under `torch.compile`.
        memory: GiB that a case may use.
        tell: called with one line when something was found.

    Raises:
        DeviceError: no process can use the device. One that is lost on the way ends the audit with `Report.stopped`.
    """
    limit, device = parse_budget(budget), _checked(device)
    begin = time.monotonic()
    notes: list[str] = []
    if compile and (reason := _no_compiler(device)):
        notes.append(f"torch.compile was skipped: {reason}")
        compile = False
    allowed = int(memory * 2**30) if memory is not None else _free_memory(device) // 2
    plan = Plan(device=device, memory=allowed, compile=compile, window=_window(device), seed=seed)
    sweep, coverage, stopped = Sweep(specs, plan), Coverage(), None
    preload = ("torch._inductor.compile_fx",) if compile else ()
    shared = {spec.name: spec for spec in specs}
    together = COMPILED_TOGETHER if compile else TOGETHER
    with Isolator(shared, device=device, group=together, preload=preload) as isolator:
        notes += [isolator.note] if isolator.note else []
        runner = _Runner(isolator, shared, limit.seconds)
        least = 300.0 if compile else 30.0  # seconds for each failure: shrinking compiles every candidate
        investigator = Investigator(runner.one, runner.explained, runner.kernels, limit=max(least, limit.seconds / 4))
        for spec, result in runner.all(islice(sweep, limit.cases), together):
            sweep.tell(result)
            ill = result.fatal or result.outcome == "crashed"
            if ill and (stopped := isolator.unusable()) is not None:
                coverage.add(result, spec)
                break
            if result.outcome in ("failed", "crashed"):
                result, found = investigator.look_into(spec, result)
                if found is not None:
                    tell(str(found))
            coverage.add(result, spec)
    for result in sweep.too_large:
        coverage.add(result, shared[result.case.operator])
    tried = coverage.by_operator()
    if untried := [spec.name for spec in specs if spec.name not in tried]:
        some = ", ".join((*untried[:UNTRIED_SHOWN], *["..."] * (len(untried) > UNTRIED_SHOWN)))
        notes.append(f"the budget was over before {len(untried)} of {len(specs)} operators had a case: {some}")
    return Report(
        findings=investigator.findings,
        coverage=coverage,
        environment=environment(device),
        notes=notes,
        seed=seed,
        budget=str(budget),
        seconds=time.monotonic() - begin,
        stopped=stopped and f"{device} cannot be used any more: {stopped}",
    )


class _Runner:
    """Sends cases away and reads what comes back, until the time is over."""

    def __init__(self, isolator: Isolator, shared: Mapping[str, Spec], seconds: float) -> None:
        self._isolator, self._shared = isolator, shared
        self._seconds, self._deadline = seconds, time.monotonic() + seconds

    def all(self, points: Iterator[tuple[Spec, Case]], batch: int) -> Iterator[tuple[Spec, Result]]:
        """The results of the points, batch by batch; one case at least."""
        while chosen := list(islice(points, batch)):
            # All of a batch first: what failed is looked into by the same server.
            yield from list(self._some(chosen))
            if time.monotonic() > self._deadline:
                return

    def _some(self, chosen: Sequence[tuple[Spec, Case]]) -> Iterator[tuple[Spec, Result]]:
        tasks = [self._task(spec, case, None) for spec, case in chosen]
        ends = self._isolator.run_all(tasks, timeout=self._timeout(chosen))
        for (spec, case), ended in zip(chosen, ends, strict=True):
            yield spec, as_result(ended, case)
            if time.monotonic() > self._deadline:
                return

    def one(self, spec: Spec, case: Case, only: tuple[str, str] | None) -> Result:
        """The result of one case in a process of its own."""
        function, args = self._task(spec, case, only)
        return as_result(self._isolator.run(function, *args, timeout=self._timeout([(spec, case)])), case)

    def explained(self, spec: Spec, case: Case, argument: str) -> float | None:
        """`examine.explained`, in a process of its own; None too when that ended otherwise."""
        return self._elsewhere(_explained_there, spec, case, argument)

    def kernels(self, spec: Spec, case: Case) -> tuple[str, ...]:
        """`suspect.kernels_of`, in a process of its own; empty too when that ended otherwise."""
        return self._elsewhere(_kernels_there, spec, case) or ()

    def _elsewhere(self, function: Callable[..., Any], spec: Spec, case: Case, *args: Any) -> Any:
        _, (sent, *_) = self._task(spec, case, None)
        return self._isolator.run(function, sent, case, *args, timeout=self._timeout([(spec, case)])).value

    def _task(self, spec: Spec, case: Case, only: tuple[str, str] | None) -> Task:
        # A spec that the other process has is sent by its name: a user's may hold gigabytes of tensors.
        return _examine_there, (spec.name if spec.name in self._shared else spec, case, only)

    def _timeout(self, points: Sequence[tuple[Spec, Case]]) -> float:
        slow = any(case.compiled or spec.compiles for spec, case in points)  # compilers run
        least, most = (120.0, 300.0) if slow else (30.0, 120.0)
        return min(most, max(least, self._seconds / 20))  # no case takes more than a small part of all


def _examine_there(shared: Mapping[str, Spec], spec: Spec | str, case: Case, only: tuple[str, str] | None) -> Result:
    return examine(shared[spec] if isinstance(spec, str) else spec, case, only)


def _explained_there(shared: Mapping[str, Spec], spec: Spec | str, case: Case, argument: str) -> float | None:
    return explained(shared[spec] if isinstance(spec, str) else spec, case, argument)


def _kernels_there(shared: Mapping[str, Spec], spec: Spec | str, case: Case) -> tuple[str, ...]:
    return kernels_of(shared[spec] if isinstance(spec, str) else spec, case)


def as_result(ended: Ended, case: Case) -> Result:
    """What it means for a case how its process ended."""
    if ended.how == "done":
        return ended.value
    if ended.how == "hung":
        return Result(case, "inconclusive", ended.reason)
    if "SIGKILL" in ended.reason:  # nobody here sends it: the system does, when memory runs out
        return Result(case, "inconclusive", f"{ended.reason} (out of memory?)")
    if "exit code" in ended.reason:  # it left in good order, or an exception went through: nothing about gradients
        return Result(case, "inconclusive", ended.reason)
    return Result(case, "crashed", ended.reason)


def parse_budget(budget: str | float) -> Budget:
    """What "60s", "10m", "1.5h", a number of seconds, or "200 cases" allow.

    Raises:
        InputError: it is none of these.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([a-z]*)\s*", str(budget))
    if match is None or match[2] not in (*_UNITS, "cases") or float(match[1]) <= 0:
        raise InputError("budget", got=repr(budget), expected='a time such as "60s", "10m" or "1h", or "200 cases"')
    if match[2] == "cases":
        return Budget(math.inf, max(1, int(float(match[1]))))
    return Budget(float(match[1]) * _UNITS[match[2]])


def default_device() -> str:
    """The GPU when there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def environment(device: str) -> dict[str, Any]:
    """What a reader of the report wants to know about the machine."""
    target = _target(device)
    return {
        "lanewise": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": device,
        "name": torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.processor() or "cpu",
        "target": target.name if target else None,
        "wave": target.wave if target else None,
        "threads": torch.get_num_threads(),
        "allow_tf32": {
            "matmul": torch.backends.cuda.matmul.allow_tf32,
            "cudnn": torch.backends.cudnn.allow_tf32,
        },
    }


def _checked(device: str) -> str:
    """The device, when there is one."""
    kind = device.split(":")[0]
    there = kind == "cpu" or (kind == "cuda" and torch.cuda.is_available())
    there = there or (kind in ("xpu", "mps") and getattr(torch, kind).is_available())
    if not there:
        raise InputError("device", got=repr(device), expected="one that is there", fix="device='cpu'")
    return device


def _target(device: str) -> Any:
    from lanewise.target import detect

    try:
        return detect(device)
    except Exception:  # an unknown architecture: its window and wave cannot be told, everything else can
        return None


def _window(device: str) -> int:
    from lanewise.target.table import WINDOW_BYTES

    target = _target(device)
    return target.window_bytes if target else WINDOW_BYTES


def _free_memory(device: str) -> int:
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(device)[0]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) * 1024
    except (OSError, StopIteration):  # not Linux
        return 4 * 2**30


def _no_compiler(device: str) -> str | None:
    """Why `torch.compile` cannot be tried; None when it can."""
    if device != "cpu":
        return None
    import shutil

    compilers = ("g++", "clang++", "c++", "cl")
    return None if any(map(shutil.which, compilers)) else f"there is no C++ compiler ({', '.join(compilers)})"
