import itertools

import pytest
import torch
from hypothesis import given, settings
from splat_scenes import make_scene, scenes

from lanewise import InputError
from lanewise.splat import bin_gaussians, rasterization
from lanewise.splat.binning.reference import DEGENERATE


def projected(scene):
    _, _, meta = rasterization(**scene.tensors, width=scene.width, height=scene.height, **scene.options)
    return [meta[k] for k in ("means2d", "radii", "depths", "conics", "opacities")], meta


def lists(scene, tensors, backend, tile_size):
    return bin_gaussians(*tensors, tile_size=tile_size, width=scene.width, height=scene.height, backend=backend)


@settings(max_examples=60, deadline=None)
@given(scenes())
def test_the_kernels_lists_are_the_references(scene):
    tensors, meta = projected(scene)
    cpu, reference = (lists(scene, tensors, backend, meta["tile_size"]) for backend in ("cpu", "reference"))
    assert cpu.tile_size == reference.tile_size
    for name in ("tiles_per_gauss", "flatten_ids", "isect_offsets"):
        got, want = getattr(cpu, name), getattr(reference, name)
        assert got.dtype == want.dtype
        assert torch.equal(got, want), name


@settings(max_examples=40, deadline=None)
@given(scenes())
def test_lists_hold_every_pair_that_counts_and_are_front_to_back(scene):
    tensors, meta = projected(scene)
    means2d, radii, depths, conics, opacities = tensors
    size, tw, th = meta["tile_size"], meta["tile_width"], meta["tile_height"]
    N = depths.shape[-1]
    images = depths.numel() // max(N, 1)
    offsets = [*meta["isect_offsets"].flatten().tolist(), meta["flatten_ids"].numel()]
    flat = [x.flatten(0, depths.dim() - 1).double() for x in (means2d, conics, opacities)]
    y, x = torch.meshgrid(torch.arange(th * size) + 0.5, torch.arange(tw * size) + 0.5, indexing="ij")
    inside = (x < scene.width) & (y < scene.height)
    seen = (radii > 0).all(-1).flatten()
    for image in range(images):
        for n in range(N):
            g = image * N + n
            if not seen[g]:
                continue
            dx, dy = flat[0][g, 0] - x, flat[0][g, 1] - y
            a, b, c = flat[1][g]
            alpha = flat[2][g] * torch.exp(-(0.5 * (a * dx * dx + c * dy * dy) + b * dx * dy))
            counts = (alpha >= (1 - 1e-6) / 255) & inside  # [th * size, tw * size]
            needed = counts.reshape(th, size, tw, size).any(3).any(1).flatten()
            for tile in needed.nonzero().flatten().tolist():
                k = image * tw * th + tile
                assert g in meta["flatten_ids"][offsets[k] : offsets[k + 1]].tolist()
    order = depths.flatten()
    for start, end in itertools.pairwise(offsets):
        ids = meta["flatten_ids"][start:end].tolist()
        keys = [(order[g].item(), g) for g in ids]
        assert keys == sorted(keys)
        assert all(seen[g] for g in ids)


def test_lists_are_tight():
    """An ellipse is not listed in tiles of its box that it does not reach."""
    scene = make_scene(1, N=64, shapes="needles", width=160, height=128)
    tensors, meta = projected(scene)
    radii, means2d = tensors[1].double(), tensors[0].double()
    low = ((means2d - radii) / 16).floor().clamp(min=0)
    high = torch.minimum(((means2d + radii) / 16).ceil(), torch.tensor([10.0, 8.0]))
    boxes = ((high - low).clamp_min(0).prod(-1) * (radii > 0).all(-1)).sum()
    assert 0 < meta["flatten_ids"].numel() < 0.7 * boxes


def test_equal_depths_keep_the_order_of_the_gaussians():
    N = 40
    conics = torch.tensor([0.5, 0.0, 0.5]).repeat(1, N, 1)
    tensors = (
        torch.full((1, N, 2), 8.0),
        torch.full((1, N, 2), 3, dtype=torch.int32),
        torch.ones(1, N),
        conics,
        torch.ones(1, N),
    )
    for backend in ("cpu", "reference"):
        got = bin_gaussians(*tensors, tile_size=16, width=16, height=16, backend=backend)
        assert got.flatten_ids.tolist() == list(range(N))


def test_an_indefinite_conic_is_listed_everywhere():
    conics = torch.tensor([[[1.0, 1.0, 1.0 - DEGENERATE / 2], [1.0, 2.0, 1.0], [0.5, 0.0, 0.5]]])
    tensors = (
        torch.full((1, 3, 2), 8.0),
        torch.full((1, 3, 2), 3, dtype=torch.int32),
        torch.ones(1, 3),
        conics,
        torch.ones(1, 3),
    )
    for backend in ("cpu", "reference"):
        got = bin_gaussians(*tensors, tile_size=8, width=80, height=40, backend=backend)
        assert got.tiles_per_gauss[0].tolist()[:2] == [50, 50]
        assert got.tiles_per_gauss[0, 2] < 50


def test_keys_hold_image_tile_and_depth():
    scene = make_scene(2, C=2, width=40, height=20)
    _, meta = projected(scene)
    bits = (meta["tile_width"] * meta["tile_height"]).bit_length()
    key = meta["isect_ids"]
    image = key >> (32 + bits)
    tile = (key >> 32) & ((1 << bits) - 1)
    assert torch.equal(image, meta["flatten_ids"] // 65)
    offsets = meta["isect_offsets"].flatten()
    counts = torch.diff(torch.cat([offsets, offsets.new_tensor([key.numel()])]))
    assert torch.equal(image * 6 + tile, torch.arange(12).repeat_interleave(counts))
    depth = meta["depths"].flatten()[meta["flatten_ids"].long()]
    assert torch.equal((key & 0xFFFFFFFF).int().view(torch.float32), depth)


def test_errors_come_before_any_work():
    good = [
        torch.zeros(1, 4, 2),
        torch.zeros(1, 4, 2, dtype=torch.int32),
        torch.zeros(1, 4),
        torch.zeros(1, 4, 3),
        torch.zeros(1, 4),
    ]
    with pytest.raises(InputError, match=r"radii: got torch.float32 \[1, 4, 2\] on cpu, expected torch.int32"):
        bin_gaussians(good[0], good[1].float(), *good[2:], tile_size=16, width=8, height=8)
    with pytest.raises(InputError, match=r"radii: got torch.int32 \[1, 4, 2\] on meta, expected .* on cpu"):
        bin_gaussians(good[0], good[1].to("meta"), *good[2:], tile_size=16, width=8, height=8)
    with pytest.raises(InputError, match=r"tile_size: got 0, expected a whole number in 1\.\.1024"):
        bin_gaussians(*good, tile_size=0, width=8, height=8)
    with pytest.raises(InputError, match=r"conics: got shape \[1, 4, 2\], expected \[1, 4, 3\]"):
        bin_gaussians(*good[:3], torch.zeros(1, 4, 2), good[4], tile_size=16, width=8, height=8)
