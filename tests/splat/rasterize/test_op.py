import numba
import pytest
import torch
from splat_scenes import make_scene

from lanewise import InputError
from lanewise.audit.faults import FAULTS, find_fault, planted
from lanewise.audit.probes.adjoint import adjoint_probe
from lanewise.splat import bin_gaussians, rasterization, rasterize_to_pixels
from lanewise.splat.rasterize.lists import list_bounds


def operands(seed=0, **kwargs):
    scene = make_scene(seed, **kwargs)
    _, _, meta = rasterization(**scene.tensors, width=scene.width, height=scene.height, **scene.options)
    g = torch.Generator().manual_seed(seed)
    geometry = {k: meta[k].detach() for k in ("means2d", "conics", "opacities")}
    colors = torch.randn(*meta["depths"].shape, kwargs.get("channels", 3), generator=g)
    lists = (scene.width, scene.height, meta["tile_size"], meta["isect_offsets"], meta["flatten_ids"])
    return geometry["means2d"], geometry["conics"], colors, geometry["opacities"], lists


def gradients(means2d, conics, colors, opacities, lists, **options):
    leaves = [x.clone().requires_grad_() for x in (means2d, conics, colors, opacities)]
    out, alphas = rasterize_to_pixels(*leaves, *lists, **options)
    g = torch.Generator().manual_seed(9)
    upstream = [torch.randn(x.shape, generator=g) for x in (out, alphas)]
    return out, alphas, torch.autograd.grad((out, alphas), leaves, upstream), leaves[0]


@pytest.mark.parametrize("tile_size", [4, 7, 8, 32, 64])
def test_the_picture_does_not_depend_on_the_tile_size(tile_size):
    scene = make_scene(4, N=300, width=70, height=45, near=True)
    at = [rasterization(**scene.tensors, width=70, height=45, tile_size=size)[:2] for size in (16, tile_size)]
    assert torch.equal(at[0][0], at[1][0])
    assert torch.equal(at[0][1], at[1][1])


def test_the_same_bits_for_any_number_of_threads():
    args = operands(1, N=400, width=65, height=33)
    before, runs = numba.get_num_threads(), []
    try:
        for threads in range(1, before + 1):
            numba.set_num_threads(threads)
            out, alphas, grads, _ = gradients(*args)
            runs.append([out, alphas, *grads])
    finally:
        numba.set_num_threads(before)
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], run, strict=True))


