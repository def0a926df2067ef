"""Tile lists of more than 2^31 entries: is everything right behind that?

usage: python benchmarks/long_lists.py [--gaussians N]

70,000 Gaussians cover every pixel of 1920x1080: 2.27 billion pairs of a tile (8x8) and a Gaussian, of which a pixel
counts some 200 before it is opaque. Checked are

- the whole picture against the reference in float64, window by window;
- the gradients of what windows before, around and behind entry 2^31 show, against the same;
- the picture against the same scene rendered in an upper and a lower half, whose lists are shorter: the same bits;
- the gradients of the whole picture against those of the halves: no further apart than twice two runs of the whole,
  whose atomic additions come in another order;
- that `deterministic=True`, which would need a record for every pair, is refused before any memory is taken.

Needs about 60 GB of GPU memory.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from _harness import write
from torch import Tensor

from lanewise.audit.gate import HEADROOM, GateResult, gate, relative_error, require
from lanewise.errors import UnsupportedError
from lanewise.splat import bin_gaussians, rasterize_to_pixels
from lanewise.splat.binning.reference import TileLists

WIDTH, HEIGHT, TILE = 1920, 1080, 8
GAUSSIANS = 70_000
BOUNDARY = 2**31
WINDOW = 64  # edge of what the reference renders at a time
FRONT = 600  # Gaussians that make every pixel opaque; those behind are not seen
NAMES = ("means2d", "conics", "colors", "opacities")


class Scene(NamedTuple):
    """Gaussians on a picture, front to back: means2d [N, 2], conics [N, 3], colors [N, 3], opacities [N]."""

    means2d: Tensor
    conics: Tensor
    colors: Tensor
    opacities: Tensor

    def moved(self, x: int, y: int) -> Scene:
        """As seen in a picture whose corner is at (x, y)."""
        return self._replace(means2d=self.means2d - self.means2d.new_tensor([x, y]))


def make_scene(count: int, width: int, height: int, device: str) -> Scene:
    """Gaussians so wide that alpha is above 1/255 everywhere; means on a grid, so that moving them rounds nothing."""
    g = torch.Generator().manual_seed(0)
    spread = torch.rand(count, 2, generator=g) - 0.5
    centre = torch.tensor([width / 2, height / 2])
    means2d = centre + (spread * torch.tensor([width, height]) * 0.2 * 16).round() / 16
    a, c = (0.3 + 0.7 * torch.rand(2, count, generator=g)) * 0.18 / torch.tensor([[width], [height]]) ** 2
    b = (torch.rand(count, generator=g) - 0.5) * (a * c).sqrt()
    opacities = 0.0048 + 0.2 * torch.rand(count, generator=g) ** 2
    tensors = (means2d, torch.stack([a, b, c], -1), torch.randn(count, 3, generator=g), opacities)
    return Scene(*(x.to(device) for x in tensors))


def lists_of(scene: Scene, width: int, height: int) -> TileLists:
    """The lists of one image; the order of the Gaussians is their depth."""
    count = len(scene.means2d)
    depths = torch.arange(count, device=scene.means2d.device, dtype=torch.float32)[None]
    radii = torch.full((1, count, 2), 2 * width, dtype=torch.int32, device=depths.device)
    return bin_gaussians(
        scene.means2d[None], radii, depths, scene.conics[None], scene.opacities[None],
        tile_size=TILE, width=width, height=height,
    )  # fmt: skip


def render(
    scene: Scene, lists: TileLists, width: int, height: int, v: Tensor | None, **options: Any
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The picture [H, W, 3], and the gradients by `NAMES` when it has the upstream gradient v [H, W, 3]."""
    leaves = [x.detach().clone().requires_grad_(v is not None) for x in scene]
    batch = [x[None] for x in leaves]
    where = (lists.tile_size, lists.isect_offsets, lists.flatten_ids)
    out, _ = rasterize_to_pixels(*batch, width, height, *where, **options)
    return out[0].detach(), () if v is None else torch.autograd.grad(out[0], leaves, v)


def render_windows(
    scene: Scene, size: tuple[int, int], windows: Sequence[tuple[int, int]], v: Tensor | None, dtype: torch.dtype
) -> Iterator[tuple[Tensor, tuple[Tensor, ...]]]:
    """`render` by the reference, of windows with these corners, with what can be seen of the scene."""
    front = Scene(*(x[:FRONT].to(dtype) for x in scene))
    count = len(front.means2d)
    ids = torch.arange(count, dtype=torch.int32, device=front.means2d.device)
    for x, y in windows:
        width, height = min(WINDOW, size[0] - x), min(WINDOW, size[1] - y)
        offsets = ids.new_zeros(1, 1, 1)
        lists = TileLists(ids.new_full((1, count), 1), ids, offsets, WINDOW)
        upstream = None if v is None else v[y : y + height, x : x + width].to(dtype)
        yield render(front.moved(x, y), lists, width, height, upstream, backend="reference")


