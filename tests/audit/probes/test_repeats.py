import math
from collections import Counter

import audited_functions
import pytest
import torch
from audited import layer_norm, linear, values

from lanewise.audit import tolerance
from lanewise.audit.call import Call
from lanewise.audit.faults import Fault, find_fault, planted_call
from lanewise.audit.probes.adjoint import adjoint
from lanewise.audit.probes.directions import Noise, begin, draw
from lanewise.audit.probes.jvp import push_forward
from lanewise.audit.probes.repeats import repeats


def test_a_race_is_not_reproducible():
    for make, name in ((linear, "1"), (layer_norm, "0")):
        assert (repeats(make(), name).ok, repeats(make(), name).reason) == (True, "")
        verdict = repeats(planted_call(make(), name, find_fault("race")), name)
        assert (verdict.outcome, verdict.code) == ("failed", "LW106")


def test_another_order_of_the_sums_is_no_finding():
    state = torch.Generator().manual_seed(0)

    def start():
        return lambda pull, v: pull(v) * (1 + 2**-24 * float(torch.randint(-1, 2, (), generator=state)))

    verdict = repeats(planted_call(linear(), "1", Fault("order", "", "", start=start)), "1")
    assert verdict.ok
    assert verdict.reason == "not bit-equal from run to run, within rounding"


def off_in_one_pass(call, argument, size, which):
    """The call with a gradient that is off by this norm in one of its backward passes."""

    def start():
        passed = []

        def pull_and_add(pull, vs):
            passed.append(vs)
            grad = pull(vs)
            e = torch.randn(grad.shape, generator=torch.Generator().manual_seed(1))
            return grad + size * e / e.norm() * (len(passed) == which)

        return pull_and_add

    return planted_call(call, argument, Fault("once", "", "", start=start))


@pytest.mark.parametrize(("make", "argument", "more"), [(linear, "1", 1), (layer_norm, "0", 4)])
def test_runs_may_differ_by_two_roundings_of_one_accumulator_and_of_what_is_no_sum_by_four_times_that(
    make, argument, more
):
    """Of the passes that count, the first is compared with all, the second uses its graph, and the last is for all."""
    trial = begin(make(), argument, "repeats")
    several = draw(trial, 1, 0)
    allowed = math.sqrt(2) * tolerance.LAMBDA * more * Noise(trial, several, push_forward).bound(several[0])
    within = [repeats(off_in_one_pass(make(), argument, 0.8 * allowed, k), argument) for k in range(1, 12)]
    assert all(v.ok for v in within)
    assert [v.reason for v in within].count("not bit-equal from run to run, within rounding") == 5
    beyond = [repeats(off_in_one_pass(make(), argument, 1.25 * allowed, k), argument).code for k in range(1, 12)]
    for_all = {"LW104": 1} if len(make().names) > 1 else {}
    assert Counter(code for code in beyond if code) == {"LW106": 4, "LW302": 1, **for_all}


class WritesToSaved(torch.autograd.Function):
    """Its gradient is written into what the forward saved: right once."""

    @staticmethod
    def forward(ctx, x):
        ctx.saved = x.cos()
        return x.sin()

    @staticmethod
    def backward(ctx, *grads):
        (grad,) = grads
        return ctx.saved.mul_(grad)


class WritesToInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x.detach()
        return x * 2

    @staticmethod
    def backward(ctx, *grads):
        (grad,) = grads
        ctx.x[0] = 5
        return grad * 2


def test_a_second_backward_pass_and_changed_inputs():
    verdict = repeats(Call(WritesToSaved.apply, (values(9),)), "0")
    assert (verdict.outcome, verdict.code) == ("failed", "LW302")
    verdict = repeats(Call(WritesToInput.apply, (values(9),)), "0")
    assert (verdict.outcome, verdict.reason) == ("failed", "the backward pass changed the inputs")


def test_a_gradient_that_is_wrong_only_beside_the_others_is_found():
    """Every other probe asks for one gradient alone: none of them sees this."""
    call = Call(audited_functions.forgets_half_beside_another, (values(6, 5), values(3, 5)), linear=("0", "1"))
    assert adjoint(call, "1").ok
    assert repeats(call, "0").ok
    verdict = repeats(call, "1")
    assert (verdict.outcome, verdict.code) == ("failed", "LW104")
    assert "beside the gradients of all other arguments" in verdict.reason
