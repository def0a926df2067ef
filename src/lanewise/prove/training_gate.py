"""The gate for the operators that training adds: photometric loss, Adam's step, densification statistics."""

# Operands are handed around as tuples and dictionaries, which pyright does not follow.
# pyright: reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lanewise.audit.faults import Fault, planted
from lanewise.audit.gate import GateResult, gate
from lanewise.splat._backend import Backend
from lanewise.train.adam import adam_coefficients, adam_step
from lanewise.train.photometric import photometric_loss
from lanewise.train.strategy.statistics import observe

COUNTS = (0, 1, 2, 31, 97, 255, 256, 257, 1023, 1024, 1025)  # around the blocks of both kernels over rows


@dataclass(frozen=True)
class Place:
    """Which implementation is looked at, and where."""

    backend: Backend = "auto"
    device: str = "cpu"


Pictures = tuple[Tensor, Tensor, Tensor | None]


def pictures(shape: tuple[int, ...], seed: int = 0, masked: bool = False, smooth: bool = False) -> Pictures:
    """Render, target [C, H, W, D] and mask: noise, or waves whose variances nearly cancel in fp32."""
    g = torch.Generator().manual_seed(seed)
    render, target = torch.rand(shape, generator=g), torch.rand(shape, generator=g)
    if smooth:
        y, x = torch.meshgrid(torch.linspace(0, 3, shape[1]), torch.linspace(0, 5, shape[2]), indexing="ij")
        render = (0.5 + 0.4 * torch.sin(x + 2 * y))[None, ..., None].repeat(shape[0], 1, 1, shape[3])
        target = render.roll(1, dims=2) * 0.98 + 0.001 * target
    return render, target, torch.rand(shape[:3], generator=g) > 0.3 if masked else None


def loss_and_gradient(
    inputs: Pictures,
    weight: float,
    place: Place,
    dtype: torch.dtype = torch.float32,
    upstream: float = -2.5,
    fault: Fault | None = None,
) -> tuple[Tensor, Tensor]:
    """The loss and the gradient by the render under an upstream gradient, on the CPU; a fault may sit on the latter."""
    render = inputs[0].to(place.device, dtype, copy=True).requires_grad_()
    mask = None if inputs[2] is None else inputs[2].to(place.device)
    target = inputs[1].to(place.device, dtype)
    loss = photometric_loss(planted(render, fault), target, mask, ssim_weight=weight, backend=place.backend)
    (gradient,) = torch.autograd.grad(loss * upstream, render)
    return loss.detach().cpu(), gradient.cpu()


def gate_photometric(inputs: Pictures, weight: float, place: Place, fault: Fault | None = None) -> list[GateResult]:
    """Loss and gradient against the fp64 reference."""
    plain = Place("reference")
    got = loss_and_gradient(inputs, weight, place, fault=fault)
    single = loss_and_gradient(inputs, weight, plain)
    truth = loss_and_gradient(inputs, weight, plain, torch.float64)
    return [gate(*values) for values in zip(("loss", "gradient"), got, truth, single, strict=True)]


def gate_total(pairs: int) -> list[GateResult]:
    """The Triton kernel that makes the loss of the sums of 2 pairs + 1 programs, alone; 1 where a bit is wrong. It adds
    in fp64 and rounds once. The sums nearly cancel: else a lane whose low halves are lost would be rounded away."""
    from lanewise.train.photometric import kernels, launch

    g = torch.Generator().manual_seed(0)
    values, rest = torch.randn(4, pairs, generator=g), torch.tensor([[0.01], [0.02], [1.0], [2.0]])
    sums = torch.cat([values, -values, rest], 1)[:, torch.randperm(2 * pairs + 1, generator=g)].contiguous()
    loss, scales = torch.empty(()), torch.empty(2)
    kernels.total[(1,)](sums, loss, scales, sums.shape[1], 0.75, 0.25, BLOCK=launch.SUMS)  # pyright: ignore
    difference, dissimilarity, numbers, windows = sums.double().sum(1)
    exact = 0.75 / numbers * difference + 0.25 / windows * dissimilarity
    wanted = {"loss": exact.float(), "scales": torch.stack([0.75 / numbers, 0.25 / windows]).float()}
    made = {"loss": loss, "scales": scales}
    return [GateResult(name, 0.0 if torch.equal(made[name], want) else 1.0, 0.0) for name, want in wanted.items()]


