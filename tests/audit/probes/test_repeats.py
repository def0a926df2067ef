import audited_functions
import torch
from audited import layer_norm, linear, values

from lanewise.audit.call import Call
from lanewise.audit.faults import Fault, find_fault, planted_call
from lanewise.audit.probes.adjoint import adjoint
from lanewise.audit.probes.repeats import repeats


def test_a_race_is_not_reproducible():
    for make, name in ((linear, "1"), (layer_norm, "0")):
        assert repeats(make(), name).ok
        verdict = repeats(planted_call(make(), name, find_fault("race")), name)
        assert (verdict.outcome, verdict.code) == ("failed", "LW106")


def test_another_order_of_the_sums_is_no_finding():
    state = torch.Generator().manual_seed(0)

    def start():
        return lambda pull, v: pull(v) * (1 + 2**-24 * float(torch.randint(-1, 2, (), generator=state)))

    verdict = repeats(planted_call(linear(), "1", Fault("order", "", "", start=start)), "1")
    assert verdict.ok
    assert verdict.reason == "not bit-equal from run to run, within rounding"


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
