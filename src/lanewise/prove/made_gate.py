"""The gate for what `rasterization` makes on its way and does not return: the totals that memory for lists is asked for
by, and every picture's transmittance, where nobody may read them but the next kernel."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from lanewise.audit.gate import FLOOR, GateResult, relative_error
from lanewise.prove.scenes import Scene
from lanewise.splat import bin_gaussians
from lanewise.splat.binning.reference import TileLists


@dataclass
class Made:
    """lists: all that were made; pictures: colors, alphas, transmittance and last of all that were composited."""

    lists: list[TileLists] = field(default_factory=list)
    pictures: list[tuple[Tensor, Tensor, Tensor, Tensor]] = field(default_factory=list)


@contextlib.contextmanager
def kept(wide: bool) -> Iterator[Made]:
    """Keeps what Triton's kernels make in the block; `wide` lists have the 64-bit bounds of 2^31 entries, and
    are sorted in parts as those of a million are."""
    from lanewise.splat.binning import launch as binning
    from lanewise.splat.rasterize import launch as rasterize

    made = Made()
    tile_lists = functools.partial(binning.tile_lists, wide=1, part=1) if wide else binning.tile_lists
    with (
        mock.patch.object(binning, "tile_lists", _keeping(tile_lists, made.lists)),
        mock.patch.object(rasterize, "forward", _keeping(rasterize.forward, made.pictures)),
    ):
        yield made


def _keeping(make: Any, results: list[Any]) -> Any:
    def make_and_keep(*args: Any, **named: Any) -> Any:
        results.append(make(*args, **named))
        return results[-1]

    return make_and_keep


def gate_pictures(made: Made) -> list[GateResult]:
    """Pictures of one scene, with colours and without: the same alphas, and transmittances that go with them."""
    _, alphas, _, last = made.pictures[0]
    apart = max(relative_error(picture[1], alphas) for picture in made.pictures)
    same = all(torch.equal(1 - picture[2], picture[1]) and torch.equal(picture[3], last) for picture in made.pictures)
    return [GateResult("alphas of all", apart, FLOOR), GateResult("transmittances", 0.0 if same else 1.0, 0.0)]


def gate_lists(scene: Scene, meta: dict, made: Made) -> list[GateResult]:
    """The lists of a run against the reference's, of the same projected Gaussians; 1 where they differ."""
    operands = [meta[k] for k in ("means2d", "radii", "depths", "conics", "opacities")]
    size = {"tile_size": meta["tile_size"], "width": scene.width, "height": scene.height}
    want = bin_gaussians(*operands, **size, backend="reference")
    same = torch.equal(meta["flatten_ids"], want.flatten_ids)
    same &= torch.equal(meta["tiles_per_gauss"].flatten(), want.tiles_per_gauss.flatten())
    same &= torch.equal(meta["isect_offsets"].flatten().long(), want.isect_offsets.flatten().long())
    lengths = made.lists[0].lengths
    totals = lengths is not None and lengths[:2].sum(1).tolist() == [want.flatten_ids.numel(), coarse_pairs(want)]
    return [GateResult("lists", 0.0 if same else 1.0, 0.0), GateResult("totals", 0.0 if totals else 1.0, 0.0)]


def gate_beginnings(n: int) -> list[GateResult]:
    """Where n coarse lists begin, and how long the longest is, against torch."""
    from lanewise.splat.binning import launch as binning

    lengths = torch.randint(100, (n,), generator=torch.Generator().manual_seed(n))
    totals, steps = torch.zeros(3, binning.SLOTS, dtype=torch.int64), torch.zeros(n + 2, dtype=torch.int32)
    steps[1:] = torch.diff(lengths, prepend=torch.zeros(1), append=torch.zeros(1))
    binning.begin_lists(steps, totals, n)
    cursors = torch.cat([torch.zeros(1), lengths.cumsum(0) - lengths])
    longest = totals[2].sum() == lengths.max() and not totals[:2].any()
    return [
        GateResult("beginnings", 0.0 if torch.equal(steps[:-1].float(), cursors) else 1.0, 0.0),
        GateResult("longest", 0.0 if longest else 1.0, 0.0),
    ]


def gate_long_lists(N: int) -> list[GateResult]:
    """The lists of N Gaussians in one coarse tile, and of a few more in others, against the reference's; some depths
    are equal, negative, zeros of both signs, not finite or not numbers."""
    g, all_of_them = torch.Generator().manual_seed(N), N + 20
    depths = torch.randint(-40, 200, (1, all_of_them), generator=g) * 0.25
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, -torch.nan, 1e-42, -1e-42])
    depths[:, : 2 * len(special)] = special.repeat(2)
    # In quarters of a pixel: no ellipse ends where fp32 could not tell whether it reaches a tile.
    means2d = 8 + torch.randint(-10, 11, (1, all_of_them, 2), generator=g) * 0.25
    means2d[:, N:, 0] += 20
    conics = torch.tensor([0.21, 0.0, 0.21]).expand(*depths.shape, 3)
    radii = torch.full_like(means2d, 7, dtype=torch.int32)
    operands = (means2d, radii, depths, conics, torch.full_like(depths, 0.5))
    size = {"tile_size": 8, "width": 32, "height": 17}
    got, want = (bin_gaussians(*operands, **size, backend=backend) for backend in ("triton", "reference"))
    same = all(torch.equal(mine, theirs) for mine, theirs in zip(got[:3], want[:3], strict=True))
    return [GateResult("lists", 0.0 if same else 1.0, 0.0)]


def coarse_pairs(lists: TileLists) -> int:
    """How many pairs of a Gaussian and a coarse tile, of 2 x 2 tiles, there are: in every row of coarse tiles all from
    the first to the last column that the Gaussian reaches."""
    *_, height, width = lists.isect_offsets.shape
    offsets = lists.isect_offsets.flatten().long()
    lengths = torch.diff(offsets, append=offsets.new_tensor([lists.flatten_ids.numel()]))
    tile = torch.repeat_interleave(torch.arange(len(offsets)), lengths)
    image_row, column = tile // width // height * height + tile // width % height // 2, tile % width // 2
    row = torch.stack([lists.flatten_ids.long(), image_row])
    _, slot = row.unique(dim=1, return_inverse=True)
    slots = int(slot.max()) + 1 if len(slot) else 0
    first = torch.full((slots,), width).scatter_reduce(0, slot, column, "amin")
    last = torch.full((slots,), -1).scatter_reduce(0, slot, column, "amax")
    return int((last - first + 1).sum())
