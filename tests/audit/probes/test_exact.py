import pytest
import torch
import torch.nn.functional as F
from audited import convolution, embedding, layer_norm, linear, values

from lanewise.audit.call import Call
from lanewise.audit.faults import Fault, find_fault, planted_call
from lanewise.audit.probes.exact import exact


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("make", [linear, convolution, embedding])
def test_integers_leave_no_residual(make, dtype):
    call = make(dtype=dtype)
    for name in call.names:
        verdict = exact(call, name)
        assert (verdict.outcome, verdict.residual, verdict.tolerance) == ("passed", 0, 0)
        assert verdict.miss_probability(1e-9) == 0


def test_one_unit_in_one_element_is_found_and_named():
    def nudge(grad):
        out = grad.clone()
        out[3, 7] += 1
        return out

    verdict = exact(planted_call(linear(), "1", Fault("nudge", "LW105", "", nudge)), "1")
    assert verdict.outcome == "failed"
    assert verdict.region == ((3, 4), (7, 8))
    assert verdict.reason.startswith("integers that are exact in any order differ by")


@pytest.mark.parametrize(
    ("name", "region"),
    [("last-tile", ((16, 30), (0, 50))), ("zero", ((0, 30), (0, 50))), ("nan", ((15, 16), (0, 1)))],
)
def test_the_region_is_named(name, region):
    assert exact(planted_call(linear(), "1", find_fault(name)), "1").region == region


def test_the_lost_terms_of_a_sum_are_named():
    verdict = exact(planted_call(linear(), "1", find_fault("half-the-terms")), "1")
    assert verdict.reason.endswith("what outputs 20 to 39 along dimension 0 contribute is wrong")
    assert verdict.code == "LW103"


def test_it_says_when_it_cannot_tell():
    assert exact(layer_norm(), "0").outcome == "skipped"
    half = Call(lambda x: x / 3, (values(5),), linear=("0",))
    assert exact(half, "0").reason == "integers do not stay integers"
    ones = Call(F.linear, linear(n=5000, dtype=torch.bfloat16).args, linear=("0", "1"), cotangent="ones")
    many = exact(ones, "1")
    assert many.outcome in ("passed", "inconclusive")
    single = Call(lambda x: x.float() * 2, (values(5),), linear=("0",))
    assert "does not work in float64" in exact(single, "0").reason
