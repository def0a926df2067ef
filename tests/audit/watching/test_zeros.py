from __future__ import annotations

import torch
from torch import Tensor, nn
from watched import mlp, train

from lanewise.audit.faults import find_fault
from lanewise.audit.watching.norms import ABSENT, Block
from lanewise.audit.watching.zeros import PATIENCE, Zeros


class Net(nn.Module):
    """A layer that is used, one that is not, one whose output the loss forgets, and one that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.head = nn.Linear(16, 20), nn.Linear(20, 4)
        self.unused, self.forgotten, self.frozen = nn.Linear(3, 3), nn.Linear(20, 4), nn.Linear(20, 4)
        self.frozen.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.used(x).relu()
        return self.head(h) + self.frozen(h) + 0 * self.forgotten(h)


def test_unused_frozen_and_forgotten_parameters_are_no_findings():
    running = train(Net(), 120)
    assert running.findings == []
    assert running.notes["unused.weight"].startswith("unused")
    assert "the loss does not depend on it" in running.notes["forgotten.weight"]
    assert not any("frozen" in name for name in running.notes)


def test_units_that_are_off_are_no_findings():
    model = mlp()
    with torch.no_grad():
        model[0].bias.fill_(-100)
    running = train(model, 120)
    assert running.findings == []
    assert "dead ReLU" in running.notes["0.weight"]
    assert running.notes["2.weight"] == "off: its layer's input is all zero"


def test_a_gradient_that_is_lost_is_a_finding_with_its_reason():
    (finding,) = train(mlp(find_fault("zero")), 120, probe=False).findings
    assert (finding.code, finding.argument) == ("LW401", "weight")
    assert "neither is the layer's input" in str(finding.cause)


def test_where_no_gradient_arrives_the_layer_that_lost_it_is_probed_next():
    running = train(mlp(find_fault("zero"), "input"), 120, every=25, seed=3)
    (finding,) = running.findings
    assert (finding.code, finding.operator, finding.argument) == ("LW404", "2 (FaultyLinear)", "input")


def block(rows: list[list[float]], first: int = 0) -> Block:
    steps = tuple(range(first, first + len(rows)))
    return Block(("a", "b", "c"), steps, torch.tensor(rows, dtype=torch.float64), False)


def test_patience_is_counted_in_steps_also_where_few_are_seen():
    zeros = Zeros()
    assert list(zeros.judge(block([[0, 1, ABSENT]], 0))) == []
    assert zeros.unused == {"c"}
    assert list(zeros.judge(block([[0, 1, ABSENT]], PATIENCE))) == [("a", PATIENCE + 1)]


def test_one_sign_of_life_begins_anew():
    zeros = Zeros()
    assert list(zeros.judge(block([[0.0, 1, 1]] * PATIENCE + [[1e-9, 1, 1]] + [[0, 1, 1]] * PATIENCE))) == []


def test_nothing_is_suspected_where_all_are_zero():
    assert list(Zeros().judge(block([[0.0, 0, 0]] * 3 * PATIENCE))) == []
