import math

import pytest
import torch
from audited import linear, values

from lanewise.audit import tolerance
from lanewise.audit.call import Call
from lanewise.audit.faults import Fault, find_fault, planted_call
from lanewise.audit.probes.adjoint import adjoint
from lanewise.audit.probes.directions import Noise, begin, draw
from lanewise.audit.probes.jvp import push_forward
from lanewise.audit.probes.truth import _spread, _wrong, truth


def test_one_element_is_found_where_the_whole_hides_it():
    """In bf16 one small element of many is below the rounding of the whole gradient."""

    def lose_a_small_one(grad):
        flat = grad.flatten().clone()
        at = (flat.abs() - 0.3 * flat.abs().max()).abs().argmin()
        flat[at] = 0
        return flat.reshape(grad.shape)

    call = linear(64, 96, 128, dtype=torch.bfloat16)
    faulty = planted_call(call, "1", Fault("lost", "LW103", "", lose_a_small_one))
    assert adjoint(faulty, "1").ok
    verdict = truth(faulty, "1")
    assert (verdict.outcome, verdict.code) == ("failed", "LW103")
    assert verdict.region is not None
    assert [stop - start for start, stop in verdict.region] == [1, 1]


@pytest.mark.parametrize("shape", [(), (5,), (4, 3), (2, 3, 4)])
def test_gradients_of_any_dimension(shape):
    call = Call(lambda x: 3 * x, (values(*shape),), linear=("0",))
    assert truth(call, "0").ok
    assert shape == () or truth(planted_call(call, "0", find_fault("one-entry")), "0").outcome == "failed"


def test_rows_of_different_size_have_their_own_limits():
    scale = 10.0 ** torch.arange(-6, 6)
    call = Call(lambda x: x * scale[:, None].to(x), (values(12, 30),), linear=("0",))
    assert truth(call, "0").ok

    def lose_in_the_smallest_row(grad):
        out = grad.clone()
        out[0, 3] = 0
        return out

    assert adjoint(planted_call(call, "0", Fault("lost", "", "", lose_in_the_smallest_row)), "0").ok


def test_zeros_are_called_that():
    assert truth(planted_call(linear(), "1", find_fault("zero")), "1").code == "LW101"


def test_beyond_the_range_of_the_dtype_is_inconclusive():
    call = Call(lambda x: x * 1e5, (torch.full((4,), 1e-3, dtype=torch.float16),), linear=("0",))
    assert truth(call, "0").outcome == "inconclusive"
    assert adjoint(call, "0").outcome == "inconclusive"


def test_a_call_that_does_not_work_in_float64_is_skipped():
    assert truth(Call(lambda x: x.float() * 2, (values(5),)), "0").outcome == "skipped"


@pytest.mark.parametrize("size", [114, 4097])
def test_coefficients_that_are_rounded_themselves_are_no_fault(size):
    """The weights of an interpolation are differences of coordinates as large as the size."""

    def stretch(x):
        return torch.nn.functional.interpolate(x, size=(size * 2) // 3, mode="linear")

    call = Call(stretch, (values(2, 3, size),), linear=("0",))
    assert adjoint(call, "0").ok
    assert truth(call, "0").ok
    planted = planted_call(call, "0", find_fault("one-entry"))
    assert truth(planted, "0").outcome == "failed"


@pytest.mark.parametrize("size", [3.0, 2.0**-6])
@pytest.mark.parametrize(("off", "outcome"), [(0.7, "passed"), (3.0, "failed")])
def test_an_element_may_be_off_by_eight_deviations_of_its_own_rounding_and_its_share_of_the_whole(off, outcome, size):
    call = Call(lambda x: size * x, (values(20, 30),), linear=("0",), cotangent="ones")
    trial = begin(call, "0", "truth")
    (direction,) = draw(trial, 1, 0)
    share = Noise(trial, [direction], push_forward).sigma(direction) / math.sqrt(600)
    limit = 8 * math.hypot(size * tolerance.unit(torch.float32), share)

    def nudge(grad):
        out = grad.clone()
        out[4, 5] += off * limit
        return out

    verdict = truth(planted_call(call, "0", Fault("nudge", "", "", nudge)), "0", probes=1)
    assert verdict.outcome == outcome
    if outcome == "failed":
        assert verdict.residual == pytest.approx(off * limit, rel=0.1)
        assert verdict.tolerance == pytest.approx(limit, rel=0.5)  # which the error itself has widened
        assert verdict.region == ((4, 5), (5, 6))
        numbers = f"off by {verdict.residual:.3g} where rounding explains {verdict.tolerance:.3g}"
        assert verdict.reason == f"an element is {numbers}"


def test_an_element_is_as_large_as_the_largest_mean_of_its_rows():
    x = torch.tensor([[3.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    row = math.sqrt(8)  # the one of 4; that of 3 is below the mean of all, 2.5
    torch.testing.assert_close(_spread(x), torch.tensor([[2.5, row], [row, row]], dtype=torch.float64))
    assert _spread(x[1]).tolist() == [row, row]
    cube = torch.zeros(2, 2, 2, dtype=torch.float64)
    cube[0, 0, 0] = math.sqrt(8)  # in three planes of four; the opposite corner is in none of them
    want = torch.full_like(cube, math.sqrt(2))
    want[1, 1, 1] = 1
    torch.testing.assert_close(_spread(cube), want)


@pytest.mark.parametrize("size", [1e-3, 1e-6])
def test_elements_of_a_small_gradient_have_their_share_of_its_rounding(size):
    call = linear()
    assert truth(call.replaced({"0": call.value("0") * size}), "1").ok


@pytest.mark.parametrize(
    ("one", "others", "wrong"), [(0.9, 0.05, 1), (0.7, 0.08, 0), (0.9, 0.0, 0), (1.5, 0.0, 1), (math.inf, 9.0, 1)]
)
def test_without_limits_those_are_wrong_that_make_up_a_difference_that_is_too_large(one, others, wrong):
    """A hundred elements that may be off by 1 together may by eight tenths each, if together they are off by more."""
    exact = torch.ones(100, dtype=torch.float64)
    off = torch.full((100,), others, dtype=torch.float64)
    off[3] = one
    found = _wrong(exact + off, exact, 1.0, None)
    assert found.nonzero().flatten().tolist() == [3] * wrong


def test_the_element_that_is_furthest_beyond_its_own_limit_speaks_beside_larger_ones_within_theirs():
    scale = torch.tensor([1.0] * 10 + [1e-3] * 10)
    call = Call(lambda x: x * torch.outer(scale, scale).to(x), (values(20, 20),), linear=("0",), cotangent="ones")
    u = tolerance.unit(torch.float32)

    def nudge(grad):  # large elements may be off by 10 u, small ones by 3
        out = grad.clone()
        out[2, 3] += 5 * u
        out[15, 16] += 8 * u
        return out

    verdict = truth(planted_call(call, "0", Fault("nudge", "", "", nudge)), "0")
    assert (verdict.outcome, verdict.region) == ("failed", ((15, 16), (16, 17)))
