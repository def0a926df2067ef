import math

import pytest
import torch

from lanewise.audit.verdict import Verdict, judge, skipped


def test_the_worst_direction_speaks():
    verdict = judge("adjoint", "0", [(1e-9, 1e-6, 1.0), (3e-6, 2e-6, 2.0), (5e-6, 9e-6, 3.0)])
    assert (verdict.outcome, verdict.residual, verdict.tolerance, verdict.gradient_norm) == ("failed", 3e-6, 2e-6, 2.0)
    assert verdict.probes == 3
    assert verdict.reason == "residual 3e-06 where rounding explains 2e-06"


@pytest.mark.parametrize(
    ("samples", "worst"),
    [
        ([(0.25, 0.5, 9.0), (0.4, 0.5, 9.0)], 0.4),
        ([(0.0, 0.0, 9.0), (0.5, 0.0, 9.0)], 0.5),
        ([(0.0, 0.0, 9.0), (0.5, 1.0, 9.0)], 0.5),
        ([(9.0, 1.0, 9.0), (0.5, 0.0, 9.0)], 0.5),
    ],
)
def test_without_a_tolerance_nothing_is_worse_than_a_residual_and_nothing_better_than_none(samples, worst):
    assert judge("exact", "0", samples, law="certain").residual == worst


@pytest.mark.parametrize(("tolerance", "outcome"), [(0.06, "passed"), (0.066, "inconclusive")])
def test_a_direction_may_miss_what_is_all_wrong_one_time_in_twenty(tolerance, outcome):
    assert judge("jvp", "0", [(0.0, 3 * tolerance, 3.0)]).outcome == outcome


@pytest.mark.parametrize("residual", [math.nan, math.inf])
def test_a_residual_that_is_not_finite_fails_beside_any_other(residual):
    verdict = judge("adjoint", "0", [(1.0, 1e-6, 1.0), (residual, 1.0, 1.0)])
    assert verdict.outcome == "failed"
    assert "NaN or infinity" in verdict.reason


def test_an_infinite_tolerance_excuses_no_infinite_residual():
    assert judge("adjoint", "0", [(math.inf, math.inf, math.inf)]).outcome == "failed"


def test_a_tolerance_that_hides_everything_is_inconclusive_but_not_where_the_residual_passes_it():
    assert judge("jvp", "0", [(0.1, 2.0, 1.0)]).outcome == "inconclusive"
    assert judge("jvp", "0", [(2.1, 2.0, 1.0)]).outcome == "failed"
    assert judge("jvp", "0", [(0.0, 0.0, 0.0)]).outcome == "inconclusive"  # of a gradient of zeros nothing is relative


def test_the_miss_probability_is_that_of_a_normal_residual():
    g = torch.Generator().manual_seed(0)
    verdict = judge("adjoint", "0", [(0.0, 1e-3, 1.0)] * 2)
    residuals = 4e-3 * torch.randn(100_000, 2, generator=g)
    observed = (residuals.abs() <= 1e-3).all(1).double().mean().item()
    assert verdict.miss_probability(4e-3) == pytest.approx(observed, abs=3e-3)
    assert verdict.miss_probability(4e-3) <= (math.sqrt(2 / math.pi) / 4) ** 2
    assert verdict.miss_probability(0) == 1


def test_comparing_whole_gradients_leaves_nothing_to_chance():
    verdict = judge("truth", "0", [(0.0, 1e-3, 2.0)], law="certain")
    assert (verdict.miss_probability(0.4e-3), verdict.miss_probability(0.6e-3)) == (1, 0)


def test_what_did_not_run_misses_everything():
    verdict = skipped("jvp", "0", "no forward mode")
    assert not verdict.ok
    assert verdict.probes == 0
    assert verdict.miss_probability(1) == 1
    assert Verdict("jvp", "0", "inconclusive", 0.0, 1.0, 1, 10.0).miss_probability(1) == 1
