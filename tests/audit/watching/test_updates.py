from __future__ import annotations

import pytest
import torch
from torch import nn
from watched import mlp

from lanewise.audit.watching import watch


class Lossy(torch.optim.SGD):
    """Forgets the update of some parameters."""

    def __init__(self, parameters: list[nn.Parameter], rate: float, lost: list[nn.Parameter]) -> None:
        super().__init__(parameters, rate)
        self.lost = lost

    @torch.no_grad()
    def step(self, closure=None):
        before = [p.clone() for p in self.lost]
        super().step(closure)
        for p, old in zip(self.lost, before, strict=True):
            p.copy_(old)


def run(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 12, **options):
    with watch(model, optimizer, every=2, on_finding="ignore", probe=False, **options) as running:
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(8, 16, dtype=next(model.parameters()).dtype)).square().mean().backward()
            optimizer.step()
    return running


def test_a_step_that_calls_another_one_of_the_same_optimizer_counts_once():
    model = mlp()
    run(model, torch.optim.SGD(model.parameters(), 0.01), steps=1)  # torch wraps the method of the base class too
    assert run(model, Lossy(list(model.parameters()), 0.01, []), steps=7).step == 7


def test_a_lost_update_is_found_after_three_looks():
    model = mlp()
    (finding,) = run(model, Lossy(list(model.parameters()), 0.01, [model[2].weight])).findings
    assert (finding.code, finding.operator, finding.argument) == ("LW402", "2 (FaultyLinear)", "weight")
    assert finding.evidence["step"] == 4
    assert finding.evidence["moved"] == 0
    assert finding.evidence["false_alarm_probability"] < 1e-20


def test_all_lost_updates_are_one_finding():
    class Deep(nn.Sequential):
        pass

    model = Deep(*(nn.Linear(16, 16) for _ in range(6)))
    (finding,) = run(model, Lossy(list(model.parameters()), 0.01, list(model.parameters()))).findings
    assert len(finding.evidence["parameters"]) == 12


@pytest.mark.parametrize("rate", [0.0, 0.01])
def test_healthy_updates_and_a_rate_of_zero_say_nothing(rate: float):
    model = mlp()
    for make in (torch.optim.SGD, torch.optim.Adam):
        assert run(model, make(model.parameters(), lr=rate)).findings == []


def test_steps_that_are_too_small_to_show_in_float32_say_nothing():
    model = mlp()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1.0)
    assert run(model, torch.optim.SGD(model.parameters(), 1e-12)).findings == []


def test_steps_below_the_spacing_of_bfloat16_are_lost():
    model = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 4)).bfloat16()
    findings = run(model, torch.optim.Adam(model.parameters(), 1e-6)).findings
    assert findings
    assert {f.code for f in findings} == {"LW402"}
    assert "below the spacing of bfloat16" in str(findings[0].cause)
