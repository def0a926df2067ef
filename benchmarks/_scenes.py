"""What the benchmarks on a GPU share: scenes, the gate, times and memory, and a row of ours beside gsplat's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lanewise.audit.gate import gate, relative_error
from lanewise.splat import rasterization, rasterize_to_pixels
from lanewise.splat.rasterize import reference
from lanewise.splat.rasterize.decisions import pair_sides

SCENES = {"A": (1_000_000, 1.0), "B": (1_000_000, 2.0), "C": (4_000_000, 0.6)}  # Gaussians, and how large they are
WIDTH, HEIGHT = 1920, 1080
ROOM = 1.1  # of the lists in a captured pass, in what it needs
LARGEST_DIFFERENCE = 1e-3  # of two renderers' pictures, relative
WARMUP = 3  # runs that compile kernels and fill torch's memory pool


def scene(
    count: int, size: float, width: int = WIDTH, height: int = HEIGHT, cameras: int = 1, channels: int = 3
) -> list[Tensor]:
    """means, quats, scales, opacities, colors, viewmats, Ks of clustered Gaussians."""
    g = torch.Generator().manual_seed(0)
    clusters = torch.randn(2000, 3, generator=g) * torch.tensor([3.0, 1.7, 2.0])
    means = clusters[torch.randint(0, 2000, (count,), generator=g)] + 0.15 * torch.randn(count, 3, generator=g)
    scales = torch.exp(torch.randn(count, 3, generator=g) * 0.8 - 4.6) * size
    quats = torch.nn.functional.normalize(torch.randn(count, 4, generator=g), dim=-1)
    opacities = torch.sigmoid(torch.randn(count, generator=g) * 2.5 - 0.5)
    colors = torch.rand(count, channels, generator=g)
    viewmats = torch.eye(4).repeat(cameras, 1, 1)
    viewmats[:, 2, 3] = 7.0
    viewmats[:, 0, 3] = torch.arange(cameras) * 0.3
    Ks = torch.tensor([[0.9 * width, 0, width / 2], [0, 0.9 * width, height / 2], [0, 0, 1.0]]).repeat(cameras, 1, 1)
    return [x.cuda().float().contiguous() for x in (means, quats, scales, opacities, colors, viewmats, Ks)]


def gate_is_green() -> bool:
    """Our rasterizer's output and gradients on a small scene against fp64, with our decisions replayed."""
    width, height = 200, 120
    tensors = scene(20_000, 2.0, width, height)
    _, _, meta = rasterization(*tensors, width, height)
    inputs = [meta["means2d"], meta["conics"], tensors[4][None], meta["opacities"]]
    lists = (width, height, meta["tile_size"], meta["isect_offsets"], meta["flatten_ids"])
    sides = pair_sides(inputs[0], inputs[1], inputs[3], *lists)
    v = torch.randn(1, height, width, 3, device="cuda", generator=torch.Generator("cuda").manual_seed(1))

    def run(dtype: torch.dtype, kernel: bool) -> list[Tensor]:
        leaves = [x.detach().to(dtype).requires_grad_() for x in inputs]
        if kernel:
            out, _ = rasterize_to_pixels(*leaves, *lists)
        else:
            out = reference.rasterize(*(x[0] for x in leaves), *lists, sides=sides).colors
        return [out, *torch.autograd.grad(out, leaves, v.to(dtype))]

    got, single, truth = run(torch.float32, True), run(torch.float32, False), run(torch.float64, False)
    names = ("picture", "means2d", "conics", "colors", "opacities")
    results = [gate(*values) for values in zip(names, got, truth, single, strict=True)]
    for r in results:
        print(f"gate {r.name}: relative error {r.error:.2g} (limit {r.limit:.2g}) {'ok' if r.ok else 'RED'}")
    return all(r.ok for r in results)


