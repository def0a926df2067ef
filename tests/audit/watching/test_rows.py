from __future__ import annotations

import pytest
import torch

from lanewise.audit.faults import find_fault
from lanewise.audit.watching import rows

NAMES = ("means", "scales", "opacities")


def gradients(n: int = 700, seen: float = 0.5) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    visible = torch.rand(n, 1, generator=g) < seen  # the rest is zero everywhere
    return [torch.randn(n, k, generator=g) * visible for k in (3, 3, 1)]


def found(given: list[torch.Tensor]) -> list[rows.Pattern]:
    return list(rows.patterns(NAMES, rows.count(given)))


def test_rows_that_are_zero_in_all_are_no_pattern():
    assert found(gradients()) == []


@pytest.mark.parametrize(
    ("fault", "where"),
    [("odd-waves", "row // 32 is odd"), ("window-zero", "the row is past 36/64 of them")],
)
def test_the_patterns_of_lost_waves_and_slabs(fault: str, where: str):
    given = gradients()
    given[0] = find_fault(fault).apply(given[0])
    (pattern,) = found(given)
    assert (pattern.parameter, pattern.where) == ("means", where)
    assert pattern.lost > 100
    assert pattern.chance < 1e-20


def test_single_rows_and_scattered_ones_are_no_pattern():
    given = gradients()
    given[0][torch.rand(700, generator=torch.Generator().manual_seed(1)) < 0.4] = 0
    given[1][5] = 0
    assert found(given) == []


def test_a_few_rows_say_nothing():
    given = gradients(60)
    given[0] = find_fault("odd-waves").apply(given[0])
    assert found(given) == []


def test_counts_are_of_live_and_of_lost_rows():
    given = [torch.ones(100, 2), torch.ones(100)]
    given[1][90:] = 0
    counts = rows.count(given)
    assert counts.shape == (3, rows.PERIOD + rows.BINS)
    assert counts[:, : rows.PERIOD].sum(1).tolist() == [100, 0, 10]
    assert counts[:, rows.PERIOD :].sum(1).tolist() == [100, 0, 10]


def test_groups_are_of_one_owner_and_one_length():
    shapes = {"a.weight": (80, 3), "a.bias": (80,), "b.weight": (80, 2), "c.weight": (9, 2), "c.bias": (9,), "s": ()}
    sizes = {name: torch.Size(shape) for name, shape in shapes.items()}
    owner = {name: name.partition(".")[0] for name in shapes}
    assert rows.groups(sizes, owner) == [("a.weight", "a.bias")]