@pytest.mark.parametrize("channels", [1, 2, 5, 32, 33, 65])
def test_any_number_of_channels_is_that_many_pictures(channels):
    means2d, conics, colors, opacities, lists = operands(2, channels=channels)
    out, alphas, grads, _ = gradients(means2d, conics, colors, opacities, lists)
    for d in {0, channels // 2, channels - 1}:
        single, _ = rasterize_to_pixels(means2d, conics, colors[..., d : d + 1].contiguous(), opacities, *lists)
        assert torch.equal(single[..., 0], out[..., d])
    assert alphas.shape == (*out.shape[:-1], 1)
    assert grads[2].shape == colors.shape


@pytest.mark.parametrize("fault", [None, *FAULTS], ids=lambda fault: fault.name if fault else "healthy")
def test_the_gradient_of_the_colours_is_the_adjoint_of_the_picture(fault):
    means2d, conics, colors, opacities, lists = operands(3, N=129, width=40, height=30)
    result = adjoint_probe(
        lambda c: rasterize_to_pixels(means2d, conics, planted(c[0], fault)[None], opacities, *lists)[0], colors
    )
    assert result.ok is (fault is None)
    assert fault or result.miss_probability(1e-3) < 1e-6


def test_masked_tiles_show_the_background_and_get_no_gradient():
    means2d, conics, colors, opacities, lists = operands(5, N=200, width=40, height=20)
    masks = torch.ones(lists[3].shape, dtype=torch.bool)
    masks[..., 0, 1] = False
    background = torch.tensor([[0.3, -0.2, 0.7]])
    leaves = [x.clone().requires_grad_() for x in (means2d, conics, colors, opacities)]
    out, alphas = rasterize_to_pixels(*leaves, *lists, background, masks)
    assert torch.equal(out[0, :16, 16:32], background.expand(16, 16, 3))
    assert (alphas[0, :16, 16:32] == 0).all()
    whole, _ = rasterize_to_pixels(means2d, conics, colors, opacities, *lists, background)
    assert torch.equal(out[0, :, :16], whole[0, :, :16])
    assert torch.equal(out[0, 16:], whole[0, 16:])
    grads = torch.autograd.grad(out[0, :16, 16:32].sum(), leaves)
    assert all((g == 0).all() for g in grads)
    reference = rasterize_to_pixels(
        *(x.double() for x in (means2d, conics, colors, opacities)), *lists, background.double(), masks
    )
    torch.testing.assert_close(out.double(), reference[0], rtol=1e-3, atol=1e-4)


def test_absgrad_sums_absolute_values_over_pixels():
    means2d, conics, colors, opacities, lists = operands(6, N=40, width=9, height=7)
    _, _, grads, leaf = gradients(means2d, conics, colors, opacities, lists, absgrad=True)
    assert (leaf.absgrad >= grads[0].abs() * (1 - 1e-5)).all()
    assert (leaf.absgrad.sum() > 1.05 * grads[0].abs().sum()).all()
    # One pixel at a time there is nothing to cancel: the sum over pixels of |gradient| is the definition.
    total = torch.zeros_like(means2d, dtype=torch.float64)
    out, alphas = rasterize_to_pixels(
        x := leaf.detach().double().requires_grad_(), *(t.double() for t in (conics, colors, opacities)), *lists
    )
    g = torch.Generator().manual_seed(9)
    upstream = [torch.randn(t.shape, generator=g).double() for t in (out, alphas)]
    weighted = (out * upstream[0]).sum(-1) + (alphas * upstream[1]).sum(-1)
    for pixel in weighted.flatten():
        total += torch.autograd.grad(pixel, x, retain_graph=True)[0].abs()
    torch.testing.assert_close(leaf.absgrad.double(), total, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_the_operators_pass_opcheck(background, shared):
    """Operands of two cameras, or shared by them."""
    scene = make_scene(7, N=20, C=2)
    _, _, meta = rasterization(**scene.tensors, width=24, height=17)
    g = torch.Generator().manual_seed(7)
    colors, opacities = torch.randn(1 if shared else 2, 20, 3, generator=g), meta["opacities"][: 1 if shared else 2]
    backgrounds = torch.randn(2, 3, generator=g) if background else None
    operands = (meta["means2d"], meta["conics"], colors, opacities, backgrounds)
    leaves = [None if x is None else x.detach().clone().requires_grad_() for x in operands]
    bounds = list_bounds(meta["isect_offsets"], meta["flatten_ids"])
    args = (*leaves, None, 24, 17, meta["tile_size"], bounds, meta["flatten_ids"], None, False, False, "cpu")
    torch.library.opcheck(torch.ops.lanewise.rasterize.default, args)


def test_the_lists_operator_passes_opcheck():
    means2d, conics, _, opacities, _ = operands(7, N=20)
    depths, radii = torch.rand(1, 20), torch.full((1, 20, 2), 5, dtype=torch.int32)
    torch.library.opcheck(
        torch.ops.lanewise.tile_lists.default, (means2d, radii, depths, conics, opacities, 16, 24, 17, "cpu")
    )


def test_a_backward_through_only_one_output_and_twice():
    means2d, conics, colors, opacities, lists = operands(8)
    leaf = opacities.clone().requires_grad_()
    out, alphas = rasterize_to_pixels(means2d, conics, colors, leaf, *lists)
    first = torch.autograd.grad(alphas.sum(), leaf, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(alphas.sum(), leaf, retain_graph=True)[0])
    assert first.abs().sum() > 0
    assert torch.autograd.grad(out.sum(), leaf)[0].abs().sum() > 0


def test_strided_and_expanded_gradients():
    means2d, conics, colors, opacities, lists = operands(9)
    leaf = colors.clone().requires_grad_()
    out, _ = rasterize_to_pixels(means2d, conics, leaf, opacities, *lists)
    dense = torch.randn(*out.shape[:-1], 6)[..., ::2]
    want = torch.autograd.grad(out, leaf, dense.contiguous(), retain_graph=True)[0]
    assert torch.equal(torch.autograd.grad(out, leaf, dense, retain_graph=True)[0], want)
    want = torch.autograd.grad(out, leaf, torch.ones_like(out), retain_graph=True)[0]
    assert torch.equal(torch.autograd.grad(out.sum(), leaf)[0], want)


def test_every_output_is_written(monkeypatch):
    """`torch.empty` hands out NaN: what a kernel does not write shows."""
    args = operands(10, N=3, width=33, height=17)
    new_empty = torch.Tensor.new_empty

    def poisoned(self, *shape, **kwargs):
        out = new_empty(self, *shape, **kwargs)
        return out.fill_(float("nan")) if out.is_floating_point() else out.fill_(-77)

    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned)
    out, alphas, grads, _ = gradients(*args)
    assert all(x.isfinite().all() for x in (out, alphas, *grads))


def test_errors_come_before_any_work():
    means2d, conics, colors, opacities, lists = operands(11)
    with pytest.raises(
        InputError, match=r"colors: got torch.float64 on cpu, expected torch.float32 on cpu, as the other tensors"
    ):
        rasterize_to_pixels(means2d, conics, colors.double(), opacities, *lists)
    with pytest.raises(
        InputError, match=r"isect_offsets: got shape .* use the tile_size, width and height that the lists"
    ):
        rasterize_to_pixels(means2d, conics, colors, opacities, *lists[:2], 8, *lists[3:])
    with pytest.raises(InputError, match=r"flatten_ids: got torch.int64"):
        rasterize_to_pixels(means2d, conics, colors, opacities, *lists[:4], lists[4].long())
    with pytest.raises(InputError, match="absgrad: got True with the reference"):
        rasterize_to_pixels(means2d, conics, colors, opacities, *lists, absgrad=True, backend="reference")
    with pytest.raises(InputError, match="backend: got 'cuda', expected one of 'auto'"):
        rasterize_to_pixels(means2d, conics, colors, opacities, *lists, backend="cuda")  # type: ignore[arg-type]


def test_lists_that_point_outside_are_refused():
    means2d, conics, colors, opacities, lists = operands(12)
    bad = lists[4].clone()
    bad[0] = 10**6
    with pytest.raises(InputError, match=r"flatten_ids: got entries up to 1000000, expected entries in 0\.\.64"):
        rasterize_to_pixels(means2d, conics, colors, opacities, *lists[:4], bad)
    offsets = lists[3].clone()
    offsets[..., -1, -1] = 10**6
    with pytest.raises(InputError, match="isect_offsets: got"):
        rasterize_to_pixels(means2d, conics, colors, opacities, *lists[:3], offsets, lists[4])


def test_the_lists_of_one_image_do_not_reach_another():
    scene = make_scene(13, N=50, C=2)
    _, _, meta = rasterization(**scene.tensors, width=24, height=17)
    again = bin_gaussians(
        *(meta[k][1] for k in ("means2d", "radii", "depths", "conics", "opacities")), tile_size=16, width=24, height=17
    )
    start = meta["isect_offsets"][1, 0, 0]
    assert torch.equal(meta["flatten_ids"][start:] - 50, again.flatten_ids)


def test_a_fault_is_found_by_its_name():
    assert find_fault("odd-waves").code == "LW103"
    with pytest.raises(InputError, match="fault: got 'none', expected one of zero, nan"):
        find_fault("none")


def test_the_last_list_ends_before_what_a_capacity_leaves_unwritten():
    offsets, ids = torch.tensor([[[0, 2, 2]]], dtype=torch.int32), torch.tensor([4, 1, 3, -1, -1], dtype=torch.int32)
    assert list_bounds(offsets, ids).tolist() == [0, 2, 2, 3]
    assert list_bounds(offsets, ids[:3]).tolist() == [0, 2, 2, 3]
    assert list_bounds(offsets, ids).dtype == torch.int32