def milliseconds(variants: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median of every variant, taken in turns."""
    events: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in variants}
    for repeat in range(repeats + WARMUP):
        for name, run in variants.items():
            pair = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            pair[0].record()
            run()
            pair[1].record()
            if repeat >= WARMUP:
                events[name].append(pair)
    torch.cuda.synchronize()
    return {name: sorted(a.elapsed_time(b) for a, b in pairs)[len(pairs) // 2] for name, pairs in events.items()}


def peak(run: Callable[[], object]) -> int:
    """Largest number of bytes allocated while it runs."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def captured(run: Callable[[], object]) -> Callable[[], object]:
    """The same work as one replay of a CUDA graph; it must not wait for the GPU."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def compare(name: str, tensors: list[Tensor], width: int, height: int, repeats: int) -> dict[str, Any]:
    """A row of milliseconds and bytes of ours beside gsplat's; `gsplat_failed` says why, where gsplat cannot.

    `ours_fwd_graph` and `ours_fwd_bwd_graph` are the same work captured into a CUDA graph, which lists with a capacity
    make possible (gsplat waits for the GPU in every pass): what the GPU needs, without the host.

    Args:
        name: of the row.
        tensors: as `scene` gives them.
        width, height: of the pictures, pixels.
        repeats: timed runs of every variant.
    """
    import gsplat  # pyright: ignore[reportMissingImports] (the peer, where it is installed)

    leaves = [x.requires_grad_() for x in tensors[:5]]
    v = torch.randn(len(tensors[5]), height, width, tensors[4].shape[-1], device="cuda")

    def forward(renderer: Callable[..., tuple]) -> Tensor:
        return renderer(*leaves, *tensors[5:], width, height, packed=False)[0]

    def both(renderer: Callable[..., tuple]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(forward(renderer), leaves, v)

    def both_anew(renderer: Callable[..., tuple]) -> tuple[Tensor, ...]:
        """With leaves of its own: autograd remembers on which stream a leaf was first used."""
        own = [x.detach().requires_grad_() for x in leaves]
        return torch.autograd.grad(renderer(*own, *tensors[5:], width, height)[0], own, v)

    runs = {"ours": rasterization, "gsplat": gsplat.rasterization}
    row: dict[str, Any] = {"scene": name}
    failed = _failure(lambda: both(gsplat.rasterization))
    if failed:
        del runs["gsplat"]
        torch.cuda.empty_cache()
    difference = None if failed else _difference(name, forward)
    variants = {f"{who}_fwd": lambda r=renderer: forward(r) for who, renderer in runs.items()}
    variants |= {f"{who}_fwd_bwd": lambda r=renderer: both(r) for who, renderer in runs.items()}
    with torch.no_grad():
        _, _, needs = rasterization(*leaves, *tensors[5:], width, height, isect_capacity=(1, 1))
    capacity = tuple(int(ROOM * needs[name]) for name in ("n_isects", "n_coarse"))
    del needs
    bounded = partial(rasterization, isect_capacity=capacity)
    row |= milliseconds(variants, repeats)
    graphs = {
        "ours_fwd_graph": captured(lambda: forward(bounded)),
        "ours_fwd_bwd_graph": captured(lambda: both_anew(bounded)),
    }
    row |= milliseconds(graphs, repeats)
    del graphs
    torch.cuda.empty_cache()
    if not failed:
        row["ratio_graph"] = row["gsplat_fwd_bwd"] / row["ours_fwd_bwd_graph"]
        row["ratio_fwd_graph"] = row["gsplat_fwd"] / row["ours_fwd_graph"]
        row["ratio"] = row["gsplat_fwd_bwd"] / row["ours_fwd_bwd"]
        row["ratio_fwd"] = row["gsplat_fwd"] / row["ours_fwd"]
    row |= {f"peak_{who}": peak(lambda r=renderer: both(r)) for who, renderer in runs.items()}
    return row | ({"gsplat_failed": failed} if failed else {"picture_difference": difference})


def show(row: dict[str, Any]) -> None:
    """Print a row in one line."""
    print("  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)


def _failure(run: Callable[[], object]) -> str | None:
    """What a run raises: too little memory, or a shape that is not supported. None when it works."""
    try:
        run()
    except (RuntimeError, ValueError, AssertionError, NotImplementedError) as error:  # OutOfMemoryError is the first
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return None


def _difference(name: str, forward: Callable[[Callable[..., tuple]], Tensor]) -> float:
    import gsplat  # pyright: ignore[reportMissingImports]

    with torch.no_grad():
        difference = relative_error(forward(rasterization), forward(gsplat.rasterization))
    if difference > LARGEST_DIFFERENCE:
        raise SystemExit(f"RED: our picture of scene {name} differs from gsplat's by {difference:.2g}")
    return difference
