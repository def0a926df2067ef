"""The gate for tile lists: the lists themselves, and the totals that memory is asked for by."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from unittest import mock

import torch

from lanewise.audit.gate import GateResult
from lanewise.prove.scenes import Scene
from lanewise.splat import bin_gaussians
from lanewise.splat.binning.reference import TileLists


@contextlib.contextmanager
def kept_lists(wide: bool) -> Iterator[list[TileLists]]:
    """Keeps the lists that are made in the block; `wide` ones have the 64-bit bounds of lists of 2^31 entries."""
    from lanewise.splat.binning import launch

    made: list[TileLists] = []
    tile_lists = functools.partial(launch.tile_lists, wide=1) if wide else launch.tile_lists

    def make(*args: object, **named: object) -> TileLists:
        made.append(tile_lists(*args, **named))  # pyright: ignore[reportArgumentType]
        return made[-1]

    with mock.patch.object(launch, "tile_lists", make):
        yield made


def gate_lists(scene: Scene, meta: dict, made: TileLists) -> list[GateResult]:
    """The lists of a run against the reference's, of the same projected Gaussians; 1 where they differ."""
    operands = [meta[k] for k in ("means2d", "radii", "depths", "conics", "opacities")]
    size = {"tile_size": meta["tile_size"], "width": scene.width, "height": scene.height}
    want = bin_gaussians(*operands, **size, backend="reference")
    same = torch.equal(meta["flatten_ids"], want.flatten_ids)
    same &= torch.equal(meta["tiles_per_gauss"].flatten(), want.tiles_per_gauss.flatten())
    same &= torch.equal(meta["isect_offsets"].flatten().long(), want.isect_offsets.flatten().long())
    lengths = made.lengths
    totals = lengths is not None and lengths.sum(1).tolist() == [want.flatten_ids.numel(), coarse_pairs(want)]
    return [GateResult("lists", 0.0 if same else 1.0, 0.0), GateResult("totals", 0.0 if totals else 1.0, 0.0)]


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
