"""Probes of a running model: one layer a look, one argument, with what the layer was really given."""

from __future__ import annotations

import functools
import random
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from lanewise.audit import tolerance
from lanewise.audit.call import Call, ForwardError
from lanewise.audit.probes import probe
from lanewise.audit.probes.measure import norm
from lanewise.audit.verdict import Verdict, skipped
from lanewise.audit.watching.alarm import Alarm
from lanewise.audit.watching.capture import Capture, TooLargeError, function_call, module_call
from lanewise.audit.watching.layers import ACTIVATIONS, Kind, kind_of, parametrized
from lanewise.audit.watching.parameters import described
from lanewise.audit.watching.references import Site, sites
from lanewise.audit.watching.trace import leaves

DIRECTIONS = 2
AGAIN = 2  # more times that a failed probe must fail, with other directions
# What the probes' measurements bound: at most one false alarm in 10,000 clean probes (benchmarks/audit_power.py), and
# repeats that draw anew.
FALSE_ALARM = 1e-4 ** (1 + AGAIN)
UNITS, APART = (
    1024,
    0.1,
)  # roundings by which a forward pass may differ from torch's, and the largest relative difference
MISSES = 2  # steps in which a layer was not called when it was its turn; then it is left out


@dataclass
class Suspect:
    """A layer or a function, and one argument of it (None: each in turn).

    Attributes:
        place: how findings call it.
        target: a module with what is known about it, or the site of a function.
        argument: whose gradient.
        visits: how often it was its turn.
    """

    place: str
    target: tuple[nn.Module, Kind] | Site
    argument: str | None
    visits: int = 0


@dataclass
class Covered:
    """What probes of one argument came to: outcomes, and the last reason for which one could not tell."""

    outcomes: Counter[str] = field(default_factory=Counter)
    reason: str = ""
    miss_probability: float | None = None


