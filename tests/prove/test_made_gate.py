"""The gate for what is made on the way: coarse totals counted by hand, and wrong totals and transmittances."""

from __future__ import annotations

import pytest
import torch

from lanewise.prove import made_gate
from lanewise.prove.made_gate import Made, coarse_pairs, gate_beginnings, gate_lists, gate_long_lists, gate_pictures
from lanewise.prove.scenes import make_scene
from lanewise.splat import bin_gaussians, rasterization
from lanewise.splat.binning.reference import TileLists


def lists_of(tiles: list[list[int]], images: int, height: int, width: int) -> TileLists:
    """Lists from the Gaussians of every tile."""
    lengths = torch.tensor([0, *map(len, tiles)]).cumsum(0)
    ids = torch.tensor([g for tile in tiles for g in tile], dtype=torch.int32)
    return TileLists(torch.zeros(1), ids, lengths[:-1].view(images, height, width), 8)


def test_coarse_pairs_by_hand():
    # One image of 3 x 5 tiles. Gaussian 0 in one tile; 1 across the upper two rows; 2 leaves a gap of coarse tiles.
    grid = [[[0], [1], [1], [1], [2]], [[2], [1], [], [], []], [[], [], [], [], [1]]]
    lists = lists_of([tile for row in grid for tile in row], 1, 3, 5)
    assert coarse_pairs(lists) == 1 + (2 + 1) + 3
    assert coarse_pairs(lists_of([[0], [0], [], [1]], 2, 1, 2)) == 2
    assert coarse_pairs(lists_of([[], []], 1, 1, 2)) == 0


@pytest.mark.parametrize("wrong", [None, 0, 1])
def test_totals(wrong: int | None):
    scene = make_scene(3, N=33, C=2, width=21, height=30)
    meta = rasterization(**scene.tensors, width=21, height=30, tile_size=4, backend="reference")[2]
    operands = [meta[k] for k in ("means2d", "radii", "depths", "conics", "opacities")]
    lists = bin_gaussians(*operands, tile_size=4, width=21, height=30, backend="reference")
    lengths = torch.zeros(3, 64, dtype=torch.int64)
    lengths[0, 3], lengths[1, 5] = lists.flatten_ids.numel(), coarse_pairs(lists)
    if wrong is not None:
        lengths[wrong, 7] += 1
    gates = {gate.name: gate.ok for gate in gate_lists(scene, meta, Made([lists._replace(lengths=lengths)]))}
    assert gates == {"lists": True, "totals": wrong is None}


@pytest.mark.parametrize("wrong", [None, 1, 2, 3])
def test_pictures_of_one_scene_agree(wrong: int | None):
    T, last = torch.rand(1, 4, 5), torch.randint(9, (1, 4, 5))
    pictures = [[torch.zeros(1, 4, 5, D), 1 - T, 1 - (1 - T), last.clone()] for D in (3, 0)]
    if wrong is not None:
        pictures[1][wrong] = pictures[1][wrong] + 1
    gates = gate_pictures(Made([], [tuple(picture) for picture in pictures]))
    assert all(gate.ok for gate in gates) == (wrong is None)


@pytest.mark.parametrize("wrong", [None, "order", "offsets", "counts"])
def test_long_lists(wrong: str | None, monkeypatch: pytest.MonkeyPatch):
    def made(*operands: torch.Tensor, backend: str, **size: int) -> TileLists:
        lists = bin_gaussians(*operands, **size, backend="reference")
        if backend == "triton" and wrong:
            k = {"order": 1, "offsets": 2, "counts": 0}[wrong]
            (lists[k][5:7] if k == 1 else lists[k].flatten()[3:5]).copy_(lists[k].flatten()[3:5] + 1)
        return lists

    monkeypatch.setattr(made_gate, "bin_gaussians", made)
    assert [gate.ok for gate in gate_long_lists(65)] == [wrong is None]


@pytest.mark.parametrize(("lost", "longer"), [(0, 0), (1, 0), (0, 1)])
def test_beginnings(lost: int, longer: int, monkeypatch: pytest.MonkeyPatch):
    launch = pytest.importorskip("lanewise.splat.binning.launch")

    def begin(steps: torch.Tensor, totals: torch.Tensor, n: int) -> None:
        lengths = steps[1 : n + 1].cumsum(0)
        totals[2, 0] = lengths.max() + longer
        steps[1 : n + 1] = lengths.cumsum(0) - lengths
        steps[n // 2] -= lost

    monkeypatch.setattr(launch, "begin_lists", begin)
    assert [gate.ok for gate in gate_beginnings(65)] == [lost == 0, longer == 0]
