"""What the probes make of their directions: codes, and what is too small or too large to be judged."""

import math

import pytest
import torch
import torch.nn.functional as F
from audited import BATCH, half_norm, linear, trial_of, values
from audited_functions import wraps_diagonal

from lanewise.audit import tolerance
from lanewise.audit.call import Call
from lanewise.audit.faults import Fault, find_fault, planted_call
from lanewise.audit.probes import compare, directions
from lanewise.audit.probes.adjoint import adjoint, difference
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


@pytest.mark.parametrize(("name", "code"), [("one-row", "LW103"), ("shifted", "LW104"), ("scaled", "LW105")])
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


def test_what_is_left_of_one_row_is_a_part_that_is_missing():
    """Too little for what is there to say so: it is the elements that are wrong that are zero."""

    def keep_a_row(grad):
        return torch.cat([grad[:1], torch.zeros_like(grad[1:])])

    assert adjoint(planted_call(linear(), "1", Fault("keep", "", "", keep_a_row)), "1").code == "LW103"


def test_the_code_is_that_of_the_worst_direction_and_of_all_where_it_says_all(monkeypatch):
    monkeypatch.setattr(compare, "exact_gradient", lambda trial, direction: None)
    monkeypatch.setattr(compare, "ELEMENTS", 0)
    trial, (one, other, _) = trial_of(linear())
    empty = other._replace(gradient=torch.zeros_like(other.gradient), norm=0.0)

    def code(several, *sides):
        return compare.suggest(trial, several, sides, difference)

    assert code([one, empty], (1.0, 1.1), (0.0, 9.0)) == "LW103"  # zeros are in the worst
    assert code([one, empty], (1.0, 9.1), (0.0, 1.0)) == "LW104"
    assert code([one, empty], (-4.0, 4.0), (5.0, 4.0)) == "LW104"
    assert code([empty, empty], (0.0, 1.0), (0.0, 9.0)) == "LW101"
    assert code([one, other._replace(norm=math.inf)], (1.0, 1.1), (0.0, 9.0)) == "LW102"
    assert code([one, other], (1.01, 1.0), (1.0105, 1.0)) == "LW105"  # by the same factor
    assert code([one, other], (1.01, 1.0), (1.013, 1.0)) == "LW104"


def test_what_is_wrong_of_a_small_gradient_is_told_by_its_own_size():
    call = linear()
    small = call.replaced({"0": call.value("0") * 1e-3})
    assert adjoint(planted_call(small, "1", find_fault("shifted")), "1").code == "LW104"


@pytest.mark.parametrize("probe", [jvp, truth])
def test_elements_that_are_zero_make_no_gradient_small(probe):
    call = Call(lambda x: x[:4].sin() * 1e-3, (values(10_000, dtype=torch.float16),))
    assert probe(call, "0").ok
    assert probe(planted_call(call, "0", find_fault("zero")), "0").code == "LW101"


@pytest.mark.parametrize(("size", "outcome"), [(6e-5, "inconclusive"), (3e-4, "failed")])
@pytest.mark.parametrize("fault", ["zero", "half-the-terms"])
@pytest.mark.parametrize("probe", [jvp, truth])
def test_what_small_numbers_lose_is_no_finding_by_the_size_of_the_right_gradient(probe, fault, size, outcome):
    call = Call(lambda x: x.sin() * size, (values(1000, dtype=torch.float16),))
    assert probe(call, "0").ok
    assert probe(planted_call(call, "0", find_fault(fault)), "0").outcome == outcome
