"""Forward + backward of `rasterization` on the CPU: the numba kernels beside the torch reference.

usage: python benchmarks/splat_cpu.py [--repeats N]

The gate comes first: gradients of the rasterizer against fp64 on the same scene. A red gate prints no figures.
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

import torch
from _harness import interleaved, median, write
from torch import Tensor

from lanewise.audit.gate import gate
from lanewise.splat import rasterization, rasterize_to_pixels
from lanewise.splat.rasterize import reference
from lanewise.splat.rasterize.decisions import pair_sides

WIDTH, HEIGHT, GAUSSIANS = 472, 352, 20_000


def scene(seed: int = 0) -> dict[str, Tensor]:
    """20,000 clustered Gaussians of log-normal size and bimodal opacity, as a trained scene has them."""
    g = torch.Generator().manual_seed(seed)
    clusters = torch.randn(200, 3, generator=g) * torch.tensor([3.0, 1.7, 2.0])
    means = clusters[torch.randint(200, (GAUSSIANS,), generator=g)] + 0.15 * torch.randn(GAUSSIANS, 3, generator=g)
    viewmat = torch.eye(4)
    viewmat[2, 3] = 7.0
    focal = 0.9 * WIDTH
    return {
        "means": means,
        "quats": torch.randn(GAUSSIANS, 4, generator=g),
        "scales": (torch.randn(GAUSSIANS, 3, generator=g) * 0.8 - 4.6).exp() * 4.0,
        "opacities": torch.sigmoid(torch.randn(GAUSSIANS, generator=g) * 2.5 - 0.5),
        "colors": torch.rand(GAUSSIANS, 3, generator=g),
        "viewmats": viewmat[None],
        "Ks": torch.tensor([[focal, 0, WIDTH / 2], [0, focal, HEIGHT / 2], [0, 0, 1]])[None],
    }


def check(tensors: dict[str, Tensor], v: Tensor) -> tuple[bool, int, int]:
    """The gate of the rasterizer on this scene; and the pairs that were evaluated and that counted."""
    _, _, meta = rasterization(**tensors, width=WIDTH, height=HEIGHT)
    geometry = [meta[k].detach() for k in ("means2d", "conics", "opacities")]
    lists = (WIDTH, HEIGHT, meta["tile_size"], meta["isect_offsets"], meta["flatten_ids"])
    sides = pair_sides(*geometry, *lists)
    inputs = [geometry[0], geometry[1], tensors["colors"][None], geometry[2]]

    def gradients(dtype: torch.dtype, kernel: bool) -> tuple[Tensor, ...]:
        leaves = [x.to(dtype).clone().requires_grad_() for x in inputs]
        if kernel:
            out, _ = rasterize_to_pixels(*leaves, *lists)
        else:
            out = reference.rasterize(*(x[0] for x in leaves), *lists, sides=sides).colors
        return out, *torch.autograd.grad(out, leaves, v.to(dtype))

    got, truth = gradients(torch.float32, True), gradients(torch.float64, False)
    results = [
        gate(n, a, b)
        for n, a, b in zip(("colors out", "means2d", "conics", "colors", "opacities"), got, truth, strict=True)
    ]
    for r in results:
        print(f"gate {r.name}: relative error {r.error:.2g} (limit {r.limit:.2g}) {'ok' if r.ok else 'RED'}")
    return all(r.ok for r in results), sides.numel(), int((sides != reference.SKIPPED).sum())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    tensors = scene()
    v = torch.randn(1, HEIGHT, WIDTH, 3, generator=torch.Generator().manual_seed(1))
    healthy, evaluated, counted = check(tensors, v)
    if not healthy:
        return 1
    leaves = {k: t.clone().requires_grad_() for k, t in tensors.items()}

    def forward(backend: str) -> Tensor:
        return rasterization(**leaves, width=WIDTH, height=HEIGHT, backend=backend)[0]  # type: ignore[arg-type]

    def both(backend: str) -> None:
        torch.autograd.grad(forward(backend), list(leaves.values()), v)

    times = interleaved({"forward": lambda: forward("cpu"), "both": lambda: both("cpu")}, repeats, warmup=2)
    slow = interleaved({"both": lambda: both("reference")}, 2)
    row: dict[str, Any] = {
        "scene": f"{GAUSSIANS} Gaussians, {WIDTH}x{HEIGHT}",
        "forward_ms": median(times["forward"]),
        "forward_backward_ms": median(times["both"]),
        "forward_backward_min_ms": min(times["both"]),
        "reference_forward_backward_ms": median(slow["both"]),
        "pairs_listed": evaluated,
        "pairs_counted": counted,
    }
    row["ns_per_listed_pair"] = row["forward_backward_ms"] * 1e6 / evaluated
    row["ns_per_counted_pair"] = row["forward_backward_ms"] * 1e6 / counted
    row["ratio_to_reference"] = row["reference_forward_backward_ms"] / row["forward_backward_ms"]
    for name, value in row.items():
        print(f"{name}: {value:.4g}" if isinstance(value, float) and math.isfinite(value) else f"{name}: {value}")
    print(f"wrote {write('splat_cpu', [row])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
