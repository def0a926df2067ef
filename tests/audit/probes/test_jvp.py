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
