from __future__ import annotations

import pytest
import torch

from lanewise.audit.watching import norms
from lanewise.audit.watching.mailbox import Mailbox
from lanewise.audit.watching.norms import ABSENT, Block, Norms


@pytest.fixture
def sent():
    """Norms of three parameters, and what is read of them."""
    rows, blocks = Norms(4), []

    def read() -> Block:
        rows.send(Mailbox(), blocks.append)
        return blocks[-1]

    return rows, read


def gradients(**values: float) -> dict[str, torch.Tensor]:
    return {name: torch.full((3, 3), value) for name, value in values.items()}


def test_a_row_has_a_norm_for_every_gradient_and_says_where_there_is_none(sent):
    rows, read = sent
    rows.record(5, "abc", gradients(a=1.0, b=-2.0, c=0.0))
    rows.record(9, "abc", gradients(c=1.0, a=0.5))
    block = read()
    assert (block.names, block.steps) == (("a", "b", "c"), (5, 9))
    assert block.values.tolist() == [[3.0, 6.0, 0.0], [1.5, ABSENT, 3.0]]
    assert block.finite


def test_of_more_steps_than_there_is_room_for_the_newest_are_kept(sent):
    rows, read = sent
    for step in range(7):
        rows.record(step, "a", gradients(a=float(step)))
    block = read()
    assert block.steps == (3, 4, 5, 6)
    assert block.values.flatten().tolist() == [9.0, 12.0, 15.0, 18.0]


def test_the_newest_row_tells_whether_the_step_is_sound(sent):
    rows, read = sent
    rows.record(0, "ab", gradients(a=1.0, b=2.0))
    assert rows.sound()
    rows.record(1, "ab", gradients(a=1.0, b=float("nan")))
    assert not rows.sound()
    assert not read().finite


def test_gradients_of_several_dtypes(sent):
    rows, read = sent
    mixed = {"a": torch.ones(4), "b": torch.ones(9, dtype=torch.bfloat16), "c": torch.ones(16, dtype=torch.float64)}
    rows.record(0, "abc", mixed)
    assert read().values.tolist() == [[2.0, 3.0, 4.0]]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (1, 2)])
def test_scalars_that_are_neighbours_in_order_are_taken_as_they_are_and_others_are_copied(order):
    memory = torch.tensor([5.0, 6.0, 7.0])
    scalars = [memory[i] for i in order]
    together = norms._together(scalars)
    assert torch.equal(together, torch.stack(scalars))
    assert (together.data_ptr() == memory.data_ptr()) == (order == (0, 1, 2))
