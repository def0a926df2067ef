import pytest
import torch
import torch.nn.functional as F
from audited import convolution, embedding, layer_norm, linear, values

from lanewise.audit.call import Call
from lanewise.audit.faults import Fault, find_fault, planted_call
from lanewise.audit.probes.directions import begin
from lanewise.audit.probes.exact import _cotangents, _share, exact


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_as_few_cotangents_are_not_zero_as_sums_of_any_signs_need_to_be_exact(dtype):
    """Where sums of absolute values of all of them are far beyond what the dtype holds exactly."""
    trial = begin(_integers_of(linear(n=20_000, m=3, k=4, dtype=dtype)), "1", "exact")
    share = _share(trial, torch.Generator().manual_seed(0))
    assert share is not None
    x = trial.call.value("0").double().abs()
    for seed in range(5):
        (v,) = _cotangents(trial, share, torch.Generator().manual_seed(seed))
        largest = float((v.double().abs().T @ x).max())
        assert 1 / 16 < largest * torch.finfo(dtype).eps / 2 <= 1 or (share == 1 and dtype == torch.float32)
    assert exact(trial.call, "1").outcome == "passed"


def _integers_of(call):
    g = torch.Generator().manual_seed(0)
    return call.replaced({k: torch.randint(-2, 3, x.shape, generator=g).to(x) for k, x in call.tensors().items()})


def test_every_output_has_to_stay_an_integer():
    call = Call(lambda x: (x * 2, x / 3), (values(5),), linear=("0",))
    assert exact(call, "0").reason == "integers do not stay integers"


def test_the_region_is_that_of_the_direction_that_is_wrong():
    calls = []

    def nudge(grad):
        calls.append(grad)
        return grad + (torch.arange(grad.numel()) == 57).reshape(grad.shape) * (len(calls) % 3 == 0)

    for _ in range(3):
        calls.append(None)  # whichever of the three directions it is
        verdict = exact(planted_call(linear(), "1", Fault("nudge", "", "", nudge)), "1")
        assert (verdict.outcome, verdict.region) == ("failed", ((1, 2), (7, 8)))


def test_no_terms_are_named_where_outputs_have_different_lengths_or_one_cotangent():
    several = Call(lambda x: (x * 2, x[:3]), (values(9),), linear=("0",))
    verdict = exact(planted_call(several, "0", find_fault("half-the-terms")), "0")
    assert (verdict.outcome, verdict.region is None) == ("failed", False)
    assert "outputs" not in verdict.reason
    ones = Call(F.linear, linear().args, linear=("0", "1"), cotangent="ones")
    verdict = exact(planted_call(ones, "1", find_fault("half-the-terms")), "1")
    assert "outputs" not in verdict.reason


def test_the_lost_terms_may_lie_in_the_middle_and_are_not_named_where_all_are():
    def lose(pull, vs):
        rows = torch.arange(len(vs[0]))
        return pull([vs[0] * ((rows < 5) | (rows > 12))[:, None]])

    verdict = exact(planted_call(linear(), "1", Fault("middle", "", "", backward=lose)), "1")
    assert verdict.reason.endswith("what outputs 5 to 12 along dimension 0 contribute is wrong")
    verdict = exact(planted_call(linear(), "1", find_fault("zero")), "1")
    assert (verdict.code, "outputs" in verdict.reason) == ("LW101", False)
