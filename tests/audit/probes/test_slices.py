import math

import pytest
import torch
from audited import layer_norm, linear, values

from lanewise.audit import tolerance
from lanewise.audit.call import Call
from lanewise.audit.faults import Fault, find_fault, planted_call
from lanewise.audit.probes.directions import Noise, begin, draw
from lanewise.audit.probes.jvp import push_forward
from lanewise.audit.probes.slices import _parts, slices


def beyond(rows):
    """A fault that begins beyond some number of rows, as one of a limit does."""

    def apply(grad):
        return torch.cat([grad[:rows], torch.zeros_like(grad[rows:])])

    return Fault("beyond", "LW202", "", apply)


def test_a_fault_beyond_a_size_shows_against_slices_below_it():
    verdict = slices(planted_call(layer_norm(), "0", beyond(25)), "0")
    assert verdict.outcome == "failed"
    assert verdict.region == ((14, 30), (0, 40))  # whole slices
    assert verdict.code == "LW103"
    assert verdict.law == "certain"


@pytest.mark.parametrize(("count", "step"), [(2, 1), (3, 2), (4, 1), (30, 14), (31, 16)])
def test_slices_are_half_the_batch_at_most_and_of_two_lengths_where_that_is_possible(count, step, monkeypatch):
    call = layer_norm(n=count)
    cotangents = (torch.ones(count, 40),)

    def starts():
        return [start for start, _, _ in _parts(call, "0", cotangents, count)]

    assert starts() == list(range(0, count, step))
    monkeypatch.setitem(_parts.__globals__, "SLICE_BYTES", 4 * 40 * 7)  # of seven entries
    assert starts() == list(range(0, count, min(step, 7)))
    monkeypatch.setitem(_parts.__globals__, "SLICE_BYTES", 1)
    assert starts() == list(range(count))


def test_zeros_of_the_whole_alone_are_called_that():
    lost = Fault("lost", "", "", lambda grad: grad * (len(grad) < 30))
    assert slices(planted_call(layer_norm(), "0", lost), "0").code == "LW101"


@pytest.mark.parametrize(("spoil", "code"), [(0.0, "LW103"), (torch.nan, "LW102")])
def test_the_code_of_one_wrong_direction_of_three(spoil, code):
    def start():
        passed = []

        def pull_and_spoil(pull, vs):
            passed.append(vs)
            return pull(vs) * (spoil if len(passed) == 1 else 1)

        return pull_and_spoil

    verdict = slices(planted_call(layer_norm(), "0", Fault("first", "", "", start=start)), "0")
    assert (verdict.outcome, verdict.code) == ("failed", code)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_small_batch_is_cut_too(count):
    call = linear(n=count)
    assert slices(call, "0").ok
    assert slices(planted_call(call, "0", beyond(count - 1)), "0").outcome == "failed"


def test_what_is_too_much_only_together_is_no_entry_s_own():
    """Each part is within what rounding explains; the whole is not, and no region can be named."""
    call = layer_norm()
    healthy = slices(call, "0")
    trial = begin(call, "0", "slices")
    several = draw(trial, 3, 0)
    sigmas = [Noise(trial, several, push_forward).sigma(d) for d in several]
    assert min(sigmas) <= healthy.tolerance / (math.sqrt(2) * tolerance.LAMBDA) <= max(sigmas)  # of two gradients

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
