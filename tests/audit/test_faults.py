import pytest
import torch
from audited import block, convolution, layer_norm, linear

from lanewise import InputError
from lanewise.audit.faults import ALL_FAULTS, FAULTS, find_fault, planted, planted_call
from lanewise.audit.gate import relative_error

ONE_GRADIENT = tuple(fault for fault in ALL_FAULTS if fault.backward is None and fault.start is None)


@pytest.mark.parametrize("fault", ONE_GRADIENT, ids=lambda fault: fault.name)
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


@pytest.mark.parametrize("fault", ONE_GRADIENT, ids=lambda fault: fault.name)
def test_the_gradients_memory_does_not_matter(fault):
    grad = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    turned = grad.T.contiguous().T
    assert torch.equal(fault.apply(turned).nan_to_num(7), fault.apply(grad).nan_to_num(7))


def test_odd_waves_loses_exactly_them():
    x = torch.zeros(96, 2, requires_grad=True)
    fault = next(fault for fault in FAULTS if fault.name == "odd-waves")
    (grad,) = torch.autograd.grad(planted(x, fault).sum(), x)
    assert grad[:, 0].reshape(3, 32).sum(1).tolist() == [32, 0, 32]


def test_without_a_fault_or_a_gradient_nothing_is_planted():
    x = torch.zeros(3)
    assert planted(x, None) is x
    assert torch.equal(planted(x, FAULTS[0]), x)


def gradients(call, fault=None, argument="0", seed=0):
    call = call if fault is None else planted_call(call, argument, fault)
    v = call.cotangents(call.output(), torch.Generator().manual_seed(seed))
    return call.output(), call.gradient(v)


@pytest.mark.parametrize("fault", ALL_FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("make", [linear, convolution, layer_norm])
def test_planted_in_a_call_it_changes_one_gradient_and_nothing_else(fault, make):
    call = make()
    argument = call.names[-1]
    outputs, right = gradients(call)
    faulty, wrong = gradients(call, fault, argument)
    assert torch.equal(outputs[0], faulty[0])
    assert not relative_error(wrong[argument], right[argument]) < 1e-4
    assert all(torch.equal(wrong[name], right[name]) for name in call.names if name != argument)
    double = planted_call(call, argument, fault).double()
    assert torch.equal(double.output()[0], call.double().output()[0])


def test_half_the_terms_is_the_gradient_of_half_the_batch():
    call = linear()
    _, wrong = gradients(call, find_fault("half-the-terms"), "1")
    v = call.cotangents(call.output(), torch.Generator().manual_seed(0))
    half = call.entries(0, 20).gradient([v[0][:20]])["1"]
    torch.testing.assert_close(wrong["1"], half)


def test_past_the_window_is_zero_or_begins_again():
    grad = torch.arange(1.0, 15.0)
    assert find_fault("window-zero").apply(grad).tolist() == [*range(1, 9), *[0] * 6]
    assert find_fault("window-wrapped").apply(grad).tolist() == [*range(9, 15), 7, 8, *[0] * 6]


def test_the_last_tile_is_the_partial_one():
    lost = find_fault("last-tile").apply(torch.ones(40, 2))
    assert lost[:, 0].tolist() == [1] * 32 + [0] * 8
    assert not find_fault("last-tile").apply(torch.ones(16)).any()


def test_stale_is_what_was_there_before_and_a_race_loses_another_tile_each_time():
    call = linear()
    stale = planted_call(call, "1", find_fault("stale"))
    v = call.cotangents(call.output(), torch.Generator().manual_seed(0))
    twice = tuple(2 * x for x in v)
    assert not stale.gradient(v)["1"].any()
    assert torch.equal(stale.gradient(twice)["1"], call.gradient(v)["1"])
    race = planted_call(call, "1", find_fault("race"))
    lost = {tuple((race.gradient(v)["1"] == 0).nonzero()[0].tolist()) for _ in range(20)}
    assert len(lost) > 5


def test_a_bf16_sum_is_off_by_its_rounding():
    call = linear()
    _, right = gradients(call)
    _, wrong = gradients(call, find_fault("bf16-sum"), "1")
    assert 2**-10 < relative_error(wrong["1"], right["1"]) < 2**-5


def test_errors():
    with pytest.raises(InputError, match="fault: got 'x', expected one of zero, nan"):
        find_fault("x")
    with pytest.raises(InputError, match=r"fault: got one of a sum, expected a fault of a gradient.*planted_call"):
        planted(torch.zeros(2), find_fault("race"))
    with pytest.raises(InputError, match=r"argument: got '0\.weight'.*Fix: pass a function"):
        planted_call(block(), "0.weight", FAULTS[0])
