import pytest
import torch
from audited import linear, values

from lanewise.audit.call import Call
from lanewise.audit.faults import Fault, find_fault, planted_call
from lanewise.audit.probes.adjoint import adjoint
from lanewise.audit.probes.truth import truth


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
