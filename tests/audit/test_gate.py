import math

import pytest
import torch

from lanewise.audit.gate import FLOOR, GateError, gate, relative_error, require

G = torch.Generator().manual_seed(0)
TRUTH = torch.randn(1000, generator=G, dtype=torch.float64)


@pytest.mark.parametrize(("factor", "ok"), [(1 + 0.9 * FLOOR, True), (1 + 1.1 * FLOOR, False), (-1, False), (0, False)])
def test_the_floor(factor, ok):
    assert gate("x", TRUTH * factor, TRUTH).ok is ok


def test_the_fp32_references_own_error_doubles_the_limit():
    single = TRUTH * (1 + 1e-4)
    assert gate("x", TRUTH * (1 + 1.9e-4), TRUTH, single).ok
    assert not gate("x", TRUTH * (1 + 2.1e-4), TRUTH, single).ok


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_one_value_that_is_not_finite_never_passes(value):
    got = TRUTH.clone()
    got[3] = value
    assert not gate("x", got, TRUTH).ok
    assert not gate("x", got, TRUTH, got).ok


def test_zero_truth_wants_zero():
    zero = torch.zeros(3)
    assert relative_error(zero, zero) == 0
    assert not gate("x", zero + 1e-30, zero.double()).ok
    assert not gate("x", zero * math.nan, zero.double()).ok
    assert gate("x", torch.zeros(0), torch.zeros(0)).ok


def test_require_names_what_failed_and_shapes_must_agree():
    with pytest.raises(GateError, match=r"^b: relative error 1, limit 2e-06$"):
        require(gate("a", TRUTH, TRUTH), gate("b", TRUTH * 2, TRUTH))
    with pytest.raises(GateError, match=r"shape \[2\] where \[3\] was expected"):
        relative_error(torch.zeros(2), torch.zeros(3))
