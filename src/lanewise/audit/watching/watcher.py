"""`watch`: what happens at every step of a training run, and what is made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import torch
from torch import Tensor
from torch.optim import Optimizer

from lanewise.audit.finding import Finding
from lanewise.audit.watching.alarm import Alarm
from lanewise.audit.watching.clipping import OnClipping
from lanewise.audit.watching.hooks import on_steps
from lanewise.audit.watching.jumps import Jumps
from lanewise.audit.watching.mailbox import Mailbox
from lanewise.audit.watching.nonfinite import NonFinite
from lanewise.audit.watching.norms import Block, Norms
from lanewise.audit.watching.pace import Pace
from lanewise.audit.watching.parameters import Model, Parameters, local
from lanewise.audit.watching.probing import Covered, Probing
from lanewise.audit.watching.replay import Replay
from lanewise.audit.watching.rows import Rows, judge
from lanewise.audit.watching.telling import OnFinding, Teller
from lanewise.audit.watching.trace import Passed, Trace, compiled
from lanewise.audit.watching.updates import Updates
from lanewise.audit.watching.zeros import UNKNOWN, Zeros, dead, reason
from lanewise.errors import InputError

EVERY = 25
FIRST = 500  # steps in which every look is a close one: what is wrong is mostly wrong from the start
SHARE = 0.01  # of the time after those, for close looks
RECORDS = 0.5  # of that share again, for the norms of steps


class Watch:
    """Watch a model while it trains: `watch(model, optimizer)`.

    Everything starts with this call and ends with `close`, or with the `with` block. Steps are noticed by hooks on the
    optimizer; a loop without a torch optimizer calls `before_step` and `after_step` itself around each update. Each
    step costs the norms of the gradients, a few launches that nobody waits for; every `every` steps the norms are read.
    In the first 500 steps that look is a close one: updates are compared, and one layer is probed with its real inputs.
    Later there are as many close looks as a share of the time pays for, and those that a gradient of zero asks for; and
    where steps are so short that half of that share does not pay for the norms of all (0.3 ms for 160 parameters),
    norms of as many as it does pay for.

    Args:
        model: a module; or a mapping from names to leaf tensors, or a function that returns one, which is asked anew at
            every step (Gaussians whose tensors are replaced).
        optimizer: whose steps count, or several; None for every optimizer that holds one of the parameters.
        every: how many steps lie between two looks.
        share: of the time after the first 500 steps, that close looks to a module may take; 1 for every look, and for
            the norms of every step.
        on_finding: "warn" (a `FindingWarning`), "raise" (a `FindingError`, out of the optimizer's `step`), "ignore"
            (`Watch.findings` has them), or a function of the finding. Each finding is told once.
        log: file to which a line of JSON is appended for everything that happens.
        probe: whether layers are probed.
        seed: of what is random here. torch's own generators are never touched.
        step: number of the first step: how many a run that is resumed has taken before.

    Attributes:
        step: steps completed, those before the watch began included.
        notes: what a reader should know: parameters that are unused, layers that are not probed, and why.

    Raises:
        InputError: an argument cannot be used.
        StorageError: the log cannot be written.
    """

    def __init__(
        self,
        model: Model,
        optimizer: Optimizer | Sequence[Optimizer] | None = None,
        *,
        every: int = EVERY,
        share: float = SHARE,
        on_finding: OnFinding = "warn",
        log: Path | str | None = None,
        probe: bool = True,
        seed: int = 0,
        step: int = 0,
    ) -> None:
        if not 0 <= share <= 1:
            raise InputError("share", got=repr(share), expected="a share of the time, from 0 to 1")
        if not isinstance(every, int) or isinstance(every, bool) or every < 1:
            raise InputError("every", got=repr(every), expected="a whole number of steps, at least 1")
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            raise InputError("step", got=repr(step), expected="a whole number of steps, at least 0")
        self.every, self.share, self.step, self._first = every, share, step, step
        self._looks, self._records = Pace(share), Pace(1 if share == 1 else share * RECORDS)
        self._affordable = self._recorded = True  # a close look, the norms of this step
        self.notes: dict[str, str] = {}
        self._parameters, self._teller = Parameters(model), Teller(on_finding, log)
        self._mail, self._norms = Mailbox(), Norms(every)
        self._updates, self._zeros, self._jumps, self._nonfinite = Updates(seed), Zeros(), Jumps(), NonFinite()
        self._rows = Rows(self._parameters, seed)
        self._probing = Probing(self._parameters.module, seed) if probe else None
        # Where nobody waits for a device, a step that goes wrong is looked into before its update.
        at_once = every == 1 or next(iter(self._parameters.current().values())).device.type == "cpu"
        module = self._parameters.module
        self._replay = Replay(module) if at_once and module is not None and not compiled(module) else None
        self._forward: Passed | None = None
        self._trace: Trace | None = None
        self._order: tuple[str, ...] = ()  # paths of layers, as they run
        self._explained: set[str] = set()  # of which the reason is known
        self._zero: dict[str, int] = {}  # parameters whose gradient is zero for a reason to be found, and for how long
        self._handles = [
            *on_steps(
                optimizer,
                lambda: list(self._parameters.current().values()),
                lambda stepping: self.before_step(optimizer=stepping),
                self.after_step,
            ),
            OnClipping(self._before_clipping),
        ]
        self._closed = False
        self._teller.write(
            "start", step, every=every, parameters=len(self._parameters.current()), torch=torch.__version__
        )
        self._listen()

    # --- the run

    @property
    def findings(self) -> list[Finding]:
        """What was found, each once."""
        return self._teller.findings

    @property
    def coverage(self) -> Mapping[tuple[str, str], Covered]:
        """What the probes came to, by (place, argument)."""
        return {} if self._probing is None else self._probing.coverage

    @property
    def looking(self) -> bool:
        """Whether the present step is one that is looked at."""
        return self.step % self.every == 0

    @property
    def _closely(self) -> bool:
        return self.looking and self._affordable

    def before_step(
        self,
        gradients: Mapping[str, Tensor] | None = None,
        optimizer: Optimizer | None = None,
        valid: Tensor | None = None,
    ) -> None:
        """The gradients of a step are there, and the parameters are about to change.

        Args:
            gradients: by parameter; those in `.grad` when None.
            optimizer: that makes the step, where there is one.
            valid: bool [] on the device, where only that knows whether the step counts.
        """
        if self._closed:
            return
        if self._trace is not None:
            self._trace.remove()
            self._order = self._trace.order or ("",)
        scaled = getattr(optimizer, "found_inf", None) is not None
        with self._records.doing(), torch.no_grad():
            self._mail.collect()
            if not self._recorded:
                return
            parameters = self._parameters.refresh() if self.looking else self._parameters.current()
            if gradients is None:
                own = parameters if optimizer is None else self._parameters.changed_by(optimizer)
                gradients = {name: grad for name, p in own.items() if (grad := p.grad) is not None}
            self._norms.record(self.step, parameters, gradients, excused=scaled, valid=valid)
            if self._replay is not None and not scaled and not self._norms.sound():
                self._forward = self._replay.origin()
                self._drop_replay()
                self._norms.send(self._mail, self._judge_norms)
            if self.looking:
                self._norms.send(self._mail, self._judge_norms)
        if self._closely:
            with self._looks.doing():
                self._look_closely(parameters, gradients, optimizer, valid, scaled)

    def _look_closely(
        self,
        parameters: Mapping[str, Tensor],
        gradients: Mapping[str, Tensor],
        optimizer: Optimizer | None,
        valid: Tensor | None,
        scaled: bool,
    ) -> None:
        with torch.no_grad():
            self._count_rows(gradients, valid)
            self._updates.before(parameters, {} if scaled else gradients, optimizer, valid)
        self._explain_zeros(gradients)
        if self._probing is not None:
            self.alarm(self._probing.judge(self.step))

    def after_step(self) -> None:
        """The parameters have changed."""
        if self._closed:
            return
        if self._closely:
            with self._looks.doing(), torch.no_grad():
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
            self._norms.send(self._mail, self._judge_norms)
            self._mail.collect(wait=True)
            if self._parameters.module is None:
                self.alarm([dead(name, self.step - 1, steps, UNKNOWN.text) for name, steps in self._zero.items()])
        finally:
            covered = [] if self._probing is None else self._probing.covered()
            self._teller.write("end", self.step, findings=len(self.findings), notes=self.notes, coverage=covered)

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- what is looked at

    def _before_clipping(self, clipped: Sequence[Tensor]) -> None:
        if not self._recorded:
            return
        with self._records.doing(), torch.no_grad():
            own = {id(p) for p in clipped}
            parameters = self._parameters.current().items()
            self._norms.keep({name: p.grad for name, p in parameters if id(p) in own and p.grad is not None})

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
        """Decide what is looked at in the step that comes, and have hooks in place for a close look."""
        module = self._parameters.module
        first = self.step - self._first < FIRST
        if first:
            self._looks.restart()
            self._records.restart()
        early = module is None or first
        self._affordable = early or bool(self._zero) or self._looks.pays()
        self._recorded = early or self.looking or self._replay is not None or self._records.pays()
        if self._closely and module is not None and (self._zero or not self._order):
            self._trace = Trace(module)
        if self._closely and self._probing is not None:
            self._probing.arm()

    def _judge_norms(self, block: Block) -> None:
        self._teller.write("norms", block.steps[-1], norm=block.total)
        if not block.finite:
            self.alarm(self._nonfinite.judge(block, *self._execution(), self._forward))
        self.alarm(self._jumps.judge(block))
        self._zero |= {name: steps for name, steps in self._zeros.judge(block) if name not in self._explained}
        self.notes |= dict.fromkeys(self._zeros.unused, "unused: it has no gradient")

    def _explain_zeros(self, gradients: Mapping[str, Tensor]) -> None:
        """Ask why gradients have been zero for so many steps: the layers, as this step saw them."""
        trace, self._trace = self._trace, None
        if not self._zero or (trace is None and self._parameters.module is not None):
            return
        passed = None if trace is None else trace.read()
        for name, steps in self._zero.items():
            if name not in gradients or bool((local(gradients[name]) != 0).any()):  # absent, or alive by now
                continue
            self._explained.add(name)
            why = UNKNOWN if passed is None else reason(self._parameters.owner(name)[0], passed)
            if why.lost:
                self.alarm([dead(name, self.step, steps, why.text)])
                continue
            self.notes[name] = why.text
            self._teller.write("zero", self.step, parameter=name, reason=why.text)
            if why.suspect is not None and self._probing is not None:
                self._probing.urge(why.suspect, "input")
        self._zero.clear()

    def _count_rows(self, gradients: Mapping[str, Tensor], valid: Tensor | None) -> None:
        """Send off which rows are zero in one gradient and not in its siblings."""
        step = self.step
        for names, counts in self._rows.count(gradients, valid):
            self._mail.send(counts, lambda counts, names=names: self.alarm(judge(step, names, counts)))

    def _compare_updates(self, parameters: Mapping[str, Tensor]) -> None:
        found = self._updates.after(parameters)
        if found is not None:
            names, counts = found
            step, dtypes = self.step, {name: parameters[name].dtype for name in names}
            self._mail.send(counts, lambda c: self.alarm(self._updates.judge(step, names, c, dtypes)))

    def alarm(self, alarms: Iterable[Alarm]) -> None:
        """Turn alarms into findings, each told once."""
        for alarm in alarms:
            self._teller.tell(alarm.finding(self._parameters))


watch = Watch  # as a verb: `with watch(model, optimizer):`
