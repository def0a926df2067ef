"""The poison of tests/conftest.py is there."""

import torch


def test_unwritten_memory_is_nan_or_the_smallest_integer():
    assert torch.empty(3).isnan().all()
    assert torch.empty_like(torch.zeros(2, 2)).isnan().all()
    assert torch.zeros(1).new_empty(4).isnan().all()
    assert (torch.empty(3, dtype=torch.int32) == -(2**31)).all()
    assert torch.empty(2, dtype=torch.bool).shape == (2,)
