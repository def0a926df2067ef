"""One case, in this process."""

import audited_functions as audited
import pytest
import torch

from lanewise.audit.case import Case
from lanewise.audit.examine import examine
from lanewise.audit.infer import spec_of
from lanewise.audit.spec import Input, Spec

X = torch.randn(6, 5)


def case_of(spec, **changes):
    return Case(spec.name, tuple(spec.sizes.items()), **changes)


def raises_in(forward=None, backward=None):
    """Twice x, with an error of this message in one of its passes."""

    def operator(x):
        if forward is not None and x.requires_grad:  # what it is asked about before has to work
            raise RuntimeError(forward)
        y = 2 * x
        if backward is not None and y.requires_grad:
            y.register_hook(fail)
        return y

    def fail(gradient):
        raise RuntimeError(backward)

    return operator


def test_a_healthy_case_passes_with_a_verdict_a_probe_and_argument():
    spec = spec_of(audited.healthy, (X, torch.randn(3, 5)))
    result = examine(spec, case_of(spec))
    assert result.outcome == "passed"
    assert {"x", "w"} == {v.argument for v in result.verdicts}
    assert not result.failures


def test_only_asks_one_probe_of_one_argument_and_none_that_does_not_fit():
    spec = spec_of(audited.healthy, (X, torch.randn(3, 5)))
    (verdict,) = examine(spec, case_of(spec), ("w", "truth")).verdicts
    assert (verdict.argument, verdict.probe) == ("w", "truth")
    assert examine(spec, case_of(spec), ("w", "adjoint")).outcome == "skipped"  # tanh is not affine


@pytest.mark.parametrize(
    ("source", "outcome", "reason"),
    [
        ("x @ x", "skipped", "the forward refuses"),
        ("x.detach()", "skipped", "does not depend"),
        ("x / 0", "inconclusive", "the output itself is not finite"),
        ("x[:0]", "skipped", "empty"),
    ],
)
def test_what_cannot_be_told_says_why(source, outcome, reason):
    spec = Spec("f", source, (Input("x", "B C"),), {"B": 6, "C": 5})
    result = examine(spec, case_of(spec))
    assert result.outcome == outcome
    assert reason in result.reason


@pytest.mark.parametrize(
    ("message", "outcome", "fatal"),
    [
        ("CUDA error: initialization error", "inconclusive", True),
        ("CUDA error: no CUDA-capable device is detected", "inconclusive", True),
        ("Cannot re-initialize CUDA in forked subprocess", "inconclusive", True),
        ("CUDA error: an illegal memory access was encountered", "crashed", True),
        ("CUDA error: device-side assert triggered", "skipped", True),
        ("x has to be square", "skipped", False),
    ],
)
def test_a_device_that_cannot_be_used_is_not_the_operator_refusing(message, outcome, fatal):
    spec = spec_of(raises_in(forward=message), (X,))
    result = examine(spec, case_of(spec))
    assert (result.outcome, result.fatal) == (outcome, fatal)
    assert message in result.reason
    assert ("the device cannot be used" in result.reason) == (outcome == "inconclusive")


@pytest.mark.parametrize(
    ("message", "outcome", "fatal"),
    [
        ("CUDA error: uncorrectable ECC error encountered", "inconclusive", True),
        ("CUDA error: device-side assert triggered", "crashed", True),
        ("wrong number of dimensions", "failed", False),
    ],
)
def test_a_backward_pass_that_raises_is_at_fault_unless_the_device_is(message, outcome, fatal):
    spec = spec_of(raises_in(backward=message), (X,))
    result = examine(spec, case_of(spec))
    assert (result.outcome, result.fatal) == (outcome, fatal)


def test_a_derivative_that_nobody_has_written_is_no_fault():
    class NotWritten(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, *grads):
            raise NotImplementedError("no derivative for this")

    spec = spec_of(lambda x: NotWritten.apply(x), (X,))
    assert examine(spec, case_of(spec)).outcome == "skipped"
