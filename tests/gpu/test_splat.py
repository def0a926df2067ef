"""The Triton kernels on a GPU: the gate for every gradient, sizes around every boundary, determinism."""

import pytest
import torch
from splat_scenes import COUNTS, DIFFERENTIABLE, make_scene

from lanewise.audit.faults import FAULTS
from lanewise.audit.gate import GateError, gate, relative_error, require
from lanewise.prove.splat_gate import (
    Kernels,
    gate_project,
    gate_rasterization,
    gate_rasterize,
    kernel_run,
    random_upstream,
    true_rasterization,
)
from lanewise.splat import rasterization, rasterize_to_pixels

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")]

ATOMIC, ORDERED = Kernels("triton", "cuda"), Kernels("triton", "cuda", deterministic=True)

NAMED = {
    "plain": {},
    "needles near the camera": {"shapes": "needles", "near": True, "N": 97},
    "discs, SH 3": {"shapes": "discs", "sh_degree": 3, "N": 97},
    "SH 4": {"sh_degree": 4, "N": 33, "C": 2},
    "three batches of one camera": {"batch": (3,), "C": 1, "N": 65, "sh_degree": 3},
    "two batches of two cameras": {"batch": (2,), "C": 2, "N": 33, "background": True},
    "antialiased over a background": {"rasterize_mode": "antialiased", "background": True},
    "one pixel": {"width": 1, "height": 1},
    "crowded": {"N": 700, "width": 33, "height": 31},
    "seventeen channels": {"channels": 17},
}


@pytest.mark.parametrize("kernels", [ATOMIC, ORDERED], ids=["atomic", "ordered"])
@pytest.mark.parametrize("name", NAMED)
def test_rasterization_passes_the_gate(name, kernels):
    scene = make_scene(5, **NAMED[name])
    truth = true_rasterization(scene, kernels)
    require(*gate_rasterization(scene, truth, kernels=kernels))
    require(*gate_rasterize(scene, kernels=kernels))
    assert truth.excess <= 0


@pytest.mark.parametrize("N", COUNTS)
@pytest.mark.parametrize("size", [(1, 7), (8, 9), (15, 16), (31, 33), (64, 65)])
def test_sizes_around_every_boundary(N, size):
    scene = make_scene(N, N=N, width=size[0], height=size[1], batch=(2,), C=1, near=True)
    require(*gate_project(scene, ATOMIC), *gate_rasterize(scene, kernels=ATOMIC))


@pytest.mark.parametrize("tile_size", [4, 7, 8, 12, 16, 20, 32, 64])
def test_the_picture_does_not_depend_on_the_tile_size(tile_size):
    scene = make_scene(4, N=900, width=150, height=95, near=True)
    tensors = {k: v.cuda() for k, v in scene.tensors.items()}
    a, b = (rasterization(**tensors, width=150, height=95, tile_size=size)[:2] for size in (8, tile_size))
    torch.testing.assert_close(a, b, rtol=2e-6, atol=2e-6)
    sized = make_scene(6, N=97, width=40, height=33, tile_size=tile_size)
    require(*gate_rasterization(sized, true_rasterization(sized, ATOMIC), kernels=ATOMIC))


def test_deterministic_gives_the_same_bits():
    scene = make_scene(8, N=5000, width=200, height=150, sh_degree=3)
    upstream = random_upstream(scene)
    runs = [kernel_run(scene, upstream, kernels=ORDERED) for _ in range(3)]
    for _, grads, _ in runs[1:]:
        assert all(torch.equal(grads[k], runs[0][1][k]) for k in grads)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_caught(fault):
    scene = make_scene(7, N=65, batch=(2,), C=2, sh_degree=3, background=True, rasterize_mode="antialiased")
    truth = true_rasterization(scene, ATOMIC)
    require(*gate_rasterization(scene, truth, kernels=ATOMIC))
    for gradient in DIFFERENTIABLE:
        with pytest.raises(GateError, match=f"{gradient}: relative error"):
            require(*gate_rasterization(scene, truth, (gradient, fault), ATOMIC))


