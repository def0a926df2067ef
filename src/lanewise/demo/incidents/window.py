"""The window incident replayed: the report's layer in a small model, with every number of bytes divided by 4,096."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lanewise.audit import watch
from lanewise.audit.call import OUTPUT
from lanewise.audit.finding import Finding
from lanewise.audit.runner import audit_specs
from lanewise.audit.spec import Input, Spec
from lanewise.conv import conv2d, protect
from lanewise.demo.incidents.library import WINDOW_BYTES, FaultyLibrary, Past
from lanewise.demo.incidents.prediction import Prediction

SHRUNK = 4096
WINDOW = (WINDOW_BYTES + 1) // SHRUNK - 1
IMAGES, C, K, EXTENT = 64, 96, 64, 8  # the report's layer, whose images were 512 pixels wide and high
FITTING = 42  # images within the window, then and now
CLASSES = 10
LAYER = "0"  # its name in the model
HEALTHY, NOTHING, WRAPPED, PROTECTED = "healthy", "nothing", "wrapped", "protected"

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """What came of one training run.

    Attributes:
        name: which.
        losses: of some steps, the first and the last among them.
        moved: how far the layer's weight has come, relative to its first value.
        error: relative error of the weight's gradient in the first step.
        launches: images of the largest launch of the library.
        watched: (code, place, argument, step from 1) of what `watch` found.
        audited: what the audit found in the layer.
    """

    name: str
    losses: Sequence[float]
    moved: float
    error: float
    launches: int
    watched: Sequence[tuple[str, str, str, int]]
    audited: Sequence[Finding]


class Task:
    """What is learned: the answers of another model of the same form, to the same images in every step.

    Args:
        seed: of everything.
    """

    def __init__(self, seed: int = 0) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.x = torch.randn(IMAGES, C, EXTENT, EXTENT)
            self._first = _model().state_dict()
            teacher = _model()
            nn.init.normal_(teacher.get_parameter(f"{LAYER}.weight"), std=4 * C**-0.5)
        with torch.no_grad():
            self.answer = teacher(self.x)

    def model(self) -> nn.Sequential:
        """The model as every run begins with it."""
        model = _model()
        model.load_state_dict(self._first)
        return model

    def loss(self, model: nn.Module) -> Tensor:
        """Of all images."""
        return F.mse_loss(model(self.x), self.answer)

    def weight_gradient(self, model: nn.Module) -> Tensor:
        """Of the loss, by the layer's weight, [K, C, 1, 1]."""
        return torch.autograd.grad(self.loss(model), [model.get_parameter(f"{LAYER}.weight")])[0]


def _model() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(C, K, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(K, CLASSES))


def replay(steps: int = 200, *, audit: bool = True, tell: Tell = lambda line: None) -> list[Run]:
    """Train the model with a healthy library, with one that writes nothing past the window, with one whose addresses
    wrap around there, and with the first of these once more, protected.

    Args:
        steps: of each run.
        audit: whether the layer is audited too.
        tell: called with a line before each part.
    """
    task, runs = Task(), []
    ways: tuple[tuple[str, Past | None, bool], ...] = (
        (HEALTHY, None, False),
        (NOTHING, "nothing", False),
        (WRAPPED, "wrapped", False),
        (PROTECTED, "nothing", True),
    )
    for name, past, protected in ways:
        tell(name)
        runs.append(_run(task, name, past, protected, steps, audit))
    return runs


def _run(task: Task, name: str, past: Past | None, protected: bool, steps: int, audit: bool) -> Run:
    model, right = task.model(), task.weight_gradient(task.model())
    if protected:
        protect(model, window_bytes=WINDOW)
    weight = model.get_parameter(f"{LAYER}.weight")
    first = weight.detach().clone()
    library = contextlib.nullcontext() if past is None else FaultyLibrary(WINDOW, past)
    with library:
        got = task.weight_gradient(model)
        losses, watched = _trained(task, model, steps)
        audited = audit_of(protected) if audit else []
    return Run(
        name,
        losses,
        float((weight.detach() - first).norm() / first.norm()),
        float((got - right).norm() / right.norm()),
        max(library.launches) if isinstance(library, FaultyLibrary) else IMAGES,
        watched,
        audited,
    )


