"""The table of orders and the verdicts on steps."""

from __future__ import annotations

import pytest
import torch

from lanewise.train.step import DIVERGED, OVERFLOW, Controls

CPU = torch.device("cpu")


def test_every_step_takes_the_next_row():
    controls = Controls(2, 3, CPU)
    for flight in range(3):
        rows = [
            ([flight + i + j / 64 for j in range(12)], torch.full((2, 3), i / 8), (i, 7), (5, 2**24 + i))
            for i in range(3)
        ]
        controls.write(rows)
        for coefficients, backgrounds, views, slots in rows:
            orders = controls.next()
            assert orders.coefficients.flatten().tolist() == coefficients
            assert torch.equal(orders.backgrounds, backgrounds)
            assert (orders.views.tolist(), orders.slots.tolist()) == (list(views), list(slots))
            assert all(row.data_ptr() % 16 == 0 for row in orders.coefficients), "one variant of a kernel for all"


@pytest.mark.parametrize(
    ("loss", "overflow", "skip", "done"),
    [(0.5, False, 0, 6), (0.5, True, OVERFLOW, 4), (torch.nan, False, DIVERGED, 4), (torch.inf, True, OVERFLOW, 4)],
)
def test_the_first_verdict_stays(loss: float, overflow: bool, skip: int, done: int):
    controls = Controls(1, 4, CPU)
    controls.done.fill_(4)
    for value, full, needed in ((loss, overflow, 70), (0.5, False, 90)):
        controls.judge(
            torch.tensor(value),
            {"overflow": torch.tensor(full), "n_isects": torch.tensor(needed), "n_coarse": torch.tensor(100 - needed)},
        )
        controls.count()
    controls.judge(torch.tensor(torch.nan), {})
    controls.count()
    assert controls.skip.item() == (skip or DIVERGED)
    assert controls.done.item() == done
    assert controls.needed.tolist() == [90, 30]
