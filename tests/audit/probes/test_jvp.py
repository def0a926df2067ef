import pytest
import torch
from audited import values

from lanewise.audit.call import Call
from lanewise.audit.faults import find_fault, planted_call
from lanewise.audit.probes.jvp import central_difference, jvp, push_forward


class NoForwardMode(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin() * x.exp()

    @staticmethod
    def backward(ctx, *grads):
        (grad,) = grads
        (x,) = ctx.saved_tensors
        return grad * x.exp() * (x.sin() + x.cos())


def test_differences_are_the_derivative_where_there_is_no_forward_mode():
    x = values(40).double()
    u = values(40, seed=1).double()
    (want,) = push_forward(Call(lambda x: x.sin() * x.exp(), (x,)), "0", u)
    (got,) = push_forward(Call(NoForwardMode.apply, (x,)), "0", u)
    (differences,) = central_difference(Call(lambda x: x.sin() * x.exp(), (x,)), "0", u)
    assert torch.equal(got, differences)
    assert float((got - want).norm() / want.norm()) < 1e-10


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_differences_fit_the_scale_of_the_argument(scale):
    x, u = values(40).double() * scale, values(40, seed=1).double()
    (got,) = central_difference(Call(lambda x: (x / scale).sin(), (x,)), "0", u)
    want = (x / scale).cos() * u / scale
    assert float((got - want).norm() / want.norm()) < 1e-9


def test_differences_at_zero():
    (got,) = central_difference(Call(torch.sin, (torch.zeros(5, dtype=torch.float64),)), "0", torch.ones(5).double())
    torch.testing.assert_close(got, torch.ones(5).double())


def test_a_function_without_forward_mode_is_probed_all_the_same():
    call = Call(NoForwardMode.apply, (values(40),))
    assert jvp(call, "0").ok
    assert jvp(planted_call(call, "0", find_fault("scaled")), "0").outcome == "failed"


class WrongForwardMode(torch.autograd.Function):
    """x^2, whose forward mode is three times too large, and whose backward is right."""

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, *grads):
        (x,) = ctx.saved_tensors
        return 2 * x * grads[0]

    @staticmethod
    def jvp(ctx, *tangents):
        (x,) = ctx.saved_tensors
        return 6 * x * tangents[0]


def test_a_wrong_forward_mode_is_not_the_gradient_s_fault():
    call = Call(WrongForwardMode.apply, (values(40),))
    verdict = jvp(call, "0")
    assert verdict.ok
    assert "forward mode gives another derivative" in verdict.reason
    assert jvp(planted_call(call, "0", find_fault("scaled")), "0").outcome == "failed"


class Hinge(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp_min(0)

    @staticmethod
    def backward(ctx, *grads):
        (x,) = ctx.saved_tensors
        return grads[0] * (x > 0)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_differences_step_less_where_a_kink_is_near(scale):
    x = values(40)
    x[7] = 2e-4  # within the longest step, and not within the shortest
    u = torch.ones(40).double()
    (got,) = central_difference(Call(lambda x: scale * Hinge.apply(x), (x.double(),)), "0", u)
    torch.testing.assert_close(got / scale, (x > 0).double(), rtol=1e-8, atol=1e-8)
    assert jvp(Call(Hinge.apply, (x,)), "0").ok


def test_a_kink_in_one_output_of_two_is_enough():
    x = values(40)
    x[7] = 2e-4
    call = Call(lambda x: (2 * x.double(), Hinge.apply(x.double()), 3 * x.double()), (x,))
    _, got, _ = central_difference(call, "0", torch.ones(40).double())
    torch.testing.assert_close(got, (x > 0).double(), rtol=1e-8, atol=1e-8)


def test_of_differences_that_never_agree_those_that_agree_best_serve():
    """Values in steps of 1e-7 drown the shortest differences."""
    x, u = values(40).double(), torch.ones(40).double()
    (got,) = central_difference(Call(lambda x: 2 * x + (x * 1e7).round() / 1e7, (x,)), "0", u)
    assert float((got - 3).norm()) < 5e-3 * 3 * 40**0.5
