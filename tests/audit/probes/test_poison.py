import pytest
import torch
from audited import linear, values

from lanewise.audit.call import Call
from lanewise.audit.faults import find_fault, planted_call
from lanewise.audit.probes.poison import poison, poisoned, poisoned_in_python


class LeavesOneOut(torch.autograd.Function):
    """Its last element is whatever the memory held; zero at first, as fresh memory often is."""

    empty = staticmethod(torch.zeros_like)

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, *grads):
        (grad,) = grads
        out = torch.empty_like(grad)
        if not bool(out[-1].isnan()):
            out[-1] = 0
        out[:-1] = grad[:-1] * 2
        return out


def test_an_element_that_nobody_writes_is_found():
    verdict = poison(Call(LeavesOneOut.apply, (values(9),)), "0")
    assert (verdict.outcome, verdict.code) in (("failed", "LW303"), ("inconclusive", None))


@pytest.fixture
def unpoisoned(monkeypatch):
    """Fresh memory holds zeros, until the probe poisons it."""
    monkeypatch.setattr(torch, "empty_like", torch.zeros_like)


def test_it_is_found_where_fresh_memory_is_zero(unpoisoned):
    verdict = poison(Call(LeavesOneOut.apply, (values(9),)), "0")
    assert (verdict.outcome, verdict.code) == ("failed", "LW303")
    assert "something was not written" in verdict.reason
    assert poison(linear(), "1").ok


def test_nan_without_poison_is_not_its_business():
    assert poison(planted_call(linear(), "1", find_fault("nan")), "1").outcome == "inconclusive"


def test_poison_is_in_every_allocator_and_gone_afterwards():
    before = torch.empty, torch.Tensor.new_empty, torch.are_deterministic_algorithms_enabled()
    x = torch.zeros(2)
    with poisoned():
        fresh = [torch.empty(3), torch.empty_like(x), torch.empty_strided((2,), (1,)), x.new_empty(2)]
        fresh.append(x.new_empty_strided((2,), (1,)))
        assert all(bool(f.isnan().all()) for f in fresh)
        assert bool((torch.empty(2, dtype=torch.int32) == -(2**31)).all())
        assert torch.empty(2, dtype=torch.bool).dtype == torch.bool
    with poisoned_in_python():
        assert bool(torch.empty(3).isnan().all())
    assert (torch.empty, torch.Tensor.new_empty, torch.are_deterministic_algorithms_enabled()) == before


def test_memory_that_requires_a_gradient_holds_nan_too():
    with poisoned_in_python():
        leaf = torch.empty(3, requires_grad=True)
    assert leaf.isnan().all()
    assert leaf.requires_grad
    assert leaf.is_leaf


@pytest.fixture
def algorithms():
    """torch's setting for deterministic algorithms, as it was again afterwards."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    yield torch.use_deterministic_algorithms
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])


@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize(("enabled", "warn_only"), [(False, False), (True, False), (True, True)])
def test_deterministic_algorithms_are_asked_for_without_a_gpu_alone(gpu, enabled, warn_only, algorithms, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    algorithms(enabled, warn_only=warn_only)
    with poisoned():
        assert torch.are_deterministic_algorithms_enabled() == (enabled or not gpu)
    assert torch.are_deterministic_algorithms_enabled() == enabled
    assert torch.is_deterministic_algorithms_warn_only_enabled() == warn_only
