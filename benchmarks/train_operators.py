"""The operators that training adds, each beside its torch reference on the same GPU in the same run.

usage: python benchmarks/train_operators.py [--repeats N] [--gaussians N] [--sizes 800x800,1600x1200]

The photometric loss with its gradient, Adam's step over all parameters of a scene (also beside torch's fused Adam), and
the densification statistics. `gpu` is the time of a CUDA graph's replay, which no Python slows down; `eager` is the
time from the call until the GPU is done, the only one of the references, which copy constants to the GPU and so cannot
be in a graph. The gate comes first: a red gate prints no figures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator

import torch
from _harness import interleaved, median, replayed, write
from torch import Tensor

from lanewise.audit.gate import GateResult, gate
from lanewise.train.adam import adam_coefficients, adam_step
from lanewise.train.photometric import photometric_loss
from lanewise.train.strategy.statistics import observe

BETAS, EPS = (0.9, 0.999), 1e-15
PARAMETERS = {"means": (3,), "quats": (4,), "scales": (3,), "opacities": (), "sh0": (1, 3), "shN": (15, 3)}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda")


def loss_and_gradient(render: Tensor, target: Tensor, mask: Tensor | None, backend: str = "auto") -> list[Tensor]:
    loss = photometric_loss(render, target, mask, backend=backend)
    return [loss, *torch.autograd.grad(loss, render)]


def step(tensors: list[Tensor], coefficients: Tensor, visible: Tensor | None = None, backend: str = "auto") -> None:
    adam_step(*tensors, coefficients, betas=BETAS, eps=EPS, visible=visible, backend=backend)


def gates() -> Iterator[GateResult]:
    """Every operator on a small input against fp64."""
    x, y, mask = random(2, 150, 203, 3), random(2, 150, 203, 3, seed=1), random(2, 150, 203, seed=2) > 0.3

    def picture(dtype: torch.dtype, backend: str) -> list[Tensor]:
        return loss_and_gradient(x.to(dtype).requires_grad_(), y.to(dtype), mask, backend)

    def adam(dtype: torch.dtype, backend: str) -> list[Tensor]:
        tensors = [t.to(dtype) for t in (x[0], y[0] - 0.5, x[1] - 0.5, y[1])]
        coefficients = torch.tensor(adam_coefficients(0.01, 3, BETAS), device="cuda")
        step(tensors, coefficients.to(dtype), mask[0, :, 0], backend)
        return [tensors[0], *tensors[2:]]

    def statistics(dtype: torch.dtype, backend: str) -> list[Tensor]:
        v, radii = (x[..., :2].reshape(2, -1, 2) - 0.5).to(dtype), (y[..., :2].reshape(2, -1, 2) * 9 - 2).int()
        sums = [torch.zeros(v.shape[1], dtype=dtype, device="cuda") for _ in range(3)]
        observe(v, radii, 203, 150, *sums, backend=backend)
        return sums

    operators = {"photometric": picture, "adam": adam, "statistics": statistics}
    for name, run in operators.items():
        got, single = run(torch.float32, "triton"), run(torch.float32, "reference")
        for values in zip(got, run(torch.float64, "reference"), single, strict=True):
            yield gate(name, *values)


def row(name: str, variants: dict[str, Callable[[], object]], repeats: int) -> dict[str, object]:
    """Milliseconds of all variants, and how many times as fast the kernels are."""
    eager = {who: median(times) for who, times in interleaved(variants, repeats, warmup=3).items()}
    timed = replayed({who: run for who, run in variants.items() if who != "reference"}, repeats)
    gpu = {who: median(times) for who, times in timed.items()}
    figures = {f"{who}_gpu": ms for who, ms in gpu.items()} | {f"{who}_eager": ms for who, ms in eager.items()}
    ratios = {f"ratio_{who}_gpu": ms / gpu["ours"] for who, ms in gpu.items() if who != "ours"}
    ratios |= {f"ratio_{who}_eager": ms / eager["ours"] for who, ms in eager.items() if who != "ours"}
    return {"operator": name, **figures, **ratios}


def photometric_row(width: int, height: int, masked: bool, repeats: int) -> dict[str, object]:
    render, target = random(1, height, width, 3).requires_grad_(), random(1, height, width, 3, seed=1)
    mask = random(1, height, width, seed=2) > 0.1 if masked else None
    name = f"photometric {width}x{height}x3" + (" masked" if masked else "")
    backends = {"ours": "triton", "reference": "reference"}
    variants = {who: lambda b=b: loss_and_gradient(render, target, mask, b) for who, b in backends.items()}
    return row(name, variants, repeats)


def adam_row(gaussians: int, repeats: int) -> dict[str, object]:
    """All parameters of a scene; `ours_selective` moves one row in five."""
    scene = [[random(gaussians, *tail, seed=k) for k in range(4)] for tail in PARAMETERS.values()]
    coefficients = torch.tensor(adam_coefficients(1e-3, 100, BETAS), device="cuda")
    visible = random(gaussians) > 0.8
    leaves = [torch.nn.Parameter(param.clone()) for param, *_ in scene]
    for leaf, (_, grad, *_) in zip(leaves, scene, strict=True):
        leaf.grad = grad
    fused = torch.optim.Adam(leaves, lr=1e-3, betas=BETAS, eps=EPS, fused=True, capturable=True)

    def ours(visible: Tensor | None = None, backend: str = "triton") -> None:
        for tensors in scene:
            step(tensors, coefficients, visible, backend)

    variants = {
        "ours": ours,
        "ours_selective": lambda: ours(visible),
        "reference": lambda: ours(backend="reference"),
        "torch_fused": fused.step,
    }
    return row(f"adam {gaussians} Gaussians", variants, repeats)


def statistics_row(gaussians: int, cameras: int, repeats: int) -> dict[str, object]:
    v = random(cameras, gaussians, 2) - 0.5
    radii = (random(cameras, gaussians, 2, seed=1) * 9 - 2).int()
    sums = [torch.zeros(gaussians, device="cuda") for _ in range(3)]
    backends = {"ours": "triton", "reference": "reference"}
    variants = {who: lambda b=b: observe(v, radii, 800, 800, *sums, backend=b) for who, b in backends.items()}
    return row(f"statistics {gaussians} Gaussians {cameras} cameras", variants, repeats)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--gaussians", type=int, default=1_000_000)
    parser.add_argument("--sizes", default="800x800,1600x1200")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU on this machine: nothing ran")
        return 5
    results = list(gates())
    for r in results:
        print(f"gate {r.name}: relative error {r.error:.2g} (limit {r.limit:.2g}) {'ok' if r.ok else 'RED'}")
    if not all(r.ok for r in results):
        return 1
    sizes = [tuple(map(int, size.split("x"))) for size in options.sizes.split(",")]
    rows = [photometric_row(*size, masked, options.repeats) for size in sizes for masked in (False, True)]
    rows.append(adam_row(options.gaussians, options.repeats))
    rows.extend(statistics_row(options.gaussians, cameras, options.repeats) for cameras in (1, 4))
    for figures in rows:
        print("  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in figures.items()))
    print(f"wrote {write('train_operators', rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