def check_picture(scene: Scene, picture: Tensor) -> GateResult:
    """The whole picture against the reference."""
    height, width = picture.shape[:2]
    corners = [(x, y) for y in range(0, height, WINDOW) for x in range(0, width, WINDOW)]
    values = []
    for dtype in (torch.float64, torch.float32):
        whole = torch.empty_like(picture, dtype=dtype)
        for (x, y), (part, _) in zip(
            corners, render_windows(scene, (width, height), corners, None, dtype), strict=True
        ):
            whole[y : y + WINDOW, x : x + WINDOW] = part
        values.append(whole)
    return gate("picture", picture, *values)


def check_gradients(scene: Scene, lists: TileLists, width: int, height: int, boundary: int) -> list[GateResult]:
    """Gradients of what a few windows show, through the lists of the whole picture."""
    tile = int((lists.isect_offsets.flatten() >= boundary).int().argmax())
    row, column = divmod(tile, lists.isect_offsets.shape[-1])
    ends = ((0, 0), (TILE * column, TILE * row), (width - 1, height - 1))
    windows = sorted({(x // WINDOW * WINDOW, y // WINDOW * WINDOW) for x, y in ends})
    g = torch.Generator().manual_seed(1)
    v = torch.zeros(height, width, 3)
    for x, y in windows:
        part = v[y : y + WINDOW, x : x + WINDOW]
        part.copy_(torch.randn(part.shape, generator=g))
    v = v.to(scene.means2d)
    _, got = render(scene, lists, width, height, v)
    sums = []
    for dtype in (torch.float64, torch.float32):
        parts = [grads for _, grads in render_windows(scene, (width, height), windows, v, dtype)]
        sums.append([torch.stack(of_name).sum(0) for of_name in zip(*parts, strict=True)])
    assert all(not x[FRONT:].any() for x in got), "what cannot be seen has a gradient"
    return [gate(name, x[:FRONT], *both) for name, x, *both in zip(NAMES, got, *sums, strict=True)]


def check_halves(scene: Scene, lists: TileLists, picture: Tensor) -> list[GateResult]:
    """The whole picture and its gradients against those of its halves."""
    height, width = picture.shape[:2]
    v = torch.randn(picture.shape, generator=torch.Generator().manual_seed(2)).to(picture)
    runs = [render(scene, lists, width, height, v)[1] for _ in range(2)]
    middle = height // (2 * TILE) * TILE
    halves = []
    for top, bottom in ((0, middle), (middle, height)):
        part = scene.moved(0, top)
        half, grads = render(part, lists_of(part, width, bottom - top), width, bottom - top, v[top:bottom])
        assert torch.equal(half, picture[top:bottom]), "half of the picture differs"
        halves.append(grads)
    results = []
    for name, first, again, upper, lower in zip(NAMES, *runs, *halves, strict=True):
        between_runs = gate(name, again, first)
        limit = max(between_runs.limit, HEADROOM * between_runs.error)
        results.append(GateResult(f"{name}, halves", relative_error(upper + lower, first), limit))
    return results


def check_refusal(scene: Scene, lists: TileLists, width: int, height: int) -> None:
    """A record for each pair is refused, and not tried."""
    try:
        v = scene.means2d.new_ones(height, width, 3)
        render(scene, lists, width, height, v, deterministic=True)
    except UnsupportedError as error:
        print(error)
    else:
        raise AssertionError("deterministic=True was not refused")


def measure(device: str, count: int, width: int, height: int, boundary: int) -> dict[str, Any]:
    """All checks; pairs, seconds of one forward and backward pass, and how far everything is from its limit."""
    scene = make_scene(count, width, height, device)
    lists = lists_of(scene, width, height)
    v = torch.ones(height, width, 3, device=device)
    render(scene, lists, width, height, v)  # compiles the kernels
    del lists
    _wait(device)
    start = time.perf_counter()
    lists = lists_of(scene, width, height)
    picture, _ = render(scene, lists, width, height, v)
    _wait(device)
    row = {"gaussians": count, "pairs": lists.flatten_ids.numel(), "seconds": time.perf_counter() - start}
    if device == "cuda":
        row["peak_bytes"] = torch.cuda.max_memory_allocated()
    assert row["pairs"] > boundary, f"{row['pairs']} pairs, {boundary} wanted"
    results = [check_picture(scene, picture), *check_gradients(scene, lists, width, height, boundary)]
    results += check_halves(scene, lists, picture)
    for result in results:
        print(f"{result.name:20} error {result.error:.2e}, limit {result.limit:.2e}")
        row[result.name] = result.error
    require(*results)
    if device == "cuda":
        check_refusal(scene, lists, width, height)
    return row


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--gaussians", type=int, default=GAUSSIANS)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU on this machine: nothing ran")
        return 5
    row = measure("cuda", options.gaussians, WIDTH, HEIGHT, BOUNDARY)
    print(f"{row['pairs']:,} pairs, {row['seconds']:.2f} s, peak {row['peak_bytes'] / 2**30:.1f} GiB")
    print(f"wrote {write('long_lists', [row])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
