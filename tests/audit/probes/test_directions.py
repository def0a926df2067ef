"""What adjoint and jvp share: noise, slices of the right side, and what is said of the chance of missing a fault."""

import math

import pytest
import torch
import torch.nn.functional as F
from audited import layer_norm, linear, values
from scipy import stats

from lanewise.audit import tolerance
from lanewise.audit.call import Call
from lanewise.audit.faults import Fault, find_fault, planted_call
from lanewise.audit.probes import directions
from lanewise.audit.probes.adjoint import adjoint, difference
from lanewise.audit.probes.directions import Noise, begin, draw, right_side
from lanewise.audit.probes.jvp import jvp, push_forward
from lanewise.audit.probes.measure import dot


def trial_of(call, argument="1"):
    trial = begin(call, argument, "adjoint")
    return trial, draw(trial, 3, 0)


def error(relative, seed):
    """A fault of this relative size in a fixed random direction."""

    def apply(grad):
        e = torch.randn(grad.shape, generator=torch.Generator().manual_seed(10_000 + seed), dtype=torch.float64)
        wide = grad.double()
        return (wide + relative * wide.norm() * e / e.norm()).to(grad)

    return Fault("error", "LW105", "a random direction", apply)


@pytest.mark.parametrize(("make", "argument", "name"), [(linear, "1", adjoint), (layer_norm, "0", jvp)])
@pytest.mark.parametrize("floors", [8, 15])
def test_the_stated_miss_probability_is_the_observed_one(make, argument, name, floors):
    runs, missed = 120, 0
    call = make(9, 8)
    healthy = name(call, argument)
    relative = floors * healthy.tolerance / tolerance.LAMBDA / healthy.gradient_norm
    for seed in range(runs):
        missed += name(planted_call(call, argument, error(relative, seed)), argument, seed=seed).outcome != "failed"
    interval = stats.binom.interval(0.999, runs, healthy.miss_probability(relative))
    assert interval[0] <= missed <= interval[1]


@pytest.mark.parametrize("make", [linear, layer_norm])
def test_the_noise_is_the_error_against_float64(make):
    call = make(64, 96)
    trial, several = trial_of(call, "0")
    noise = Noise(trial, several, push_forward)
    for direction in several:
        exact = call.double().gradient([v.double() for v in direction.cotangents])["0"]
        actual = float((direction.gradient.double() - exact).norm())
        assert actual < noise.sigma(direction) < 8 * actual


def test_rescaling_does_not_see_a_linear_fault_and_the_bound_does_not_excuse_a_race():
    call = linear()
    sigma = {}
    for name in ("one-row", "race", "bf16-sum"):
        trial, several = trial_of(planted_call(call, "1", find_fault(name)))
        sigma[name] = Noise(trial, several, difference).sigma(several[0]) / several[0].norm
    trial, several = trial_of(call)
    healthy = Noise(trial, several, difference).sigma(several[0]) / several[0].norm
    assert sigma["one-row"] < 1.5 * healthy
    assert max(sigma.values()) < 10 * healthy


@pytest.mark.parametrize("name", ["race", "bf16-sum"])
def test_noise_that_float64_does_not_have_is_no_excuse_either_where_no_bound_is_known(name):
    assert jvp(planted_call(layer_norm(), "0", find_fault(name)), "0").outcome == "failed"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [1, 2])
def test_a_gradient_that_cancels_is_no_finding(width, dtype):
    calls = [Call(F.layer_norm, (values(50, width, seed=seed, dtype=dtype), (width,))) for seed in range(10)]
    outcomes = {jvp(call, "0", seed=seed).outcome for seed, call in enumerate(calls)}
    assert "failed" not in outcomes
    assert width > 1 or outcomes == {"inconclusive"}


def test_directions_are_not_the_inputs_own_random_numbers():
    x = torch.randn(30, 40, generator=torch.Generator().manual_seed(0))
    _, several = trial_of(Call(torch.sin, (x,)), "0")
    for direction in several:
        assert abs(dot(direction.cotangents[0], x)) < 0.2 * float(x.norm()) * float(direction.cotangents[0].norm())
        assert abs(dot(direction.u, x)) < 0.2 * float(x.norm() * direction.u.norm())


@pytest.mark.parametrize("argument", ["0", "1"])
def test_the_right_side_in_slices_is_the_same(argument, monkeypatch):
    trial, several = trial_of(linear(), argument)
    whole = right_side(trial, several[0], difference)[0]
    length = Noise(trial, several, difference).context.reduction
    monkeypatch.setattr(directions, "SLICE_BYTES", 8 * 30 * 7)  # seven of forty entries
    trial, several = trial_of(linear(), argument)
    assert right_side(trial, several[0], difference)[0] == pytest.approx(whole, rel=1e-12)
    assert Noise(trial, several, difference).context.reduction == length == {"0": 30, "1": 40}[argument]
    assert adjoint(linear(), argument).ok


def test_one_sided_sums_are_known_from_the_cotangent():
    trial, several = trial_of(Call(F.linear, linear().args, linear=("0", "1"), cotangent="ones"))
    context = Noise(trial, several, difference).context
    assert (context.one_sided, context.reduction, context.device) == (True, 40, "cpu")


def test_what_does_not_work_in_float64_is_probed_in_its_own_dtype():
    def single(x):
        if x.dtype != torch.float32:
            raise TypeError("float32 only")
        return x * 3

    call = Call(single, (values(40),), linear=("0",))
    assert adjoint(call, "0").ok
    assert jvp(call, "0").ok
    for name in ("zero", "scaled", "shifted"):
        faulty = Call(planted_call(call, "0", find_fault(name)).fn, call.args, linear=("0",))
        assert adjoint(faulty, "0").outcome == "failed"


def test_another_function_in_float64_is_not_used_as_the_right_side():
    call = Call(lambda x: x * (2 if x.dtype == torch.float32 else 3), (values(40),), linear=("0",))
    assert adjoint(call, "0").ok


def test_a_forward_that_is_not_finite_is_inconclusive():
    verdict = jvp(Call(torch.log, (-values(5).abs(),)), "0")
    assert (verdict.outcome, verdict.reason) == ("inconclusive", "the forward holds NaN or infinity")


def test_several_outputs_count_together():
    call = Call(lambda x: (x.sin(), {"b": x.cumsum(0)}), (values(50),))
    assert jvp(call, "0").ok
    assert jvp(planted_call(call, "0", find_fault("one-entry")), "0").outcome == "failed"


def test_random_numbers_are_the_same_in_every_run():
    dropout = Call(F.dropout, (values(64, 64),), linear=("0",), batch=None)
    assert adjoint(dropout, "0").ok
    assert math.isfinite(adjoint(dropout, "0").miss_probability(1e-3))


@pytest.mark.parametrize("few", [True, False])
def test_the_bound_of_a_sum_serves_only_where_few_elements_measure_little(few, monkeypatch):
    size = tolerance.FEW - 1 if few else tolerance.FEW
    trial, several = trial_of(Call(torch.tanh, (values(size),)), "0")
    noise = Noise(trial, several, push_forward)
    monkeypatch.setattr(noise, "bound", lambda direction: 0.5 * direction.norm)  # of a very long sum
    sigma = noise.sigma(several[0]) / several[0].norm
    assert sigma == 0.5 if few else sigma < 1e-3
