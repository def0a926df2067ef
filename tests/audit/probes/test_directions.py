"""What adjoint and jvp share: slices of the right side, codes, and what is said of the chance of missing a fault."""

import math

import pytest
import torch
import torch.nn.functional as F
from audited import layer_norm, linear, trial_of, values
from scipy import stats

from lanewise.audit import tolerance
from lanewise.audit.call import Call
from lanewise.audit.faults import Fault, find_fault, planted_call
from lanewise.audit.probes import directions
from lanewise.audit.probes.adjoint import adjoint, difference
from lanewise.audit.probes.directions import (
    Noise,
    begin,
    beyond_range,
    draw,
    exact_gradient,
    right_side,
    slices_of,
)
from lanewise.audit.probes.jvp import jvp
from lanewise.audit.probes.measure import dot


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
    assert [len(v) for _, _, (v,) in slices_of(trial, several[0])] == [7, 7, 7, 7, 7, 5]
    assert right_side(trial, several[0], difference)[0] == pytest.approx(whole, rel=1e-12)
    assert Noise(trial, several, difference).context.reduction == length == {"0": 30, "1": 40}[argument]
    assert adjoint(linear(), argument).ok
    monkeypatch.setattr(directions, "SLICE_BYTES", 1)
    assert [len(v) for _, _, (v,) in slices_of(trial, several[0])] == [1] * 40


@pytest.mark.parametrize("batch", [{"0": 0, "output": 0}, None])
def test_many_entries_are_compared_with_float64_by_their_first(batch, monkeypatch):
    """Where the entries are known to be independent."""
    seen = []

    def watched(x):
        seen.append((x.dtype, len(x)))
        return x * 2

    call = Call(watched, (values(40),), linear=("0",), batch=batch)
    monkeypatch.setattr(directions, "SLICE_BYTES", 8 * 40)
    begin(call, "0", "adjoint")
    assert seen[-1] == (torch.float64, 40)
    monkeypatch.setattr(directions, "SLICE_BYTES", 8 * 40 - 1)
    begin(call, "0", "adjoint")
    assert seen[-1] == (torch.float64, 40 if batch is None else 1)


def test_the_gradient_in_float64_takes_as_much_memory_as_its_outputs_and_itself(monkeypatch):
    trial, several = trial_of(linear(), "1")
    monkeypatch.setattr(directions, "SLICE_BYTES", 8 * (40 * 30 + 30 * 50))
    assert exact_gradient(trial, several[0]) is not None
    monkeypatch.setattr(directions, "SLICE_BYTES", 8 * (40 * 30 + 30 * 50) - 1)
    assert exact_gradient(trial, several[0]) is None


def test_the_right_side_says_how_exact_it_is_itself():
    """In float32 beside float64, over many directions."""
    squares = 0.0
    for seed in range(40):
        trial = begin(linear(seed=seed), "1", "adjoint")
        (direction,) = draw(trial, 1, seed)
        short = direction._replace(u=direction.u.float())
        exact, _ = right_side(trial, short._replace(u=short.u.double()), difference)
        value, own = right_side(trial._replace(apart=math.inf), short, difference)
        squares += ((value - exact) / own) ** 2
    assert 0.1 < math.sqrt(squares / 40) < 0.5


def test_what_does_not_work_in_float64_is_probed_in_its_own_dtype():
    def single(x):
        if x.dtype != torch.float32:
            raise TypeError("float32 only")
        return x * 3

    call = Call(single, (values(40),), linear=("0",))
    assert adjoint(call, "0").ok
    assert jvp(call, "0").ok
    race = planted_call(Call(lambda x: single(x).sin(), (values(40),)), "0", find_fault("race"))
    assert jvp(race, "0").outcome == "inconclusive"  # nothing tells it from rounding there
    for name in ("zero", "scaled", "shifted"):
        faulty = Call(planted_call(call, "0", find_fault(name)).fn, call.args, linear=("0",))
        assert adjoint(faulty, "0").outcome == "failed"


def test_another_function_in_float64_is_not_used_as_the_right_side():
    call = Call(lambda x: x * (2 if x.dtype == torch.float32 else 3), (values(40),), linear=("0",))
    assert adjoint(call, "0").ok


def test_a_forward_that_is_not_finite_is_inconclusive():
    verdict = jvp(Call(torch.log, (-values(5).abs(),)), "0")
    assert (verdict.outcome, verdict.reason) == ("inconclusive", "the forward holds NaN or infinity")


@pytest.mark.parametrize("size", [1.0, 1e-4])
@pytest.mark.parametrize("apart", [0.05, 0.2])
def test_outputs_that_differ_by_more_than_a_tenth_are_those_of_another_function(apart, size):
    call = Call(lambda x: x * (1 if x.dtype == torch.float32 else 1 + apart), (size * values(40),), linear=("0",))
    assert begin(call, "0", "adjoint").wide == (apart < 0.1)


def test_outputs_of_zeros_are_the_same_in_float64():
    assert begin(Call(lambda x: x * 2, (torch.zeros(5),), linear=("0",)), "0", "adjoint").wide


@pytest.mark.parametrize(
    "other",
    [lambda x: x * (1 if x.dtype == torch.float32 else 2), lambda x: x.float() * 1, lambda x: x[: x.element_size()]],
    ids=["values", "dtype", "shape"],
)
def test_one_output_of_several_that_is_another_in_float64_is_enough(other):
    call = Call(lambda x: (x * 2, other(x), x * 3), (values(40),), linear=("0",))
    assert not begin(call, "0", "adjoint").wide


def test_one_output_that_is_not_finite_in_float64_is_enough():
    call = Call(lambda x: (x, x * (1 if x.dtype == torch.float32 else math.inf), x), (values(40),), linear=("0",))
    assert not begin(call, "0", "adjoint").wide


def test_what_a_sum_goes_through_may_be_twice_its_result():
    largest = torch.finfo(torch.float16).max
    sizes = torch.tensor([0.4, 0.6, math.nan], dtype=torch.float64) * largest
    assert [beyond_range(size, torch.float16) for size in (sizes[:1], sizes[:2], sizes[::2])] == [False, True, True]
    assert not beyond_range(None, torch.float16)


def test_a_gradient_beyond_the_range_in_one_direction_alone_is_inconclusive():
    call = Call(lambda x: x * 5e4, (torch.tensor([1e-3], dtype=torch.float16),), linear=("0",))
    assert {adjoint(call, "0", seed=seed).outcome for seed in range(20)} == {"passed", "inconclusive"}


def test_one_output_that_is_not_finite_is_inconclusive_and_one_without_a_gradient_is_no_matter():
    spoiled = jvp(Call(lambda x: (x.sin(), x.log()), (-values(5).abs(),)), "0")
    assert (spoiled.outcome, spoiled.reason) == ("inconclusive", "the forward holds NaN or infinity")
    assert adjoint(Call(lambda x: (x * 2, x.detach()[:1] * 0), (values(5),), linear=("0",)), "0").ok


def test_several_outputs_count_together():
    call = Call(lambda x: (x.sin(), {"b": x.cumsum(0)}), (values(50),))
    assert jvp(call, "0").ok
    assert jvp(planted_call(call, "0", find_fault("one-entry")), "0").outcome == "failed"


def test_random_numbers_are_the_same_in_every_run():
    dropout = Call(F.dropout, (values(64, 64),), linear=("0",), batch=None)
    assert adjoint(dropout, "0").ok
    assert math.isfinite(adjoint(dropout, "0").miss_probability(1e-3))
