"""The Triton kernels on a GPU: how lists are made, and what the rasterizer is given."""

from unittest import mock

import pytest
import torch
from guarded import waiting_forbidden
from splat_lists import (
    GRIDS,
    check_canary,
    check_capacity,
    check_lists,
    check_one_by_one,
    check_one_by_one_is_checked,
    check_parts,
    check_wide,
    same,
    wide_lists,
)
from splat_scenes import make_scene

from lanewise.audit.gate import require
from lanewise.prove.splat_gate import (
    Kernels,
    gate_rasterization,
    gate_rasterize,
    kernel_run,
    random_upstream,
    true_rasterization,
)
from lanewise.splat import rasterization
from lanewise.splat.rasterize.lists import list_bounds

launch = pytest.importorskip("lanewise.splat.binning.launch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")]

ATOMIC, ORDERED = Kernels("triton", "cuda"), Kernels("triton", "cuda", deterministic=True)


@pytest.mark.parametrize("grid", [*GRIDS, (8, 333, 217), (4, 333, 217), (20, 333, 217)])
def test_the_lists_are_the_references(grid):
    check_lists(ATOMIC, *grid, N=2000)


@pytest.mark.parametrize("N", [0, 1, 31, 33, 127, 129, 513, 5000, 7000])
def test_coarse_lists_sorted_one_by_one(N):
    longest = check_one_by_one(ATOMIC, N, 128, 512)
    assert N < 5000 or longest > 512


def test_coarse_lists_of_many_tiles_and_images_sorted_one_by_one():
    scene = make_scene(29, N=100000, C=3, width=1300, height=900)
    leaves = {k: v.cuda() for k, v in scene.tensors.items()}
    both = []
    for longest in (launch.LONGEST, 0):
        with mock.patch.object(launch, "LONGEST", longest):
            colors, alphas, meta = rasterization(**leaves, width=1300, height=900)
        both.append({"colors": colors, "alphas": alphas, **{k: meta[k] for k in ("flatten_ids", "isect_offsets")}})
    assert same(*both, tuple(both[0]))


def test_coarse_lists_that_are_not_merged_are_noticed():
    check_one_by_one_is_checked(ATOMIC)


@pytest.mark.parametrize("tile_size", [4, 8, 20])
def test_lists_of_a_given_capacity(tile_size):
    scene = make_scene(12, N=97, C=2, width=75, height=39, background=True, channels=5, tile_size=tile_size)
    check_capacity(ORDERED, scene)
    check_canary(ORDERED, scene)


def test_lists_of_a_given_capacity_wait_for_nothing():
    scene = make_scene(13, N=500, width=75, height=39)
    leaves = {k: v.cuda().requires_grad_() for k, v in scene.tensors.items()}

    def step() -> None:
        colors, alphas, _ = rasterization(**leaves, width=75, height=39, isect_capacity=10000)
        (colors.sum() + alphas.sum()).backward()

    step()  # compiles
    with waiting_forbidden():
        step()


@pytest.mark.parametrize("tile_size", [4, 8, 20])
def test_lists_sorted_in_parts(tile_size):
    check_parts(ORDERED, make_scene(14, N=97, C=2, width=75, height=39, background=True, tile_size=tile_size))


@pytest.mark.parametrize("tile_size", [4, 8, 16])
def test_lists_with_64_bit_bounds(tile_size):
    scene = make_scene(14, N=97, C=2, width=75, height=39, background=True, tile_size=tile_size)
    check_wide(ORDERED, scene)
    with wide_lists():
        require(*gate_rasterization(scene, true_rasterization(scene, ATOMIC), kernels=ATOMIC))


@pytest.mark.parametrize("kernels", [ATOMIC, ORDERED], ids=["atomic", "ordered"])
@pytest.mark.parametrize("channels", [0, 1, 4, 5, 17])
def test_three_cameras_share_colours_of_any_number_of_channels(channels, kernels):
    scene = make_scene(15, N=65, C=3, width=33, height=31, channels=channels, background=True)
    require(*gate_rasterization(scene, true_rasterization(scene, kernels), kernels=kernels))


@pytest.mark.parametrize("kernels", [ATOMIC, ORDERED], ids=["atomic", "ordered"])
@pytest.mark.parametrize("tile_size", [12, 20])
def test_tiles_that_squares_of_pixels_do_not_fill(tile_size, kernels):
    scene = make_scene(16, N=65, width=50, height=37, tile_size=tile_size)
    require(*gate_rasterize(scene, kernels=kernels))
    require(*gate_rasterization(scene, true_rasterization(scene, kernels), kernels=kernels))


@pytest.mark.parametrize("one", [0, 1], ids=["colours", "alphas"])
def test_a_gradient_that_is_not_there_is_one_of_zeros(one):
    scene = make_scene(17, background=True)
    upstream = [torch.zeros_like(v) if i != one else v for i, v in enumerate(random_upstream(scene))]
    _, want, _ = kernel_run(scene, (upstream[0], upstream[1]), kernels=ORDERED)
    leaves = {k: v.cuda().requires_grad_() for k, v in scene.tensors.items()}
    outputs = rasterization(**leaves, width=24, height=17, **scene.options, deterministic=True)
    got = torch.autograd.grad(outputs[one], list(leaves.values()), upstream[one].cuda(), materialize_grads=True)
    assert same({k: v.cpu() for k, v in zip(leaves, got, strict=True)}, want, tuple(leaves))


def test_tensors_at_odd_addresses_after_aligned_ones():
    """Another variant of every kernel: the aligned ones may load four numbers at once."""
    scene = make_scene(18, N=65, background=True)
    upstream = random_upstream(scene)
    (colors, alphas), grads, _ = kernel_run(scene, upstream, kernels=ORDERED)
    leaves = {}
    for name, x in scene.tensors.items():
        room = torch.empty(x.numel() + 1, device="cuda")
        leaves[name] = room[1:].view(x.shape).copy_(x).requires_grad_()
        assert leaves[name].data_ptr() % 16 == 4
    out = rasterization(**leaves, width=24, height=17, **scene.options, deterministic=True)[:2]
    odd = [torch.empty(v.numel() + 1, device="cuda")[1:].view(v.shape).copy_(v) for v in upstream]
    got = torch.autograd.grad(out, list(leaves.values()), odd)
    names = ("colors out", "alphas out", *leaves)
    want = {"colors out": colors, "alphas out": alphas, **grads}
    assert same(dict(zip(names, [x.cpu() for x in (*out, *got)], strict=True)), want, names)


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_the_operator_passes_opcheck(background, shared):
    scene = make_scene(19, N=20, C=2)
    _, _, meta = rasterization(**{k: v.cuda() for k, v in scene.tensors.items()}, width=24, height=17)
    g = torch.Generator("cuda").manual_seed(7)
    rows = 1 if shared else 2
    colors = torch.randn(rows, 20, 3, generator=g, device="cuda")
    backgrounds = torch.randn(2, 3, generator=g, device="cuda") if background else None
    operands = (meta["means2d"], meta["conics"], colors, meta["opacities"][:rows], backgrounds)
    leaves = [None if x is None else x.detach().clone().requires_grad_() for x in operands]
    bounds = list_bounds(meta["isect_offsets"], meta["flatten_ids"])
    args = (*leaves, None, 24, 17, meta["tile_size"], bounds, meta["flatten_ids"], None, False, True, "triton")
    torch.library.opcheck(torch.ops.lanewise.rasterize.default, args)
