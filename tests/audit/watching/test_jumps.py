from __future__ import annotations

import torch

from lanewise.audit.watching.jumps import Jumps
from lanewise.audit.watching.norms import ABSENT, Block


def block(norms: torch.Tensor, first: int = 0) -> Block:
    values = torch.stack([norms, torch.full_like(norms, ABSENT)], 1).double()
    return Block(("a", "b"), tuple(range(first, first + len(norms))), values, False)


def wild(steps: int, spread: float) -> torch.Tensor:
    """Norms of heavy tails around a decaying level."""
    g = torch.Generator().manual_seed(0)
    return torch.exp(spread * torch.randn(steps, generator=g) - torch.arange(steps) / 2000)


def test_norms_that_vary_by_orders_of_magnitude_do_not_alarm():
    for spread in (0.1, 0.5, 1.0):
        assert list(Jumps().judge(block(wild(5_000, spread)))) == []


def test_a_jump_is_found_with_its_step():
    norms = wild(300, 0.3)
    norms[250] *= 1000
    (alarm,) = Jumps().judge(block(norms, first=5))
    assert (alarm.code, alarm.parameter, alarm.step) == ("LW405", "a", 255)
    assert alarm.false_alarm == 1 / 201
    assert alarm.evidence["norm"] > 100 * alarm.evidence["usual"]


def test_a_short_history_says_nothing():
    norms = wild(45, 0.3)
    norms[40] *= 1000
    assert list(Jumps().judge(block(norms))) == []


def test_zero_and_infinite_norms_are_left_to_others():
    norms = wild(200, 0.3)
    norms[100:110] = 0
    norms[150] = float("inf")
    assert list(Jumps().judge(block(norms))) == []