def _trained(task: Task, model: nn.Module, steps: int) -> tuple[list[float], list[tuple[str, str, str, int]]]:
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    with watch(model, optimizer, on_finding="ignore") as watching:
        for step in range(steps + 1):
            loss = task.loss(model)
            if step % (steps // 4) == 0:
                losses.append(loss.item())
            if step < steps:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    found = [(f.code, f.operator, f.argument, f.evidence["step"] + 1) for f in watching.findings]
    return losses, found


def audit_of(protected: bool) -> list[Finding]:
    """What the audit finds in the layer, beginning with the report's batch."""

    def layer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:  # local, so that the library comes along: by a fork
        return conv2d(x, weight, bias, window_bytes=WINDOW) if protected else F.conv2d(x, weight, bias)

    spec = Spec(
        "lanewise.conv.conv2d" if protected else "torch.nn.functional.conv2d",
        "",
        (Input("x", f"N {C} {EXTENT} {EXTENT}"), Input("weight", f"{K} {C} 1 1"), Input("bias", f"{K}")),
        {"N": IMAGES},
        linear=("x", "weight", "bias"),
        batch={"x": 0, OUTPUT: 0},
        function=layer,
        setup="import lanewise.conv",
        alternative=f"lanewise.conv.conv2d(x, weight, bias, window_bytes={WINDOW})",
    )
    return audit_specs([spec], device="cpu", budget="1 cases").findings


def predictions(runs: Sequence[Run]) -> list[Prediction]:
    """What the incident's report and the arithmetic of the window foretell of `replay`."""
    healthy, nothing, wrapped, protected = runs
    place = f"{LAYER} (Conv2d)"
    named = {run.name: {code for code, where, *_ in run.watched if where == place} for run in runs}
    smallest = {run.name: {f.shapes["x"][0] for f in run.audited} for run in runs}
    return [
        Prediction(
            f"one launch of all {IMAGES} images is past the window: its weight gradient is exactly zero, or another's",
            nothing.launches == wrapped.launches == IMAGES and nothing.error == 1 and wrapped.error > 0.1,
            f"relative errors {nothing.error:.2f} and {wrapped.error:.2f}",
        ),
        Prediction(
            "where nothing is written the layer's weight stays what it was, and the loss falls less",
            nothing.moved == 0 and healthy.losses[-1] < nothing.losses[-1] < nothing.losses[0],
            f"loss {nothing.losses[-1]:.3g}, healthy {healthy.losses[-1]:.3g}",
        ),
        Prediction(
            "where addresses wrap around the weight moves, and the loss falls: nothing shows",
            wrapped.moved > 0 and wrapped.losses[-1] < wrapped.losses[0] / 2,
            f"weight moved by {wrapped.moved:.2f}, loss {wrapped.losses[-1]:.3g}",
        ),
        Prediction(
            "watch names the layer in both, and finds nothing in the healthy and the protected run",
            "LW401" in named[NOTHING] and "LW404" in named[WRAPPED] and not (healthy.watched or protected.watched),
        ),
        Prediction(
            f"the audit shrinks both to {FITTING + 1} images, the first batch past the window, and sees slices help",
            smallest[NOTHING] == smallest[WRAPPED] == {FITTING + 1}
            and all("lanewise.conv" in (f.workaround or "") for f in (*nothing.audited, *wrapped.audited)),
        ),
        Prediction(
            f"it names the lost slab: what image {FITTING}, the one across the window's end, contributes",
            any(f"outputs {FITTING} to {FITTING}" in f.evidence["reason"] for f in wrapped.audited),
        ),
        Prediction(
            "protect cures it, with the same library: no launch past the window, the healthy loss, no finding",
            protected.launches <= FITTING
            and protected.error < 1e-5
            and abs(protected.losses[-1] / healthy.losses[-1] - 1) < 0.05
            and not protected.audited,
            f"at most {protected.launches} images a launch, loss {protected.losses[-1]:.3g}",
        ),
    ]
