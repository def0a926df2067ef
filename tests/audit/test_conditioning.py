"""Where conditioning explains a difference, and where it does not."""

import pytest
import torch

from lanewise.audit.call import Call
from lanewise.audit.conditioning import conditioning
from lanewise.audit.probes.measure import norm

X = torch.full((64,), 9.0)


def error(fn, x):
    """(what fp32 does to the gradient, what conditioning explains)."""
    call = Call(fn, kwargs={"x": x}, wrt=("x",))
    v = call.cotangents(call.output(), torch.Generator().manual_seed(0))
    single = call.gradient(v)["x"]
    exact = call.double().gradient([c.double() for c in v])["x"]
    explained = conditioning(call, "x", torch.float32)
    assert explained is not None
    return norm(single, minus=exact), explained, norm(exact)


def test_the_small_difference_of_a_saturated_tanh_is_explained():
    off, explained, size = error(torch.tanh, X)
    assert off > 1e-4 * size  # far more than a rounding of the gradient
    assert off < 32 * explained


@pytest.mark.parametrize(
    "fn", [lambda x: x * x.sin(), lambda x: torch.sub(x, x.sin(), alpha=0.5).square()], ids=["", "with keywords"]
)
def test_a_well_conditioned_function_has_no_excuse(fn):
    _, explained, size = error(fn, X)
    assert explained < 20 * torch.finfo(torch.float32).eps * size


def test_what_does_not_work_in_double_explains_nothing():
    def single_only(x):
        if x.dtype != torch.float32:
            raise TypeError("float32 only")
        return 2 * x

    assert conditioning(Call(single_only, kwargs={"x": X}, wrt=("x",)), "x", torch.float32) is None


def test_the_cotangent_is_not_the_input():
    """Inputs drawn from `manual_seed(seed)` cancel where they are near zero, and so is a cotangent of that sequence."""
    generator = torch.Generator().manual_seed(24)
    call = Call(torch.sinc, kwargs={"x": torch.randn(24, 20, generator=generator)}, wrt=("x",))
    v = call.cotangents(call.output(), torch.Generator().manual_seed(7))
    single = call.gradient(v)["x"]
    exact = call.double().gradient([c.double() for c in v])["x"]
    explained = conditioning(call, "x", torch.float32, seed=24)
    assert explained is not None
    assert norm(single, minus=exact) < 32 * explained
    assert explained > 1e-4


def test_digits_lost_in_the_smallest_numbers_of_a_dtype_are_explained():
    """The way back multiplies by 2e-6 first: what is left has five bits, and the gradient is a normal number again."""
    call = Call(lambda x: x * 1e4 * 2e-6, kwargs={"x": torch.rand(500).half()}, wrt=("x",))
    v = call.cotangents(call.output(), torch.Generator().manual_seed(1))
    half = call.gradient(v)["x"]
    exact = call.double().gradient([c.double() for c in v])["x"]
    explained = conditioning(call, "x", torch.float16)
    assert explained is not None
    assert norm(half, minus=exact) > 5e-3 * norm(exact) > 5 * torch.finfo(torch.float16).eps * norm(exact)
    assert 0.5 * norm(half, minus=exact) < explained < 0.1 * norm(exact)


def test_the_error_is_one_unit_and_one_spacing_of_the_smallest_numbers_together():
    """At the smallest normal number they are equal. The way back here is one product, of ones and that number."""
    smallest, unit = torch.finfo(torch.float16).smallest_normal, torch.finfo(torch.float16).eps
    call = Call(lambda x: x * smallest, kwargs={"x": torch.ones(20_000)}, wrt=("x",), cotangent="ones")
    explained = conditioning(call, "x", torch.float16)
    assert explained == pytest.approx(smallest * 2 * unit * 20_000**0.5, rel=0.03)


def test_what_is_zero_stays_zero_and_no_sign_turns():
    """As in any rounding: a step that takes a root of what is lost whole would be NaN otherwise."""
    seen = []

    def watched(x):
        y = x * 1e-12
        seen.append(y.detach().clone())
        return y

    x = torch.cat([torch.zeros(50), torch.ones(50), -torch.ones(50)])
    assert conditioning(Call(watched, kwargs={"x": x}, wrt=("x",)), "x", torch.float16) is not None
    assert any(bool((y[50:].abs() > 1e-8).any()) for y in seen)
    for y in seen:
        assert bool((y[:50] == 0).all())
        assert bool((y[50:100] >= 0).all())
        assert bool((y[100:] <= 0).all())
