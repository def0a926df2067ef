from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from watched import mlp, train

from lanewise.audit.faults import find_fault
from lanewise.audit.watching.nonfinite import NonFinite
from lanewise.audit.watching.norms import Block


class Logarithm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.log(x.abs() - 0.001)


def test_the_layer_whose_output_is_not_finite():
    model = nn.Sequential(nn.Linear(16, 30), nn.Tanh(), nn.Linear(30, 20), Logarithm(), nn.Linear(20, 4))
    buffers = torch.get_rng_state()
    (finding,) = train(model, 100).findings
    assert (finding.code, finding.operator, finding.argument) == ("LW403", "3 (Logarithm)", "forward")
    assert not torch.equal(buffers, torch.get_rng_state())  # the data's own draws


def test_the_parameter_whose_gradient_alone_is_not_finite():
    (finding,) = train(mlp(find_fault("nan")), 100).findings
    assert (finding.code, finding.operator, finding.argument) == ("LW403", "2 (FaultyLinear)", "weight")
    assert finding.evidence["gradients not finite"] == 1
    assert "in a parameter's gradient alone" in str(finding.cause)


def test_the_layer_whose_input_gradient_is_not_finite():
    (finding,) = train(mlp(find_fault("nan"), "input"), 100).findings
    assert (finding.operator, finding.argument) == ("2 (FaultyLinear)", "input")


def block(rows: list[list[float]], excused: bool = False) -> Block:
    return Block(("a", "b"), tuple(range(7, 7 + len(rows))), torch.tensor(rows, dtype=torch.float64), excused)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_the_first_step_counts_and_is_told_once(value: float):
    watching = NonFinite()
    (alarm,) = watching.judge(block([[1.0, 1], [1, value], [value, value]]), {"a": 0, "b": 1}, {0: "A", 1: "B"}, None)
    assert (alarm.parameter, alarm.step) == ("b", 8)
    assert list(watching.judge(block([[value, value]]), {}, {}, None)) == []


def test_a_scaler_that_looks_for_its_scale_is_excused():
    rows = [[1.0, 1], [float("inf"), 1], [1, 1]]
    assert list(NonFinite().judge(block(rows, excused=True), {}, {}, None)) == []
    assert list(NonFinite().judge(block([rows[1]], excused=True), {}, {}, None)) == []
    assert list(NonFinite().judge(block([rows[1]] * 3, excused=True), {}, {}, None))
