from __future__ import annotations

import dataclasses
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from lanewise.audit.call import lay_out
from lanewise.audit.watching import capture
from lanewise.audit.watching.capture import Capture, TooLargeError, layout_of, module_call
from lanewise.audit.watching.layers import kind_of


@pytest.mark.parametrize("layout", ["contiguous", "strided", "transposed", "channels_last", "expanded", "ones"])
def test_the_layout_of_a_gradient_is_recognized(layout: str):
    assert layout_of(lay_out(torch.randn(3, 4, 5, 6), layout)) == layout  # type: ignore[arg-type]


def test_one_tensor_given_several_times_is_one_argument():
    x = torch.randn(2, 3, 4)
    mix = nn.MultiheadAttention(4, 1)
    kept = Capture.of(mix.forward, (x, x, x), {"need_weights": False})
    assert set(kept.tensors) == {"query"}
    (query, key, value), options = kept.arguments({"query": x + 1})
    assert query is key is value
    assert options == {"need_weights": False}


def test_a_write_into_an_argument_is_noticed():
    x = torch.randn(3)
    kept = Capture.of(lambda x: x, (x,), {})
    assert kept.intact
    x.add_(1)
    assert not kept.intact


def linear(batch: int) -> tuple[nn.Linear, Capture]:
    layer, x = nn.Linear(6, 5), torch.randn(batch, 6)
    return layer, Capture.of(layer.forward, (x,), {})


def test_the_truth_is_taken_of_a_part_and_the_suspect_of_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(capture.WORK, "cpu", 6 * 5 * 4)  # four entries
    layer, kept = linear(100)
    seen = []
    layer.forward = lambda input: seen.append(len(input)) or nn.Linear.forward(layer, input)  # type: ignore[method-assign]
    kind = kind_of(layer)
    assert kind is not None
    call = module_call(layer, kind, kept, "weight", seed=0)
    (y,) = call.output()
    (z,) = call.double().output()
    assert y.shape == z.shape == (4, 5)
    assert seen == [100]
    torch.testing.assert_close(y.double(), z, rtol=1e-5, atol=1e-6)


def test_what_would_take_too_long_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(capture.WORK, "cpu", 1)
    layer, kept = linear(3)
    kind = kind_of(layer)
    assert kind is not None
    with pytest.raises(TooLargeError, match="one entry takes"):
        module_call(layer, kind, kept, "weight", seed=0)


class Noting(torch.autograd.Function):
    """x w, noting which gradients its backward pass is asked for."""

    asked: ClassVar[list[tuple[bool, ...]]] = []

    @staticmethod
    def forward(ctx, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x @ w.T

    @staticmethod
    def backward(ctx, gradient: Tensor):  # type: ignore[override]
        Noting.asked.append(ctx.needs_input_grad)
        x, w = ctx.saved_tensors
        return gradient @ w, gradient.T @ x


@pytest.mark.parametrize("learned", [True, False])
def test_a_backward_pass_is_asked_for_what_it_gives_in_the_run(learned: bool):
    class Layer(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return Noting.apply(input, self.weight)

    layer, x = Layer(6, 5, bias=False), torch.randn(4, 6, requires_grad=learned)
    kind = kind_of(layer)
    assert kind is not None
    call = module_call(layer, kind, Capture.of(layer.forward, (x,), {}), "weight", seed=0)
    Noting.asked.clear()
    (y,) = call.graph()[1]
    gradients = call.gradient([torch.ones_like(y)])
    assert Noting.asked == [(learned, True)]
    torch.testing.assert_close(gradients["weight"], x.detach().sum(0).expand(5, 6))


def test_no_algorithms_are_tried_out_for_a_truth(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    seen = []
    layer, kept = linear(5)
    kind = kind_of(layer)
    assert kind is not None
    reference = kind.reference
    assert reference is not None

    def noting(*args, **kwargs):
        seen.append(torch.backends.cudnn.benchmark)
        return reference(*args, **kwargs)

    call = module_call(layer, dataclasses.replace(kind, reference=noting), kept, "weight", seed=0)
    call.output()
    assert torch.backends.cudnn.benchmark
    call.double().output()
    assert seen == [False]
    assert torch.backends.cudnn.benchmark
