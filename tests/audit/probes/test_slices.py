import pytest
import torch
from audited import layer_norm, linear, values

from lanewise.audit.call import Call
from lanewise.audit.faults import Fault, find_fault, planted_call
from lanewise.audit.probes.slices import slices


def beyond(rows):
    """A fault that begins beyond some number of rows, as one of a limit does."""

    def apply(grad):
        return torch.cat([grad[:rows], torch.zeros_like(grad[rows:])])

    return Fault("beyond", "LW202", "", apply)


def test_a_fault_beyond_a_size_shows_against_slices_below_it():
    verdict = slices(planted_call(layer_norm(), "0", beyond(25)), "0")
    assert verdict.outcome == "failed"
    assert verdict.region is not None
    assert verdict.region[0][1] == 30
    assert verdict.code == "LW103"
    assert verdict.law == "certain"


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_small_batch_is_cut_too(count):
    call = linear(n=count)
    assert slices(call, "0").ok
    assert slices(planted_call(call, "0", beyond(count - 1)), "0").outcome == "failed"


def test_what_is_too_much_only_together_is_no_entry_s_own():
    """Each part is within what rounding explains; the whole is not, and no region can be named."""
    call = layer_norm()
    healthy = slices(call, "0")

    def apply(grad):  # parts have at most 14 of the 30 rows
        return grad * (1 + 1.25 * healthy.tolerance / healthy.gradient_norm) if len(grad) == 30 else grad

    verdict = slices(planted_call(call, "0", Fault("spread", "", "", apply)), "0")
    assert verdict.outcome == "failed"
    assert verdict.residual > verdict.tolerance
    assert verdict.region is None


@pytest.mark.parametrize("name", ["half-the-terms", "one-row", "nan"])
def test_slices_of_what_is_shared_are_added(name):
    assert slices(linear(), "1").ok
    assert slices(planted_call(linear(), "1", find_fault(name)), "1").outcome == "failed"


def test_a_batch_dimension_that_is_not_the_first():
    call = Call(lambda x: x.softmax(0), (values(20, 9),), batch={"0": 1, "output": 1})
    assert slices(call, "0").ok
    mixed = Call(lambda x: x.softmax(1), (values(20, 9),), batch={"0": 1, "output": 1})
    assert slices(mixed, "0").outcome == "failed"  # entries that are not independent


def test_it_says_why_it_is_skipped():
    assert slices(Call(torch.sin, (values(3),)), "0").reason.startswith("no batch")
    assert slices(linear(n=1), "0").reason == "the batch has fewer than two entries"
