import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise import InputError
from lanewise.audit.call import Call
from lanewise.audit.faults import FAULTS, planted
from lanewise.audit.probes.adjoint import adjoint_probe, difference


def affine(n, m, seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    A, b = torch.randn(m, n, generator=g, dtype=dtype), torch.randn(m, generator=g, dtype=dtype)
    return lambda x: A @ x + b


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 10**6), st.sampled_from([torch.float32, torch.float64]))
def test_no_false_alarm(n, m, seed, dtype):
    assert adjoint_probe(affine(n, m, seed, dtype), torch.randn(n, dtype=dtype), seed=seed).ok


def test_what_is_constant_is_no_part_of_the_difference():
    u = torch.arange(5.0)
    (image,) = difference(Call(lambda x: 2 * x + 7, (torch.ones(5),), linear=("0",)), "0", u)
    assert image.tolist() == (2 * u).tolist()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("n", [2, 33, 65, 300])
def test_every_fault_is_found(fault, n):
    f = affine(n, 100)
    result = adjoint_probe(lambda x: f(planted(x, fault)), torch.randn(n))
    assert not result.ok


def test_the_stated_miss_probability_holds():
    """Errors near the tolerance, in random directions: observed misses stay under the stated bound."""
    f, x = affine(64, 64), torch.randn(64)
    healthy = adjoint_probe(f, x, probes=1)
    relative = 4 * healthy.tolerance / healthy.gradient_norm
    misses = 0
    for seed in range(300):

        def spoiled(x, seed=seed):
            y = x * 1
            if y.requires_grad:
                e = torch.randn(64, generator=torch.Generator().manual_seed(seed))
                y.register_hook(lambda grad: grad + relative * healthy.gradient_norm * e / e.norm())
            return f(y)

        misses += adjoint_probe(spoiled, x, probes=1, seed=seed).ok
    bound = healthy.miss_probability(relative)
    assert bound == pytest.approx(math.erf(1 / 4 / math.sqrt(2)), rel=1e-2)
    assert 0 < misses / 300 < bound + 3 * math.sqrt(bound * (1 - bound) / 300)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite_is_found_in_the_forward_too(value):
    f = affine(20, 20)
    assert not adjoint_probe(lambda x: f(x) + value, torch.randn(20)).ok


def test_more_probes_miss_less():
    f, x = affine(20, 20), torch.randn(20)
    one, three = adjoint_probe(f, x, probes=1), adjoint_probe(f, x, probes=3, seed=0)
    assert adjoint_probe(f, x) == three
    assert three.miss_probability(1e-5) < one.miss_probability(1e-5) < 1
    assert one.miss_probability(0) == 1


def test_errors():
    with pytest.raises(InputError, match=r"x: got shape \[0\].*Why: the argument has no elements"):
        adjoint_probe(lambda x: x, torch.zeros(0))
    with pytest.raises(InputError, match=r"x: got shape \[2\].*Why: no output depends on it"):
        adjoint_probe(lambda x: x.detach(), torch.zeros(2))
