import pytest
import torch

from lanewise.audit.faults import FAULTS, planted
from lanewise.audit.gate import relative_error


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize(
    "shape", [(1,), (1, 4), (1, 3, 3), (2,), (31, 2), (32, 3), (33,), (64, 4), (65, 3), (128, 1, 2)]
)
def test_a_fault_changes_the_gradient_and_nothing_else(fault, shape):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=g).requires_grad_()
    y = planted(x, fault)
    assert torch.equal(x, y)
    upstream = torch.randn(shape, generator=g)
    (grad,) = torch.autograd.grad(y, x, upstream)
    assert grad.shape == upstream.shape
    assert not relative_error(grad, upstream) < 5e-4


def test_odd_waves_loses_exactly_them():
    x = torch.zeros(96, 2, requires_grad=True)
    fault = next(fault for fault in FAULTS if fault.name == "odd-waves")
    (grad,) = torch.autograd.grad(planted(x, fault).sum(), x)
    assert grad[:, 0].reshape(3, 32).sum(1).tolist() == [32, 0, 32]


def test_without_a_fault_or_a_gradient_nothing_is_planted():
    x = torch.zeros(3)
    assert planted(x, None) is x
    assert torch.equal(planted(x, FAULTS[0]), x)
