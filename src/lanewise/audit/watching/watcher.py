"""`watch`: what happens at every step of a training run, and what is made of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from lanewise.audit.finding import Finding
from lanewise.audit.report import finding_facts
from lanewise.audit.watching import rows
from lanewise.audit.watching.alarm import Alarm
from lanewise.audit.watching.jumps import Jumps
from lanewise.audit.watching.mailbox import Mailbox
from lanewise.audit.watching.nonfinite import NonFinite
from lanewise.audit.watching.norms import Block, Norms
from lanewise.audit.watching.parameters import Model, Parameters
from lanewise.audit.watching.probing import Covered, Probing
from lanewise.audit.watching.replay import Replay
from lanewise.audit.watching.trace import Passed, Trace, compiled
from lanewise.audit.watching.updates import Updates
from lanewise.audit.watching.zeros import Zeros, reason
from lanewise.errors import InputError, LanewiseError
from lanewise.io.json_lines import JsonLines

EVERY = 25
OnFinding = Literal["warn", "raise", "ignore"] | Callable[[Finding], None]


class FindingWarning(UserWarning):
    """A watched run shows a finding."""


class FindingError(LanewiseError, ArithmeticError):
    """A watched run shows a finding, and was to stop; `finding` has it."""

    exit_code = 1

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        super().__init__(f"{finding} in step {finding.evidence.get('step')}. {finding.cause}")


def watch(
    model: Model,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    *,
    every: int = EVERY,
    on_finding: OnFinding = "warn",
    log: Path | str | None = None,
    probe: bool = True,
    seed: int = 0,
) -> Watch:
    """Watch a model while it trains.

    Everything starts with this call and ends with `close`, or with the `with` block. Steps are noticed by hooks on the
    optimizer. Each step costs the norms of the gradients, a few launches that nobody waits for; every `every` steps the
    norms are read, updates are compared, and one layer is probed with its real inputs.

    Args:
        model: a module; or a mapping from names to leaf tensors, or a function that returns one, which is asked anew at
            every step (Gaussians whose tensors are replaced).
        optimizer: whose steps count, or several; None for every optimizer that holds one of the parameters.
        every: how many steps lie between two looks.
        on_finding: "warn" (a `FindingWarning`), "raise" (a `FindingError`, out of the optimizer's `step`), "ignore"
            (`Watch.findings` has them), or a function of the finding. Each finding is told once.
        log: file to which a line of JSON is appended for everything that happens.
        probe: whether layers are probed.
        seed: of what is random here. torch's own generators are never touched.

    Returns:
        the running watch.

    Raises:
        InputError: an argument cannot be used.
        StorageError: the log cannot be written.
    """
    return Watch(model, optimizer, every=every, on_finding=on_finding, log=log, probe=probe, seed=seed)


class Watch:
    """A running watch; see `watch`.

    A loop without a torch optimizer calls `before_step` and `after_step` itself around each update.

    Attributes:
        step: steps completed since the watch began.
        findings: what was found, each once.
        notes: what a reader should know: parameters that are unused, layers that are not probed, and why.
    """

    def __init__(
        self,
        model: Model,
        optimizer: Optimizer | Sequence[Optimizer] | None = None,
        *,
        every: int = EVERY,
        on_finding: OnFinding = "warn",
        log: Path | str | None = None,
        probe: bool = True,
        seed: int = 0,
    ) -> None:
        _check(every, on_finding)
        self.every, self.on_finding, self.step = every, on_finding, 0
        self.findings: list[Finding] = []
        self.notes: dict[str, str] = {}
        self._parameters = Parameters(model)
        self._mail, self._norms = Mailbox(), Norms(every)
        self._updates, self._zeros, self._jumps, self._nonfinite = Updates(seed), Zeros(), Jumps(), NonFinite()
        self._probing = Probing(self._parameters.module, seed) if probe else None
        # Where nobody waits for a device, a step that goes wrong is looked into before the update spoils the parameters.
        at_once = every == 1 or next(iter(self._parameters.current().values())).device.type == "cpu"
        module = self._parameters.module
        self._replay = Replay(module) if at_once and module is not None and not compiled(module) else None
        self._forward: Passed | None = None
        self._trace: Trace | None = None
        self._order: tuple[str, ...] = ()  # paths of layers, as they run
        self._explained: set[str] = set()  # of which the reason is known
        self._zero: dict[str, int] = {}  # parameters whose gradient is zero for a reason to be found, and for how long
        self._recorded = -1  # the newest step whose norms are known
        self._told: set[tuple[str, str, str]] = set()
        self._handles = self._hook(optimizer)
        self._log = None if log is None else JsonLines(log)
        self._closed = False
        self._write("start", every=every, parameters=len(self._parameters.current()), torch=torch.__version__)
        self._listen()

    # --- the run

    @property
    def coverage(self) -> Mapping[tuple[str, str], Covered]:
        """What the probes came to, by (place, argument)."""
        return {} if self._probing is None else self._probing.coverage

    @property
    def looking(self) -> bool:
        """Whether the present step is one that is looked at closely."""
        return self.step % self.every == 0

    def before_step(self, gradients: Mapping[str, Tensor] | None = None, optimizer: Optimizer | None = None) -> None:
        """The gradients of a step are there, and the parameters are about to change.

        Args:
            gradients: by parameter; those in `.grad` when None.
            optimizer: that makes the step, where there is one.
        """
        if self._closed:
            return
        self._mail.collect()
        parameters = self._parameters.refresh() if self.looking else self._parameters.current()
        if gradients is None:
            gradients = {name: p.grad for name, p in parameters.items() if p.grad is not None}
        scaled = getattr(optimizer, "found_inf", None) is not None
        with torch.no_grad():
            self._recorded = self.step
            self._norms.record(parameters, gradients, excused=scaled)
            if self._replay is not None and not scaled and not self._norms.sound():
                self._forward = self._replay.origin()
                self._drop_replay()
                self._norms.send(self._mail, self.step, self._judge_norms)
            if self.looking:
                self._norms.send(self._mail, self.step, self._judge_norms)
                self._count_rows(parameters, gradients)
                self._updates.before(parameters, {} if scaled else gradients, optimizer)
        if self.looking:
            self._read_trace()
        if self.looking and self._probing is not None:
            self.alarm(self._probing.judge(self.step))

    def after_step(self) -> None:
        """The parameters have changed."""
        if self._closed:
            return
        if self.looking:
            with torch.no_grad():
                self._compare_updates(self._parameters.current())
        self.step += 1
        self._listen()

    def close(self) -> None:
        """Remove every hook, and tell what was still on its way."""
        if self._closed:
            return
        for handle in self._handles:
            handle.remove()
        if self._probing is not None:
            self._probing.disarm()
            self.notes |= self._probing.notes
        self._drop_replay()
        if self._trace is not None:
            self._trace.remove()
        self._closed = True
        try:
            self._norms.send(self._mail, self._recorded, self._judge_norms)
            self._mail.collect(wait=True)
        finally:
            self._write("end", findings=len(self.findings), notes=self.notes, coverage=self._coverage())

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- what is looked at

    def _execution(self) -> tuple[dict[str, int], dict[int, str]]:
        """Of each parameter the number of its layer in the order of execution, and how findings call the layers."""
        number = {path: i for i, path in enumerate(self._order)}
        names = self._parameters.current()
        places = {name: number[path] for name in names if (path := self._parameters.owner(name)[0]) in number}
        return places, {i: self._parameters.described(name) for name, i in places.items()}

    def _drop_replay(self) -> None:
        if self._replay is not None:
            self._replay.remove()
            self._replay = None

    def _listen(self) -> None:
        """Before a step that is looked at, have hooks in place."""
        module = self._parameters.module
        if self.looking and module is not None and (self._zero or not self._order):
            self._trace = Trace(module)
        if self.looking and self._probing is not None:
            self._probing.arm()

    def _judge_norms(self, block: Block) -> None:
        self._write("norms", last=block.first + len(block.values) - 1, norm=_total(block))
        places, called = self._execution()
        self.alarm(self._nonfinite.judge(block, places, called, self._forward))
        self.alarm(self._jumps.judge(block))
        for name, steps in self._zeros.judge(block):
            self._suspect(name, steps, block.first + len(block.values) - 1)
        self.notes |= dict.fromkeys(self._zeros.unused, "unused: it has no gradient")

    def _suspect(self, name: str, steps: int, step: int) -> None:
        """Ask why a gradient has been zero for so many steps: at the next look, where there are layers to ask."""
        if name in self._explained:
            return
        if self._parameters.module is not None:
            self._zero[name] = steps
            return
        self._explained.add(name)
        cause = (
            "lost on its way: a kernel that writes nothing, or a function that hands out zeros. Where the loss does "
        )
        cause += "not depend on it, do not give it to watch"
        self.alarm([_dead(name, step, steps, cause)])

    def _read_trace(self) -> None:
        """What every layer saw in this step."""
        trace, self._trace = self._trace, None
        if trace is None:
            return
        trace.remove()
        self._order = trace.order or ("",)
        passed = trace.read() if self._zero else []
        for name, steps in self._zero.items():
            why = reason(self._parameters.owner(name)[0], passed)
            self._explained.add(name)
            if why.lost:
                self.alarm([_dead(name, self.step, steps, why.text)])
                continue
            self.notes[name] = why.text
            self._write("zero", parameter=name, reason=why.text)
            if why.suspect is not None and self._probing is not None:
                self._probing.urge(why.suspect, "input")
        self._zero.clear()

    def _count_rows(self, parameters: Mapping[str, Tensor], gradients: Mapping[str, Tensor]) -> None:
        """Send off which rows are zero in one gradient and not in its siblings."""
        shapes = {name: gradients[name].shape for name in parameters if name in gradients}
        step = self.step
        for names in rows.groups(shapes, {name: self._parameters.owner(name)[0] for name in shapes}):
            chosen = [gradients[name] for name in names]
            if not any(g.is_sparse for g in chosen):
                self._mail.send(rows.count(chosen), lambda counts, names=names: self._judge_rows(step, names, counts))

    def _judge_rows(self, step: int, names: Sequence[str], counts: Tensor) -> None:
        for pattern in rows.patterns(names, counts):
            evidence = {"rows lost": pattern.lost, "rows that live elsewhere": pattern.live, "where": pattern.where}
            cause = (
                f"lost where {pattern.where}, while {', '.join(n for n in names if n != pattern.parameter)} live there"
            )
            self.alarm([Alarm("LW401", pattern.parameter, step, pattern.chance, cause, evidence)])

    def _compare_updates(self, parameters: Mapping[str, Tensor]) -> None:
        found = self._updates.after(parameters)
        if found is not None:
            names, counts = found
            step, dtypes = self.step, {name: parameters[name].dtype for name in names}
            self._mail.send(counts, lambda c: self.alarm(self._updates.judge(step, names, c, dtypes)))

    # --- telling

    def alarm(self, alarms: Iterable[Alarm]) -> None:
        """Turn alarms into findings, each told once."""
        for alarm in alarms:
            parameter = self._parameters.current().get(alarm.parameter)
            place = alarm.place or self._parameters.described(alarm.parameter)
            argument = alarm.argument or alarm.parameter.rpartition(".")[2]
            if (alarm.code, place, argument) in self._told:
                continue
            self._told.add((alarm.code, place, argument))
            finding = Finding(
                alarm.code,
                place,
                argument,
                {} if parameter is None else {argument: list(parameter.shape)},
                "" if parameter is None else str(parameter.dtype).removeprefix("torch."),
                {} if parameter is None else {"device": str(parameter.device)},
                {"step": alarm.step, "false_alarm_probability": alarm.false_alarm, **alarm.evidence},
                cause=alarm.cause,
            )
            self._tell(finding)

    def _tell(self, finding: Finding) -> None:
        self.findings.append(finding)
        self._write("finding", finding=finding_facts(finding))
        if callable(self.on_finding):
            self.on_finding(finding)
        elif self.on_finding == "raise":
            raise FindingError(finding)
        elif self.on_finding == "warn":
            step = finding.evidence["step"]
            warnings.warn(f"{finding} in step {step}. {finding.cause}", FindingWarning, stacklevel=2)

    def _coverage(self) -> list[dict[str, Any]]:
        return (
            []
            if self._probing is None
            else [
                {"place": place, "argument": argument, **vars(covered)}
                for (place, argument), covered in self._probing.coverage.items()
            ]
        )

    def _write(self, event: str, **facts: Any) -> None:
        if self._log is not None:
            self._log.write({"event": event, "step": self.step, **facts})

    # --- hooks

    def _hook(self, optimizer: Optimizer | Sequence[Optimizer] | None) -> list[Any]:
        def before(stepping: Optimizer, *_: Any) -> None:
            if optimizer is not None or self._mine(stepping):
                self.before_step(optimizer=stepping)

        def after(stepping: Optimizer, *_: Any) -> None:
            if optimizer is not None or self._mine(stepping):
                self.after_step()

        if optimizer is None:
            return [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)]
        several = [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer)
        for each in several:
            if not isinstance(each, Optimizer):
                raise InputError(
                    "optimizer",
                    got=type(each).__name__,
                    expected="torch.optim.Optimizer, several of them, or None",
                    fix="without one, call before_step(gradients) and after_step() of the watch around every update",
                )
        hooks = [(each.register_step_pre_hook(before), each.register_step_post_hook(after)) for each in several]
        return [handle for pair in hooks for handle in pair]

    def _mine(self, optimizer: Optimizer) -> bool:
        own = {id(p) for p in self._parameters.current().values()}
        return any(id(p) in own for group in optimizer.param_groups for p in group["params"])


def _dead(name: str, step: int, steps: int, cause: str) -> Alarm:
    # A gradient that rounds to exactly zero in every element for so many steps has no law: the layers were asked.
    return Alarm("LW401", name, step, 0.0, cause, {"steps with a gradient of exactly zero": steps})


def _total(block: Block) -> float:
    """The norm of all gradients in the last step of a block."""
    return float(block.values[-1].clamp_min(0).square().sum().sqrt())


def _check(every: int, on_finding: OnFinding) -> None:
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        raise InputError("every", got=repr(every), expected="a whole number of steps, at least 1")
    if not callable(on_finding) and on_finding not in ("warn", "raise", "ignore"):
        raise InputError("on_finding", got=repr(on_finding), expected='"warn", "raise", "ignore", or a function')
