"""The rounding error that directions measure, and its bounds."""

import math

import pytest
import torch
import torch.nn.functional as F
from audited import layer_norm, linear, trial_of, values

from lanewise.audit import tolerance
from lanewise.audit.call import Call
from lanewise.audit.faults import Fault, find_fault, planted_call
from lanewise.audit.probes.adjoint import difference
from lanewise.audit.probes.directions import Noise, begin, draw, shaken
from lanewise.audit.probes.jvp import jvp, push_forward


@pytest.mark.parametrize(("make", "most"), [(linear, 1.3), (layer_norm, 2.0)])
def test_what_rescaling_and_shaking_change_is_what_the_gradient_is_off(make, most):
    call = make(64, 96)
    trial, several = trial_of(call, "0")
    errors = 0.0
    for d in several:
        exact = call.double().gradient([v.double() for v in d.cotangents])["0"]
        errors += (float((d.gradient.double() - exact).norm()) / d.norm) ** 2 / len(several)
    assert 0.9 < Noise(trial, several, push_forward).measured / math.sqrt(errors) < most


@pytest.mark.parametrize("call", [layer_norm(), Call(lambda x: x.sin() * 1e-6, (values(50, dtype=torch.float16),))])
def test_what_is_no_sum_is_allowed_what_sums_are_and_what_other_functions_are(call):
    trial, several = trial_of(call, "0")
    noise = Noise(trial, several, push_forward)
    for d in several:
        gain = max(e.norm / float(e.cotangents[0].double().norm()) for e in several)
        sizes = d.norm, gain * float(d.cotangents[0].double().norm()), d.gradient.numel()
        assert noise.least(d) >= 0.999 * tolerance.least(noise.context, *sizes)
        assert noise.least(d) >= 0.999 * tolerance.composed(noise.context, *sizes)


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


@pytest.mark.parametrize("size", [1.0, 1e3])  # of a gradient that is as much smaller
@pytest.mark.parametrize("name", ["race", "bf16-sum"])
def test_noise_that_float64_does_not_have_is_no_excuse_either_where_no_bound_is_known(name, size):
    call = layer_norm()
    call = call.replaced({"0": call.value("0") * size})
    assert jvp(planted_call(call, "0", find_fault(name)), "0").outcome == "failed"


def test_a_race_is_excused_as_far_as_32_times_what_float64_makes_of_its_own_rounding():
    def measured(call):
        return Noise(*trial_of(call, "0"), push_forward).measured

    wide = measured(layer_norm().double()) / 2**-53
    assert measured(planted_call(layer_norm(), "0", find_fault("race"))) / 2**-24 == pytest.approx(32 * wide, rel=0.3)
    assert measured(layer_norm()) / 2**-24 == pytest.approx(wide, rel=0.3)


def test_shaking_moves_by_a_unit_at_most():
    x = torch.ones(300).bfloat16()
    moved = shaken(Call(torch.sin, (x,)), torch.Generator().manual_seed(0))["0"]
    assert set(moved.tolist()) == {1 - 2**-7, 1.0, 1 + 2**-7}


def test_a_change_that_one_element_makes_up_is_widened():
    """By the root of 33; what changes is drawn anew in both of two passes, of which one is divided by the scale."""
    state = torch.Generator().manual_seed(0)

    def start():
        def pull_and_add(pull, vs):
            out = pull(vs).clone()
            out[0, 0] += torch.randn((), generator=state)
            return out

        return pull_and_add

    trial = begin(planted_call(linear(), "1", Fault("one", "", "", start=start)), "1", "adjoint")
    changes = [d.change for d in draw(trial, 200, 0)]
    assert math.sqrt(sum(c**2 for c in changes) / 200) == pytest.approx(math.sqrt(33 * (1 + 1.86)), rel=0.15)


def test_rescaling_takes_no_gradient_beyond_the_range_of_its_dtype():
    call = Call(lambda x: x * 1e4, (torch.full((100,), 1e-3, dtype=torch.float16),), linear=("0",))
    _, several = trial_of(call, "0")
    assert all(float(d.gradient.abs().max()) > 2e4 for d in several)
    assert all(math.isfinite(d.change) for d in several)


def test_a_decision_that_shaking_turns_is_no_excuse_where_the_residual_needs_none():
    """At the ties of a maximum; a tolerance that hides everything would be inconclusive."""
    ties = torch.randint(0, 2, (20, 40), generator=torch.Generator().manual_seed(0)).bfloat16()
    call = Call(lambda x: F.max_pool1d(x, 4), (ties,))
    trial, several = trial_of(call, "0")
    noise = Noise(trial, several, push_forward)
    assert noise.sigma(several[0]) > 0.5 * several[0].norm
    verdict = jvp(call, "0")
    assert verdict.ok
    assert verdict.tolerance < 0.05 * verdict.gradient_norm
    smooth = jvp(layer_norm(), "0")  # elsewhere what was measured counts
    trial, several = trial_of(layer_norm(), "0")
    sigmas = [tolerance.LAMBDA * Noise(trial, several, push_forward).sigma(d) for d in several]
    assert any(smooth.tolerance == pytest.approx(sigma, rel=1e-3) for sigma in sigmas)


def test_one_sided_sums_are_known_from_the_cotangent():
    trial, several = trial_of(Call(F.linear, linear().args, linear=("0", "1"), cotangent="ones"))
    context = Noise(trial, several, difference).context
    assert (context.one_sided, context.reduction, context.device) == (True, 40, "cpu")


def test_what_a_one_sided_gradient_would_be_without_signs_that_agree_is_that_of_random_ones():
    trial, several = trial_of(Call(F.linear, linear().args, linear=("0", "1"), cotangent="ones"))
    signed = trial_of(linear())[1][0]
    gain = signed.norm / float(signed.cotangents[0].norm())
    bound = Noise(trial, several, difference).bound(several[0])
    terms = gain * float(several[0].cotangents[0].norm())
    assert bound == pytest.approx(2**-24 * math.sqrt(40 / 6) * math.sqrt(40) * terms, rel=0.1)


@pytest.mark.parametrize("few", [True, False])
def test_the_bound_of_a_sum_serves_only_where_few_elements_measure_little(few, monkeypatch):
    size = tolerance.FEW - 1 if few else tolerance.FEW
    trial, several = trial_of(Call(torch.tanh, (values(size),)), "0")
    noise = Noise(trial, several, push_forward)
    monkeypatch.setattr(noise, "bound", lambda direction: 0.5 * direction.norm)  # of a very long sum
    sigma = noise.sigma(several[0]) / several[0].norm
    assert sigma == 0.5 if few else sigma < 1e-3