class Probing:
    """Takes the suspects of a model in turn, in a random order that is drawn anew every round.

    Args:
        model: whose layers are probed; None for a mapping of parameters, where only registered functions are.
        seed: of the order and the directions.

    Attributes:
        coverage: by (place, argument).
        notes: layers that are not probed, and why.
    """

    def __init__(self, model: nn.Module | None, seed: int) -> None:
        self._random, self._seed = random.Random(seed), seed
        self.coverage: dict[tuple[str, str], Covered] = {}
        self.notes: dict[str, str] = {}
        self._model = model
        self._suspects = [*self._of_layers(model), *(Suspect(site.name, site, None) for site in sites())]
        self._round: list[Suspect] = []
        self._missed: Counter[str] = Counter()  # by place, how often it was not called when it was its turn
        self._urgent: list[Suspect] = []
        self._armed: tuple[Suspect, Any] | None = None
        self._capture: Capture | None = None

    def arm(self) -> None:
        """Listen to the next suspect in the step that comes."""
        self.disarm()
        suspect = self._next()
        if suspect is None:
            return
        self._capture = None
        if isinstance(suspect.target, Site):
            self._armed = suspect, _Replaced(suspect.target, self._keep)
        else:
            hook = suspect.target[0].register_forward_hook(self._on_forward, with_kwargs=True)
            self._armed = suspect, hook

    def disarm(self) -> None:
        """Stop listening."""
        if self._armed is not None:
            self._armed[1].remove()
            self._armed = None

    def urge(self, path: str, argument: str) -> None:
        """Take this argument of this layer next."""
        module = None if self._model is None else self._model.get_submodule(path)
        kind = None if module is None else kind_of(module) or (Kind() if isinstance(module, ACTIVATIONS) else None)
        if module is not None and kind is not None:
            self._urgent.append(Suspect(described(path, module), (module, kind), argument))

    def judge(self, step: int) -> Iterator[Alarm]:
        """Probe what was listened to; the step's backward pass is done and its update is not."""
        if self._armed is None:
            return
        suspect, capture = self._armed[0], self._capture
        self.disarm()
        self._capture = None
        if capture is None:
            self._miss(suspect)
            return
        suspect.visits += 1
        self._missed[suspect.place] = 0
        argument = self._argument(suspect, capture)
        if argument is None:
            return
        with torch.enable_grad(), capture.as_it_was(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                verdict = self._verdict(suspect, capture, argument)
            except Exception as error:  # a probe that breaks is no reason to end a run
                verdict = skipped("probe", argument, f"{type(error).__name__}: {error}")
        covered = self.coverage.setdefault((suspect.place, argument), Covered())
        covered.outcomes[verdict.outcome] += 1
        covered.reason = verdict.reason if verdict.outcome != "passed" else covered.reason
        if verdict.ok:
            covered.miss_probability = verdict.miss_probability(0.01)
        if verdict.outcome == "failed":
            yield self._alarm(suspect, capture, argument, step, verdict)

    def covered(self) -> list[dict[str, Any]]:
        """The coverage as a list, for a log."""
        return [{"place": p, "argument": a, **vars(covered)} for (p, a), covered in self.coverage.items()]

    # --- one probe

    def _verdict(self, suspect: Suspect, capture: Capture, argument: str) -> Verdict:
        """The worst of the probe and its repeats, which must all fail to be believed."""
        if not capture.intact:
            return skipped("adjoint", argument, "its input was changed in place after the forward pass")
        seed = self._seed + 1000 * suspect.visits
        verdict = None
        for trial in range(1 + AGAIN):
            verdict = _probed(suspect, capture, argument, seed + trial)
            if verdict.outcome != "failed":
                return verdict if trial == 0 else _unconfirmed(verdict)
        assert verdict is not None
        return verdict

    def _alarm(self, suspect: Suspect, capture: Capture, argument: str, step: int, verdict: Verdict) -> Alarm:
        looks = f", which looks like {verdict.code}" if verdict.code else ""
        path = suspect.place.rpartition(" (")[0] if not isinstance(suspect.target, Site) else ""
        parameter = f"{path}.{argument}" if path and path != "model" else argument
        evidence = {
            "probe": verdict.probe,
            "residual": verdict.residual,
            "tolerance": verdict.tolerance,
            "looks_like": verdict.code,
            "reason": verdict.reason,
            "confirmed": f"{AGAIN} of {AGAIN} other draws",
            "shapes": {name: list(x.shape) for name, x in capture.tensors.items()},
            "gradient layout": capture.layout,
            "autocast": str(capture.autocast[1]) if capture.autocast[2] else None,
        }
        cause = f"the backward pass of {suspect.place} is not the transpose of its forward pass{looks}"
        return Alarm("LW404", parameter, step, FALSE_ALARM, cause, evidence, suspect.place, argument)

    # --- whose turn it is

    def _next(self) -> Suspect | None:
        if self._urgent:
            return self._urgent.pop(0)
        if not self._round:
            self._suspects = [s for s in self._suspects if self._missed[s.place] < MISSES]
            self._round = self._random.sample(self._suspects, len(self._suspects))
        return self._round.pop() if self._round else None

    def _argument(self, suspect: Suspect, capture: Capture) -> str | None:
        """The argument whose turn it is, by its name in the capture; None where its gradient is not asked for."""
        learned = sorted(name for name in capture.learned if capture.tensors[name].is_floating_point())
        if isinstance(suspect.target, Site):
            return learned[(suspect.visits - 1) % len(learned)] if learned else None
        if suspect.argument != "input":
            return suspect.argument
        return learned[(suspect.visits - 1) % len(learned)] if learned else self._drop(suspect)

    def _drop(self, suspect: Suspect) -> None:
        if suspect in self._suspects:
            self._suspects.remove(suspect)

    def _miss(self, suspect: Suspect) -> None:
        self._missed[suspect.place] += 1
        wanted = not isinstance(suspect.target, Site) or suspect.target.asked_for
        if self._missed[suspect.place] >= MISSES and wanted:
            self.notes[suspect.place] = (
                "not probed: no hook of it was called. It is not used, or it runs inside torch.compile or in another "
                "process; its gradients, updates and norms are watched all the same"
            )

    # --- what there is

    def _of_layers(self, model: nn.Module | None) -> Iterator[Suspect]:
        if model is None:
            return
        hooked = {p.rpartition(".")[0] for p, _ in leaves(model)} | {p for p, _ in leaves(model)}
        inside: list[str] = []  # of modules that are suspects as a whole
        for path, module in model.named_modules():
            if any(path.startswith(f"{whole}.") for whole in inside):
                continue
            kind, place = kind_of(module), described(path, module)
            if kind is None:
                if not list(module.children()) and list(module.parameters()):
                    self.notes[place] = "not probed: no reference is registered for layers of its kind"
                continue
            inside.append(path)
            why = (
                kind.refuse(module)
                or _unfit(module)
                or (None if path in hooked else "it is compiled as a part of another module")
            )
            if why is not None:
                self.notes[place] = f"not probed: {why}"
                continue
            for argument in (*(n for n, p in module.named_parameters() if p.requires_grad), "input"):
                yield Suspect(place, (module, kind), argument)

    # --- listening

    def _on_forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        # Without gradients: an evaluation in between, or the first pass of a checkpointed layer, which is run again.
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            self._keep(module.forward, args, kwargs, output)

    def _keep(self, forward: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        if self._capture is None:
            self._capture = Capture.of(forward, args, kwargs)
        self._capture.await_gradient(output)


class _Replaced:
    """A function that tells of its calls, in the place of the one that is called there."""

    def __init__(self, site: Site, tell: Any) -> None:
        self._site, original = site, getattr(site.owner, site.attribute)
        self._own = site.attribute in vars(site.owner)

        def told(*args: Any, **kwargs: Any) -> Any:
            output = original(*args, **kwargs)
            if torch.is_grad_enabled() and not torch.compiler.is_compiling():
                tell(site.signature, args, kwargs, output)
            return output

        self._original = vars(site.owner).get(site.attribute)
        setattr(site.owner, site.attribute, staticmethod(told) if isinstance(site.owner, type) else told)

    def remove(self) -> None:
        """Put the original back."""
        if self._own:
            setattr(self._site.owner, self._site.attribute, self._original)
        else:
            delattr(self._site.owner, self._site.attribute)


def _probed(suspect: Suspect, capture: Capture, argument: str, seed: int) -> Verdict:
    if isinstance(suspect.target, Site):
        build = functools.partial(function_call, suspect.target)
    else:
        build = functools.partial(module_call, *suspect.target)
    try:
        call = build(capture, argument, seed)
        why = _another_function(call, argument)
    except (ForwardError, TooLargeError, torch.OutOfMemoryError, MemoryError) as error:
        return skipped("forward", argument, str(error))
    if why is not None:
        return skipped("forward", argument, why)
    verdict = probe(call, argument, "adjoint" if argument in call.linear else "jvp", probes=DIRECTIONS, seed=seed)
    raised = verdict.outcome == "failed" and "the backward raised" in verdict.reason
    return skipped(verdict.probe, argument, verdict.reason) if raised else verdict


def _another_function(call: Call, argument: str) -> str | None:
    """Why the truth is no truth for this call: its forward pass is another one."""
    with torch.no_grad():
        pairs = list(zip(call.output(), call.double().output(), strict=True))
    where = tolerance.context(call, call.value(argument))
    allowed = min(APART, UNITS * max(tolerance.unit(where.operands), *(tolerance.unit(y.dtype) for y, _ in pairs)))
    off = max(norm(y, minus=z.to(y.device)) / (norm(z) or 1.0) for y, z in pairs)
    if off <= allowed:
        return None
    return f"its forward pass is off by {off:.2g} from what a layer of its kind computes in float64"


def _unconfirmed(verdict: Verdict) -> Verdict:
    return Verdict(verdict.probe, verdict.argument, "inconclusive", reason="failed once, and passed when drawn anew")


def _unfit(module: nn.Module) -> str | None:
    if parametrized(module):
        return "its weight is computed from other parameters"
    if any(hasattr(p, "to_local") or hasattr(p, "_fsdp_flattened") for p in module.parameters()):
        return "its parameters are sharded"
    return None
