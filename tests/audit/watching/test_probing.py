from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lanewise.audit.watching import Watch, watch
from lanewise.audit.watching.layers import kind_of
from lanewise.conv import Conv2d

IMAGES = (5, 6, 8, 7)
WORDS = (5, 9, 12)
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(12, 7), WORDS),
    "linear of a vector": (lambda: nn.Linear(12, 7, bias=False), (12,)),
    "conv1d": (lambda: nn.Conv1d(9, 6, 3, padding="same", padding_mode="circular"), WORDS),
    "conv2d": (lambda: nn.Conv2d(6, 8, 3, stride=2, groups=2, dilation=2, padding=1), IMAGES),
    "conv3d": (lambda: nn.Conv3d(6, 4, 2), (3, 6, 4, 5, 4)),
    "our conv2d": (lambda: Conv2d(6, 8, 3), IMAGES),
    "conv_transpose1d": (lambda: nn.ConvTranspose1d(9, 6, 3, 2), WORDS),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(6, 4, 3, 2, output_padding=1, groups=2), IMAGES),
    "conv_transpose3d": (lambda: nn.ConvTranspose3d(6, 4, 2), (3, 6, 4, 5, 4)),
    "batch_norm1d": (lambda: nn.BatchNorm1d(9), WORDS),
    "batch_norm2d": (lambda: nn.BatchNorm2d(6), IMAGES),
    "batch_norm, evaluating": (lambda: nn.BatchNorm2d(6).eval(), IMAGES),
    "instance_norm": (lambda: nn.InstanceNorm2d(6, affine=True), IMAGES),
    "layer_norm": (lambda: nn.LayerNorm(12), WORDS),
    "rms_norm": (lambda: nn.RMSNorm((9, 12)), WORDS),
    "group_norm": (lambda: nn.GroupNorm(3, 6), IMAGES),
}


class LlamaRMSNorm(nn.Module):
    """As libraries of language models write it themselves."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.rand(width)), 1e-6

    def forward(self, hidden_states: Tensor) -> Tensor:
        wide = hidden_states.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * wide.to(hidden_states.dtype)


class GemmaRMSNorm(LlamaRMSNorm):
    """Of the same name and another formula."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        return super().forward(hidden_states) / self.weight * (1 + self.weight)


class Conv1D(nn.Module):
    """GPT-2's linear layer."""

    def __init__(self, out: int, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(width, out)), nn.Parameter(torch.randn(out))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], -1)


LAYERS["rms_norm of a library"] = (lambda: LlamaRMSNorm(12), WORDS)
LAYERS["Conv1D"] = (lambda: Conv1D(7, 12), WORDS)


class Twisted(torch.autograd.Function):
    """The same values; a gradient that is a thousandth too large."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient * 1.001


def looked_at(model: nn.Module, given: Callable[[], Tensor], steps: int = 4) -> Watch:
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with watch(model, optimizer, every=1, on_finding="ignore") as running:
        for _ in range(steps):
            optimizer.zero_grad()
            model(given()).square().sum().backward()
            optimizer.step()
    return running


@pytest.mark.parametrize("name", LAYERS)
def test_a_healthy_layer_passes_in_every_argument(name: str):
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    layer = make()
    running = looked_at(layer, lambda: torch.randn(shape, requires_grad=True))
    assert running.findings == []
    arguments = {"input" if argument in ("x", "hidden_states") else argument for _, argument in running.coverage}
    assert arguments == {"input", *(n for n, _ in layer.named_parameters())}
    for covered in running.coverage.values():
        assert set(covered.outcomes) == {"passed"}, covered.reason
        assert covered.miss_probability is not None
        assert covered.miss_probability < 1e-4


@pytest.mark.parametrize("name", LAYERS)
def test_the_same_layer_with_a_fault_in_its_backward_is_found(name: str):
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    base = type(make())

    class Faulty(base):
        def forward(self, input: Tensor) -> Tensor:
            out = super().forward(input)
            return Twisted.apply(out) if out.dtype == torch.float32 else out

    layer = make()
    layer.__class__ = Faulty
    running = looked_at(layer, lambda: torch.randn(shape, requires_grad=True), steps=2)
    assert running.findings
    for finding in running.findings:
        assert (finding.code, finding.operator) == ("LW404", "model (Faulty)")
        assert finding.evidence["looks_like"] == "LW105"


def test_attention_and_embedding():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(20, 8, padding_idx=0)
            self.mix = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, index: Tensor) -> Tensor:
            x = self.words(index)
            y = self.mix(x, x, x, need_weights=False)[0]
            return F.scaled_dot_product_attention(y, x, x)

    running = looked_at(Model(), lambda: torch.randint(0, 20, (4, 6)), steps=9)
    assert running.findings == []
    places = {place for place, _ in running.coverage}
    assert places == {"words (Embedding)", "mix (MultiheadAttention)", "scaled_dot_product_attention"}
    assert all(set(covered.outcomes) == {"passed"} for covered in running.coverage.values())


def test_a_layer_that_computes_something_else_is_skipped_with_the_reason():
    class Coarse(nn.Linear):
        """Rounds its weights, and hands the gradient straight through: no fault."""

        def forward(self, input: Tensor) -> Tensor:
            rounded = self.weight + ((self.weight * 8).round() / 8 - self.weight).detach()
            return F.linear(input, rounded, self.bias)

    running = looked_at(Coarse(6, 5), lambda: torch.randn(4, 6))
    assert running.findings == []
    covered = running.coverage["model (Coarse)", "weight"]
    assert set(covered.outcomes) == {"skipped"}
    assert "its forward pass is off by" in covered.reason


def test_a_layer_that_has_the_name_and_another_formula_is_skipped():
    torch.manual_seed(0)
    running = looked_at(GemmaRMSNorm(6), lambda: torch.randn(4, 6))
    assert running.findings == []
    covered = running.coverage["model (GemmaRMSNorm)", "weight"]
    assert set(covered.outcomes) == {"skipped"}
    assert "its forward pass is off by" in covered.reason


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 5)), "computed from other parameters"),
        (lambda: nn.PReLU(), "no reference is registered"),
        (lambda: nn.Sequential(nn.Embedding(5, 5, max_norm=1.0)), "max_norm"),
    ],
)
def test_what_is_not_probed_is_named(make: Callable[[], nn.Module], why: str):
    model = make()
    with watch(model, [], on_finding="ignore") as running:
        pass
    assert any(why in note for note in running.notes.values())


def test_a_layer_that_is_never_called_is_named():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(6, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    running = looked_at(Model(), lambda: torch.randn(4, 6), steps=12)
    assert "no hook of it was called" in running.notes["idle (Linear)"]


def test_an_evaluation_in_between_is_not_what_is_probed():
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with watch(model, optimizer, every=1, on_finding="ignore") as running:
        for _ in range(8):
            with torch.no_grad():
                model.eval()(torch.full((3, 6), float("nan")))
            optimizer.zero_grad()
            model.train()(torch.randn(5, 6)).square().sum().backward()
            optimizer.step()
    assert running.findings == []
    assert all(set(covered.outcomes) == {"passed"} for covered in running.coverage.values())


def test_kinds_follow_inheritance():
    assert kind_of(Conv2d(3, 4, 1)) is kind_of(nn.Conv2d(3, 4, 1))
    assert kind_of(nn.PReLU()) is None