@dataclass
class AdamState:
    """A parameter [N, ...] with its moments after `steps` steps, a row's visibility, and what the guard says."""

    shape: tuple[int, ...]
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-15
    selective: bool = False
    skip: int | None = None
    steps: int = 3

    def run(self, place: Place, dtype: torch.dtype = torch.float32, fault: Fault | None = None) -> list[Tensor]:
        """Parameter and moments in the end, on the CPU; a fault may sit on the gradients."""
        g = torch.Generator().manual_seed(0)
        param = torch.randn(self.shape, generator=g).to(place.device, dtype)
        moments = [torch.zeros_like(param), torch.zeros_like(param)]
        skip = None if self.skip is None else torch.tensor([self.skip], dtype=torch.int32, device=place.device)
        for step in range(1, self.steps + 1):
            # Signed, and over many orders of magnitude.
            grad = torch.randn(self.shape, generator=g) * torch.exp(4 * torch.randn(self.shape, generator=g) - 8)
            grad = fault.apply(grad) if fault else grad
            visible = torch.rand(self.shape[0], generator=g) > 0.4 if self.selective else None
            # In fp64 too the coefficients are those that the kernel gets.
            coefficients = torch.tensor(adam_coefficients(0.01, step, self.betas), dtype=torch.float32)
            adam_step(
                param,
                grad.to(place.device, dtype),
                *moments,
                coefficients.to(place.device, dtype),
                betas=self.betas,
                eps=self.eps,
                visible=None if visible is None else visible.to(place.device),
                skip=skip,
                backend=place.backend,
            )
        return [x.cpu() for x in (param, *moments)]


def gate_adam(state: AdamState, place: Place, fault: Fault | None = None) -> list[GateResult]:
    """Parameter and moments against the fp64 reference."""
    got, plain = state.run(place, fault=fault), Place("reference")
    single, truth = state.run(plain), state.run(plain, torch.float64)
    return [gate(*values) for values in zip(("param", "exp_avg", "exp_avg_sq"), got, truth, single, strict=True)]


def statistics(
    place: Place,
    cameras: int,
    N: int,
    dtype: torch.dtype = torch.float32,
    *,
    strided: bool = False,
    slices: bool = False,
    widest: bool = True,
    skip: int | None = None,
    fault: Fault | None = None,
) -> list[Tensor]:
    """grad2d, count and, where it is asked for, widest after each of two steps [2, N], on the CPU; a fault may sit on
    the gradients."""
    g = torch.Generator().manual_seed(N + cameras)
    names = 3 if widest else 2
    sums = [x.to(place.device, dtype) for x in torch.rand(3, N, generator=g).mul(0.3)[:names]]
    steps = []
    for _ in range(2):
        v = torch.randn(cameras, N, 2, generator=g) * 1e-3
        radii = torch.randint(-3, 40, (cameras, N, 2), generator=g, dtype=torch.int32)
        v = fault.apply(v) if fault else v
        v[(radii <= 0).any(-1)] = torch.nan  # nobody may look at the gradient of what is not seen
        if strided:
            v = v.permute(2, 0, 1).contiguous().permute(1, 2, 0)
        if slices:  # columns of the rows that the rasterizer's backward pass leaves
            v = torch.nn.functional.pad(v, (7, 0))[..., 7:]
        guard = None if skip is None else torch.tensor([skip], dtype=torch.int32, device=place.device)
        v, radii = v.to(place.device, dtype), radii.to(place.device)
        observe(v, radii, 131, 97, *sums, skip=guard, backend=place.backend)
        steps.append([x.to("cpu", copy=True) for x in sums])
    return [torch.stack(step) for step in zip(*steps, strict=True)]


def gate_statistics(place: Place, cameras: int, N: int, fault: Fault | None = None, **options: Any) -> list[GateResult]:
    """The sums against the fp64 reference."""
    plain = Place("reference")
    got, single = statistics(place, cameras, N, fault=fault, **options), statistics(plain, cameras, N, **options)
    truth = statistics(plain, cameras, N, torch.float64, **options)
    return [gate(*x) for x in zip(("grad2d", "count", "widest")[: len(got)], got, truth, single, strict=True)]