@pytest.mark.parametrize("name", ["means", "quats", "scales", "opacities"])
@pytest.mark.parametrize("value", [0.0, 1e30, float("nan"), float("inf")])
def test_one_hostile_gaussian_poisons_nobody(name, value):
    scene = make_scene(9, N=97, sh_degree=1)
    scene.tensors[name][5] = value
    (colors, alphas), grads, _ = kernel_run(scene, random_upstream(scene), kernels=ATOMIC)
    others = [n for n in range(97) if n != 5]
    assert colors.isfinite().all()
    assert alphas.isfinite().all()
    for key, grad in grads.items():
        assert (grad if key in ("viewmats", "Ks") else grad[others]).isfinite().all(), key


@pytest.mark.parametrize("case", ["none", "behind", "transparent"])
def test_nothing_to_see_is_the_background_with_gradients(case):
    scene = make_scene(6, N=0 if case == "none" else 9, background=True, sh_degree=1)
    if case == "behind":
        scene.tensors["means"] = scene.tensors["means"] - torch.tensor([0.0, 0, 50])
    if case == "transparent":
        scene.tensors["opacities"] = torch.zeros(9)
    (colors, alphas), grads, _ = kernel_run(scene, random_upstream(scene), kernels=ATOMIC)
    assert torch.equal(colors, scene.tensors["backgrounds"][..., None, None, :].expand_as(colors))
    assert (alphas == 0).all()
    assert all((grad == 0).all() for key, grad in grads.items() if key != "backgrounds")


def test_absgrad_and_masks():
    scene = make_scene(10, N=97)
    masks = torch.rand(1, 3, 3, generator=torch.Generator().manual_seed(0)) > 0.4
    results = []
    for device, backend in (("cpu", "cpu"), ("cuda", "triton")):
        leaves = {k: v.to(device).requires_grad_() for k, v in scene.tensors.items()}
        colors, alphas, meta = rasterization(
            **leaves, width=24, height=17, tile_size=8, absgrad=True, tile_masks=masks.to(device), backend=backend
        )
        meta["means2d"].retain_grad()
        (colors.square().sum() + alphas.sum()).backward()
        results.append([x.detach().cpu() for x in (colors, alphas, meta["means2d"].grad, meta["means2d"].absgrad)])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * a.abs().max().item())


@pytest.mark.parametrize("channels", [1, 4, 5, 17])
def test_absgrad_is_that_of_the_cpu_with_any_number_of_channels(channels):
    scene = make_scene(11, channels=channels)
    results = []
    for device in ("cpu", "cuda"):
        tensors = {k: v.detach().to(device).requires_grad_() for k, v in scene.tensors.items()}
        colors, _, meta = rasterization(**tensors, width=24, height=17, absgrad=True)
        weights = torch.linspace(-1, 1, colors.numel()).view(colors.shape).to(device)
        (colors * weights).sum().backward()
        results.append(meta["means2d"].absgrad.cpu())
    assert relative_error(results[1], results[0]) < 1e-5


def test_hundreds_of_faint_gaussians_a_pixel():
    """The backward pass divides its way back through all of them: an error in one direction would add up."""
    N, size, g = 600, 16, torch.Generator().manual_seed(20)
    means2d = size * torch.rand(1, N, 2, generator=g)
    a, c = (0.3 + 0.7 * torch.rand(2, N, generator=g)) * 1e-4
    conics = torch.stack([a, 0.5 * (a * c).sqrt(), c], -1)[None]
    operands = (means2d, conics, torch.randn(1, N, 3, generator=g), 0.0048 + 0.2 * torch.rand(1, N, generator=g) ** 2)
    lists = (size, size, size, torch.zeros(1, 1, 1, dtype=torch.int32), torch.arange(N, dtype=torch.int32))
    v = torch.randn(1, size, size, 3, generator=g)

    def run(backend: str, device: str, dtype: torch.dtype) -> list[torch.Tensor]:
        leaves = [x.to(device, dtype).requires_grad_() for x in operands]
        where = [x.to(device) if isinstance(x, torch.Tensor) else x for x in lists]
        out, _ = rasterize_to_pixels(*leaves, *where, backend=backend)
        return [x.cpu() for x in torch.autograd.grad(out, leaves, v.to(device, dtype))]

    truth, single = (run("reference", "cpu", dtype) for dtype in (torch.float64, torch.float32))
    names = ("means2d", "conics", "colors", "opacities")
    require(*(gate(*values) for values in zip(names, run("triton", "cuda", torch.float32), truth, single, strict=True)))
