"""What the probes make of their directions: codes, and what is too small or too large to be judged."""

import pytest
import torch
import torch.nn.functional as F
from audited import BATCH, half_norm, linear, values
from audited_functions import wraps_diagonal

from lanewise.audit import tolerance
from lanewise.audit.call import Call
from lanewise.audit.faults import Fault, find_fault, planted_call
from lanewise.audit.probes import compare, directions
from lanewise.audit.probes.adjoint import adjoint
from lanewise.audit.probes.exact import exact
from lanewise.audit.probes.jvp import jvp
from lanewise.audit.probes.truth import truth


@pytest.mark.parametrize(
    ("name", "code"),
    [("zero", "LW101"), ("nan", "LW102"), ("half-the-terms", "LW103"), ("shifted", "LW104"), ("scaled", "LW105")],
)
def test_the_suggested_code(name, code):
    assert adjoint(planted_call(linear(), "1", find_fault(name)), "1").code == code
    assert adjoint(Call(F.linear, linear().args, linear=("0", "1"), batch=BATCH), "1").code is None


@pytest.mark.parametrize("probe", [adjoint, exact, jvp])
@pytest.mark.parametrize("shape", [(3, 1), (7, 3), (15, 13)])
def test_something_where_there_is_nothing_is_wrong_and_not_missing(probe, shape):
    """Float64 fails alike, and truth beside it sees nothing: what is right, only the forward knows."""
    call = Call(wraps_diagonal, (values(*shape),), linear=("0",))
    assert truth(call, "0").ok
    assert probe(call, "0", seed=1).code == "LW104"  # with 0 all upstream integers of `exact` are zero


@pytest.mark.parametrize("probe", [adjoint, exact, jvp])
@pytest.mark.parametrize("name", ["one-row", "shifted"])
def test_a_fault_that_float64_has_too_is_told_from_the_forward(probe, name):
    class Everywhere(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 3 * x

        @staticmethod
        def backward(ctx, *grads):
            return find_fault(name).apply(3 * grads[0])

        @staticmethod
        def jvp(ctx, *tangents):
            return 3 * tangents[0]

    call = Call(Everywhere.apply, (values(8, 4),), linear=("0",))
    assert truth(call, "0").ok
    assert probe(call, "0").code == find_fault(name).code


@pytest.mark.parametrize(("name", "code"), [("one-row", "LW103"), ("shifted", "LW104")])
def test_without_a_right_gradient_the_code_follows_from_zeros(name, code, monkeypatch):
    monkeypatch.setattr(compare, "exact_gradient", lambda trial, direction: None)
    monkeypatch.setattr(compare, "ELEMENTS", 0)
    assert adjoint(planted_call(linear(), "1", find_fault(name)), "1").code == code


@pytest.mark.parametrize("known", [True, False], ids=["in float64", "from the right side"])
@pytest.mark.parametrize("probe", [jvp, truth])
def test_a_right_gradient_below_the_normal_numbers_is_inconclusive(probe, known, monkeypatch):
    if not known:
        monkeypatch.setattr(compare, "exact_gradient", lambda trial, direction: None)
    verdict = probe(half_norm(2_000_000), "0")
    assert verdict.gradient_norm == 0
    assert (verdict.outcome, verdict.reason) == ("inconclusive", directions.BELOW)


@pytest.mark.parametrize("fault", ["zero", "half-the-terms"])
@pytest.mark.parametrize("probe", [jvp, truth])
def test_a_fault_of_the_same_function_is_found_where_the_gradient_is_normal(probe, fault):
    call = half_norm(100_000)
    assert probe(call, "0").ok
    assert probe(planted_call(call, "0", find_fault(fault)), "0").outcome == "failed"


@pytest.mark.parametrize("probe", [jvp, truth])
def test_a_gradient_that_is_normal_where_the_right_one_is_not_is_a_fault(probe):
    """Losing digits makes no number large."""
    copied = Fault("copied", "LW104", "", backward=lambda pull, vs: vs[0][:, None] * torch.ones_like(pull(vs)))
    assert probe(planted_call(half_norm(2_000_000), "0", copied), "0").outcome == "failed"


def test_sums_of_products_are_held_against_small_gradients_too():
    call = linear(dtype=torch.float16)
    call = call.replaced({"0": call.value("0") * 1e-6})
    assert tolerance.subnormal(float(call.value("0").norm()), call.value("0").numel(), torch.float16)
    assert adjoint(call, "1").ok
    assert adjoint(planted_call(call, "1", find_fault("zero")), "1").outcome == "failed"
