"""The Triton kernels that training adds on a GPU: the gate, sizes around every boundary, graphs, the same bits."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from guarded import waiting_forbidden

from lanewise.audit.faults import FAULTS
from lanewise.audit.gate import GateError, gate, require
from lanewise.prove.training_gate import (
    COUNTS,
    AdamState,
    Place,
    gate_adam,
    gate_photometric,
    gate_statistics,
    loss_and_gradient,
    pictures,
)
from lanewise.train.adam import adam_coefficients, adam_step
from lanewise.train.photometric import photometric_loss, ssim
from lanewise.train.strategy.statistics import observe

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")]

HERE = Place("triton", "cuda")


@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
@pytest.mark.parametrize("weight", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("height", [11, 12, 32, 33, 43, 97])
@pytest.mark.parametrize(
    ("width", "depth"), [(11, 1), (127, 1), (128, 1), (129, 1), (42, 3), (43, 3), (53, 3), (17, 7)]
)
def test_the_photometric_loss_passes_the_gate(width: int, depth: int, height: int, weight: float, masked: bool):
    for smooth in (False, True):
        inputs = pictures((2, height, width, depth), height + width, masked, smooth)
        require(*gate_photometric(inputs, weight, HERE))


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 1, 128, 3), (1, 257, 2, 3), (1, 5, 43, 3)])
def test_pictures_below_the_window(shape: tuple[int, ...]):
    require(*gate_photometric(pictures(shape, masked=True), 0.0, HERE))


def brightened(brightness: float, contrast: float) -> tuple[torch.Tensor, torch.Tensor, None]:
    """Pictures of little contrast, whose variances drown in their squares in fp32."""
    render, target, _ = pictures((1, 150, 131, 3), smooth=True)
    return brightness + contrast * render, brightness + contrast * target, None


@pytest.mark.parametrize("brightness", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("contrast", [0.003, 0.03, 0.1])
def test_little_contrast(brightness: float, contrast: float):
    require(*gate_photometric(brightened(brightness, contrast), 0.2, HERE))


def test_nothing_counts():
    inputs = (*pictures((2, 33, 47, 3))[:2], torch.zeros(2, 33, 47, dtype=torch.bool))
    loss, gradient = loss_and_gradient(inputs, 0.2, HERE)
    assert loss == 0
    assert not gradient.any()


def test_what_a_mask_hides_may_be_anything():
    render, target, mask = pictures((1, 40, 50, 3), masked=True)
    want = loss_and_gradient((render, target, mask), 0.2, HERE)
    assert mask is not None
    render[~mask], target[~mask] = torch.nan, torch.inf
    got = loss_and_gradient((render, target, mask), 0.2, HERE)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_the_photometric_loss_gives_the_same_bits():
    inputs = pictures((2, 131, 97, 3), masked=True)
    first, *others = (loss_and_gradient(inputs, 0.2, HERE) for _ in range(3))
    assert all(torch.equal(a, b) for other in others for a, b in zip(other, first, strict=True))


def test_auto_takes_the_kernels_and_ssim_goes_through_them():
    render, target, mask = (x.cuda() for x in pictures((1, 33, 47, 3), masked=True))
    assert torch.equal(photometric_loss(render, target, mask), photometric_loss(render, target, mask, backend="triton"))
    want = ssim(render.double(), target.double(), mask)
    require(gate("ssim", ssim(render, target, mask), want, ssim(render, target, mask, backend="reference")))
    strided = render.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
    assert torch.equal(photometric_loss(strided, target, mask), photometric_loss(render, target, mask))


@pytest.mark.slow
def test_derivatives_past_32_bits():
    """Many copies of one picture: every copy has the gradient of the first."""
    copies = 2**31 // (3 * 790 * 790 * 3) + 2
    if torch.cuda.mem_get_info()[0] < 40e9:
        pytest.skip("needs 40 GB of GPU memory")
    render, target, _ = pictures((1, 800, 800, 3))
    one = loss_and_gradient((render, target, None), 0.2, HERE)
    many = render.cuda().repeat(copies, 1, 1, 1).requires_grad_()
    loss = photometric_loss(many, target.cuda().repeat(copies, 1, 1, 1))
    (gradient,) = torch.autograd.grad(loss * -2.5, many)
    require(gate("loss", loss.cpu(), one[0].double()))
    require(gate("gradient", gradient[:1].cpu() * copies, one[1].double()))
    assert all(torch.equal(copy, gradient[0]) for copy in gradient)


@pytest.mark.parametrize("N", COUNTS)
@pytest.mark.parametrize("tail", [(), (3,), (15, 3)])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.996)])
def test_adam_passes_the_gate(N: int, tail: tuple[int, ...], betas: tuple[float, float]):
    require(*gate_adam(AdamState((N, *tail), betas), HERE))
    require(*gate_adam(AdamState((N, *tail), betas, selective=True, skip=0), HERE))


def test_the_steps_are_those_of_torchs_adam():
    g = torch.Generator().manual_seed(0)
    param = torch.randn(1025, 3, generator=g).cuda()
    theirs = torch.nn.Parameter(param.double())  # torch's fused kernel rounds 1 - beta2 to 1e-5 in float32
    optimizer = torch.optim.Adam([theirs], lr=0.03, eps=1e-15)
    moments = [torch.zeros_like(param), torch.zeros_like(param)]
    for step in range(1, 20):
        grad = torch.randn(1025, 3, generator=g).cuda()
        theirs.grad = grad.double()
        optimizer.step()
        coefficients = torch.tensor(adam_coefficients(0.03, step, (0.9, 0.999)), device="cuda")
        adam_step(param, grad, *moments, coefficients, betas=(0.9, 0.999), eps=1e-15)
    state = optimizer.state[theirs]
    pairs = zip((param, *moments), (theirs, state["exp_avg"], state["exp_avg_sq"]), strict=True)
    require(*(gate(name, *pair) for name, pair in zip(("param", "exp_avg", "exp_avg_sq"), pairs, strict=True)))


def test_adams_guard_expanded_gradients_and_autograds_counter():
    still = AdamState((97, 3), skip=1)
    assert all(torch.equal(a, b) for a, b in zip(still.run(HERE), AdamState((97, 3), steps=0).run(HERE), strict=True))
    param = torch.nn.Parameter(torch.ones(97, 3, device="cuda"))
    moments = [torch.zeros_like(param), torch.zeros_like(param)]
    coefficients = torch.tensor([1.0, 1.0], device="cuda")
    version = param._version
    grad = torch.tensor(0.5, device="cuda").expand(97, 3)
    adam_step(param, grad, *moments, coefficients, betas=(0.5, 0.5), eps=0.0)
    torch.testing.assert_close(param.detach().cpu(), torch.full((97, 3), 1 - 0.25 / math.sqrt(0.125)))
    assert param._version > version
    grad = torch.where(torch.arange(97, device="cuda") == 3, torch.nan, 0.5)[:, None].expand(97, 3)
    adam_step(param, grad, *moments, coefficients, betas=(0.5, 0.5), eps=0.0)
    assert all(x.isnan().any(1).nonzero().tolist() == [[3]] for x in (param, *moments))


@pytest.mark.slow
def test_adam_past_32_bits():
    size = 2**31 + 1025
    if torch.cuda.mem_get_info()[0] < 16.5 * size:
        pytest.skip("needs 36 GB of GPU memory")
    param, grad, first, second = (torch.zeros(size, device="cuda") for _ in range(4))
    grad[-1025:] = 1
    adam_step(param, grad, first, second, torch.ones(2, device="cuda"), betas=(0.5, 0.5), eps=1e-15)
    assert not param[:-1025].any()
    torch.testing.assert_close(param[-1025:], torch.full_like(param[-1025:], -math.sqrt(0.5)))


@pytest.mark.parametrize("N", COUNTS)
@pytest.mark.parametrize("cameras", [0, 1, 4])
def test_statistics_pass_the_gate(N: int, cameras: int):
    require(*gate_statistics(HERE, cameras, N))
    require(*gate_statistics(HERE, cameras, N, strided=True, widest=False, skip=0))
    require(*gate_statistics(HERE, cameras, N, skip=2))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_caught(fault):
    inputs = pictures((2, 33, 47, 3), masked=True)
    gates: dict[str, Callable] = {
        "gradient": lambda fault: gate_photometric(inputs, 0.2, HERE, fault),
        "exp_avg": lambda fault: gate_adam(AdamState((97, 3)), HERE, fault),
        "grad2d": lambda fault: gate_statistics(HERE, 3, 97, fault),
    }
    for name, gated in gates.items():
        require(*gated(None))
        with pytest.raises(GateError, match=name):
            require(*gated(fault))


def test_a_graph_holds_all_of_a_step():
    """Nothing is read back, and a replay takes the tensors as they are then."""
    render, target, mask = (x.cuda() for x in pictures((1, 33, 47, 3), masked=True))
    render.requires_grad_()
    moments = [torch.zeros_like(render), torch.zeros_like(render)]
    coefficients = torch.tensor([0.1, 1.0], device="cuda")
    skip = torch.zeros(1, dtype=torch.int32, device="cuda")
    v, radii = torch.ones(2, 97, 2, device="cuda"), torch.ones(2, 97, 2, dtype=torch.int32, device="cuda")
    sums = [torch.zeros(97, device="cuda") for _ in range(3)]

    def step() -> torch.Tensor:
        loss = photometric_loss(render, target, mask)
        (gradient,) = torch.autograd.grad(loss, render)
        adam_step(render, gradient, *moments, coefficients, betas=(0.9, 0.999), eps=1e-8, skip=skip)
        observe(v, radii, 47, 33, *sums, skip=skip)
        return loss.detach()

    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    before = [x.detach().clone() for x in (render, *moments, *sums)]
    graph.replay()
    graph_results = [x.detach().clone() for x in (render, *moments, *sums)]
    with torch.no_grad():
        for now, then in zip((render, *moments, *sums), before, strict=True):
            now.copy_(then)
    with waiting_forbidden():
        eager_loss = step()
    assert torch.equal(loss, eager_loss)
    for got, want in zip(graph_results, (render, *moments, *sums), strict=True):
        assert torch.equal(got, want)
    skip.fill_(1)
    kept = [x.detach().clone() for x in (render, *moments, *sums)]
    graph.replay()
    assert all(torch.equal(a, b) for a, b in zip(kept, (render, *moments, *sums), strict=True))
