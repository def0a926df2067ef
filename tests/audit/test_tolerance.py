import math

import numpy as np
import pytest
import torch

from lanewise.audit import tolerance
from lanewise.audit.call import Call
from lanewise.audit.verdict import Context

X = torch.zeros(3)


def where(dtype=torch.float32, **changes):
    return Context("cpu", **{"dtype": dtype, "operands": dtype, "accumulation": torch.float32, **changes})


def test_unit_roundoff():
    assert tolerance.unit(torch.float32) == 2**-24
    assert tolerance.unit(torch.bfloat16) == 2**-8
    assert tolerance.unit(torch.float16) == tolerance.unit("tf32") == 2**-11


@pytest.mark.parametrize(
    ("dtype", "accumulation"),
    [(torch.float16, torch.float32), (torch.bfloat16, torch.float32), (torch.float64, torch.float64)],
)
def test_sums_are_assumed_in_float32_or_better_unless_the_call_knows_it_worse(dtype, accumulation):
    context = tolerance.context(Call(torch.sin, (X,)), X.to(dtype))
    assert (context.operands, context.accumulation, context.flags) == (dtype, accumulation, ())
    known = Call(torch.sin, (X,), accumulation=dtype)
    assert tolerance.context(known, X.to(dtype)).accumulation == dtype


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_shortens_the_operands(dtype):
    with torch.autocast("cpu", dtype=dtype):
        context = tolerance.context(Call(torch.sin, (X,)), X)
    assert (context.operands, context.accumulation) == (dtype, torch.float32)
    assert context.flags == (f"autocast.{str(dtype).removeprefix('torch.')}",)
    assert tolerance.least(context, 1, 1, 1) > 100 * tolerance.least(where(), 1, 1, 1)


@pytest.mark.parametrize("n", [256, 1024, 65536])
@pytest.mark.parametrize("one_sided", [False, True])
def test_one_accumulator_errs_by_what_the_bound_says(n, one_sided):
    rng = np.random.default_rng(n)
    terms = rng.standard_normal((200, n)).astype(np.float32)
    terms = np.abs(terms) if one_sided else terms
    total = np.zeros(200, np.float32)
    for k in range(n):
        total += terms[:, k]
    error = np.linalg.norm(total - terms.sum(1, dtype=np.float64))
    norm = float(np.linalg.norm(total.astype(np.float64)))
    bound = tolerance.sequential(where(reduction=n), norm, norm, 200)
    assert 0.3 * bound < error < 1.1 * bound


def test_a_coherent_cotangent_may_cancel_after_it_has_grown():
    context = where(reduction=100, one_sided=True)
    assert tolerance.sequential(context, 0.0, 1.0, 1) == pytest.approx(
        tolerance.sequential(where(reduction=100), 10.0, 10.0, 1), rel=0.2
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_gradient_that_is_only_rounded_to_its_dtype_errs_by_the_least(dtype):
    x = torch.randn(10_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    error = float((x.to(dtype).double() - x).norm())
    norm = float(x.norm())
    assert 0.5 < error / tolerance.least(where(dtype), norm, norm, 10_000) < 1


def test_the_measured_error_serves_between_the_least_and_the_bound():
    assert tolerance.sigma(1.0, 10.0, 2.0, 1000) == 4  # with its safety
    assert tolerance.sigma(1.0, 10.0, 0.1, 1000) == 1
    assert tolerance.sigma(1.0, 10.0, 50.0, 1000) == 10
    assert tolerance.sigma(1.0, 10.0, 0.1, tolerance.FEW - 1) == 10
    assert tolerance.sigma(1.0, 10.0, 0.1, 32) == 1  # from so many elements on


def test_what_cancels_is_held_against_a_gradient_that_does_not():
    assert tolerance.composed(where(), 0.0, 2.0, 1) == 2 * tolerance.composed(where(), 1.0, 1.0, 1)
    assert tolerance.composed(where(torch.bfloat16), 1.0, 0.0, 1) == pytest.approx(2**-8 * math.sqrt(4 / 3), rel=1e-3)


def test_numbers_near_zero_lose_what_the_dtype_cannot_hold():
    x = torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 1e-7
    error = float((x.half().double() - x).norm())
    assert error < tolerance.LAMBDA * tolerance.least(where(torch.float16), float(x.norm()), float(x.norm()), 1000)
    assert error > tolerance.LAMBDA * 2**-11 * float(x.norm())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_subnormal_follows_from_the_dtype(dtype):
    x = torch.full((50,), torch.finfo(dtype).smallest_normal, dtype=torch.float64)
    assert not tolerance.subnormal(1.01 * float(x.norm()), 50, dtype)
    assert tolerance.subnormal(0.99 * float(x.norm()), 50, dtype)
    assert not tolerance.subnormal(0.0, 0, dtype)
