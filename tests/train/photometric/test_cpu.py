"""The numba loss against the fp64 reference."""

from __future__ import annotations

import numba
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lanewise.train.photometric import cpu, photometric_loss

GATE = 2e-6  # relative L2 error against fp64, or twice that of the fp32 reference where that is larger


def draw(shape: tuple[int, ...], seed: int, masked: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    generator = torch.Generator().manual_seed(seed)
    render, target = torch.rand(*shape, generator=generator), torch.rand(*shape, generator=generator)
    return render, target, torch.rand(shape[:3], generator=generator) > 0.3 if masked else None


def loss_and_gradient(
    backend: str, dtype: torch.dtype, inputs: tuple[Tensor, Tensor, Tensor | None], weight: float, upstream: float
) -> tuple[Tensor, Tensor]:
    render = inputs[0].to(dtype, copy=True).requires_grad_()
    loss = photometric_loss(render, inputs[1].to(dtype), inputs[2], ssim_weight=weight, backend=backend)
    (gradient,) = torch.autograd.grad(loss * upstream, render)
    return loss.detach().double(), gradient.double()


def relative(got: Tensor, truth: Tensor) -> float:
    return ((got - truth).norm() / truth.norm().clamp_min(1e-30)).item()


@settings(deadline=None, max_examples=25)
@given(
    cameras=st.integers(1, 3),
    height=st.sampled_from([11, 12, 13, 17, 23, 40]),
    width=st.sampled_from([11, 12, 19, 31, 64]),
    depth=st.sampled_from([1, 3, 4]),
    weight=st.sampled_from([0.0, 0.2, 1.0]),
    upstream=st.sampled_from([1.0, -2.5]),
    masked=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_gate(
    cameras: int, height: int, width: int, depth: int, weight: float, upstream: float, masked: bool, seed: int
):
    inputs = draw((cameras, height, width, depth), seed, masked)
    truth = loss_and_gradient("reference", torch.float64, inputs, weight, upstream)
    plain = loss_and_gradient("reference", torch.float32, inputs, weight, upstream)
    got = loss_and_gradient("cpu", torch.float32, inputs, weight, upstream)
    for ours, reference, exact in zip(got, plain, truth, strict=True):
        assert relative(ours, exact) <= max(GATE, 2 * relative(reference, exact))


def test_gate_on_smooth_pictures():
    """Where variances nearly cancel, fp32 itself is the limit."""
    y, x = torch.meshgrid(torch.linspace(0, 3, 37), torch.linspace(0, 5, 53), indexing="ij")
    render = (0.5 + 0.4 * torch.sin(x + 2 * y))[None, ..., None].repeat(1, 1, 1, 3)
    inputs = (render, render.roll(1, dims=2) * 0.98, None)
    truth = loss_and_gradient("reference", torch.float64, inputs, 0.2, 1.0)
    plain = loss_and_gradient("reference", torch.float32, inputs, 0.2, 1.0)
    got = loss_and_gradient("cpu", torch.float32, inputs, 0.2, 1.0)
    for ours, reference, exact in zip(got, plain, truth, strict=True):
        assert relative(ours, exact) <= max(GATE, 2 * relative(reference, exact))


def test_the_gate_notices_a_missing_border_row(monkeypatch: pytest.MonkeyPatch):
    inputs = draw((1, 23, 31, 3), 1, False)
    truth = loss_and_gradient("reference", torch.float64, inputs, 0.2, 1.0)
    honest = cpu.photometric_loss

    def faulty(*args):
        loss, gradient = honest(*args)
        gradient[:, -1] = 0
        return loss, gradient

    monkeypatch.setattr(cpu, "photometric_loss", faulty)
    got = loss_and_gradient("cpu", torch.float32, inputs, 0.2, 1.0)
    assert relative(got[1], truth[1]) > 1e-2


def test_threads_change_no_bit():
    inputs = draw((1, 61, 47, 3), 2, True)
    most = numba.get_num_threads()
    results = []
    try:
        for threads in range(1, most + 1):
            numba.set_num_threads(threads)
            results.append(loss_and_gradient("cpu", torch.float32, inputs, 0.2, 1.0))
    finally:
        numba.set_num_threads(most)
    for loss, gradient in results[1:]:
        assert torch.equal(loss, results[0][0])
        assert torch.equal(gradient, results[0][1])
