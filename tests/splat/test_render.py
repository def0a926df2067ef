import pytest
import torch
from splat_scenes import make_scene

from lanewise import InputError, UnsupportedError
from lanewise.prove.splat_gate import kernel_run, random_upstream
from lanewise.splat import rasterization
from lanewise.splat.render import camera_centres

GSPLAT_META = """
batch_ids camera_ids gaussian_ids radii means2d depths conics opacities tile_width tile_height tiles_per_gauss isect_ids
flatten_ids isect_offsets width height tile_size n_batches n_cameras
"""


def render(scene, **options):
    return rasterization(**scene.tensors, width=scene.width, height=scene.height, **{**scene.options, **options})


@pytest.mark.parametrize("batch", [(), (1,), (3,), (2, 2)])
@pytest.mark.parametrize("sh_degree", [None, 2])
def test_shapes_and_meta(batch, sh_degree):
    scene = make_scene(0, N=33, batch=batch, C=2, sh_degree=sh_degree, background=True)
    colors, alphas, meta = render(scene)
    assert colors.shape == (*batch, 2, 17, 24, 3)
    assert alphas.shape == (*batch, 2, 17, 24, 1)
    assert all(key in meta for key in GSPLAT_META.split())
    assert meta.get("isect_ids") is meta["isect_ids"]
    assert meta.get("no such key") is None
    assert set(meta) == set(GSPLAT_META.split())
    with pytest.raises(KeyError):
        meta["no such key"]
    shapes = {
        "radii": (33, 2),
        "means2d": (33, 2),
        "depths": (33,),
        "conics": (33, 3),
        "opacities": (33,),
        "tiles_per_gauss": (33,),
    }
    assert {k: tuple(meta[k].shape) for k in shapes} == {k: (*batch, 2, *v) for k, v in shapes.items()}
    assert meta["isect_offsets"].shape == (*batch, 2, 2, 2)
    assert meta["tiles_per_gauss"].sum() == meta["flatten_ids"].numel() == meta["isect_ids"].numel()
    assert (meta["n_batches"], meta["n_cameras"]) == (torch.Size(batch).numel(), 2)


def test_every_image_of_a_batch_is_the_image_rendered_alone():
    scene = make_scene(1, N=65, batch=(2, 2), C=3, sh_degree=3, background=True)
    colors, alphas, _ = render(scene)
    for index in [(0, 0, 0), (1, 0, 2), (1, 1, 1)]:
        alone = {k: v[index[:2]] for k, v in scene.tensors.items()}
        for name in ("viewmats", "Ks", "backgrounds"):
            alone[name] = alone[name][index[2] :][:1]
        one, one_alpha, _ = rasterization(**alone, width=24, height=17, sh_degree=3)
        assert torch.equal(one[0], colors[index])
        assert torch.equal(one_alpha[0], alphas[index])


def test_gradients_of_a_batch_are_not_merged():
    """One camera, several batches, N no multiple of a wave: reductions keyed without the batch would mix their view
    matrices."""
    scene = make_scene(2, N=45, batch=(3,), C=1)
    upstream = random_upstream(scene)
    _, grads, _ = kernel_run(scene, upstream)
    for b in range(3):
        alone = make_scene(2, N=45, batch=(3,), C=1)
        alone.tensors = {k: v[b] for k, v in alone.tensors.items()}
        _, single, _ = kernel_run(alone, (upstream[0][b], upstream[1][b]))
        for name in single:
            torch.testing.assert_close(
                grads[name][b], single[name], rtol=1e-5, atol=1e-6 * grads[name].abs().max().item()
            )


def test_colours_per_camera():
    scene = make_scene(3, N=20, C=2)
    each = scene.tensors["colors"].expand(2, 20, 3) * torch.tensor([1.0, 2.0])[:, None, None]
    one, _, _ = render(scene)
    scene.tensors["colors"] = each
    two, _, _ = render(scene)
    assert torch.equal(one[0], two[0])
    torch.testing.assert_close(two[1], 2 * one[1])


def test_render_modes():
    scene = make_scene(4, N=65, background=True)
    rgb, alphas, meta = render(scene)
    depth, _, _ = render(scene, render_mode="D")
    expected, _, _ = render(scene, render_mode="ED")
    both, _, _ = render(scene, render_mode="RGB+D")
    both_expected, _, _ = render(scene, render_mode="RGB+ED")
    assert depth.shape[-1] == expected.shape[-1] == 1
    assert torch.equal(both, torch.cat([rgb, depth], -1))
    assert torch.equal(both_expected, torch.cat([rgb, expected], -1))
    torch.testing.assert_close(expected, depth / alphas.clamp(min=1e-10))
    opaque = alphas > 0.9
    assert opaque.any()
    assert (expected[opaque] > meta["depths"][meta["depths"] > 0].min()).all()


def test_antialiasing_dims_small_gaussians_only():
    scene = make_scene(5, N=33, shapes="round")
    scene.tensors["scales"] *= 0.02
    classic, antialiased = render(scene)[2]["opacities"], render(scene, rasterize_mode="antialiased")[2]["opacities"]
    assert (antialiased < 0.2 * classic).all()
    scene.tensors["scales"] *= 1000
    meta = render(scene, rasterize_mode="antialiased")[2]
    visible = (meta["radii"] > 0).all(-1)
    assert visible.any()
    assert (meta["opacities"] > 0.9 * scene.tensors["opacities"])[visible].all()


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("case", ["none", "behind", "transparent", "no batch"])
def test_nothing_to_see_is_the_background_with_gradients(case, backend):
    batch = (0,) if case == "no batch" else ()
    scene = make_scene(6, N=0 if case == "none" else 9, batch=batch, background=True, sh_degree=1)
    if case == "behind":
        scene.tensors["means"] = scene.tensors["means"] - torch.tensor([0.0, 0, 50])
    if case == "transparent":
        scene.tensors["opacities"] = torch.zeros(9)
    leaves = scene.leaves()
    colors, alphas, meta = rasterization(**leaves, width=24, height=17, sh_degree=1, backend=backend)
    assert torch.equal(colors, leaves["backgrounds"][..., None, None, :].expand_as(colors))
    assert (alphas == 0).all()
    assert meta["flatten_ids"].numel() == 0
    (colors.sum() + alphas.sum()).backward()
    for name, leaf in leaves.items():
        grad = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        assert (grad == (17 * 24 if name == "backgrounds" else 0)).all(), name


def test_means2d_keeps_its_gradient_for_the_densification():
    scene = make_scene(7, N=65)
    leaves = scene.leaves()
    colors, _, meta = rasterization(**leaves, width=24, height=17, absgrad=True)
    meta["means2d"].retain_grad()
    colors.square().sum().backward()
    assert meta["means2d"].grad.shape == meta["means2d"].absgrad.shape == (1, 65, 2)
    visible = meta["tiles_per_gauss"] > 0
    assert (meta["means2d"].grad[~visible] == 0).all()
    assert (meta["means2d"].absgrad >= meta["means2d"].grad.abs() - 1e-3).all()


def test_double_precision_takes_the_reference():
    scene = make_scene(8, N=33)
    double = make_scene(8, N=33).to(torch.float64)
    a, b = render(scene)[0], render(double)[0]
    assert b.dtype == torch.float64
    torch.testing.assert_close(a.double(), b, rtol=1e-3, atol=2e-3)


def test_covariances_in_place_of_quats_and_scales():
    from lanewise.splat.projection.reference import rotation_matrices

    scene = make_scene(9, N=33, shapes="round")
    M = rotation_matrices(scene.tensors["quats"]) * scene.tensors["scales"][:, None, :]
    covars = (M @ M.mT).requires_grad_()
    colors, _, _ = rasterization(**{**scene.tensors, "quats": None, "scales": None}, width=24, height=17, covars=covars)
    torch.testing.assert_close(colors, render(scene)[0], rtol=1e-4, atol=1e-5)
    colors.square().sum().backward()
    assert covars.grad.triu().abs().sum() > 0
    assert (covars.grad.tril(-1) == 0).all()


@pytest.mark.filterwarnings("default")  # the compiler warns about its own ways
def test_it_runs_under_torch_compile():
    scene = make_scene(10, N=33, sh_degree=1)
    leaves = scene.leaves()

    def loss(**tensors):
        colors, alphas, _ = rasterization(**tensors, width=24, height=17, sh_degree=1)
        return colors.square().sum() + alphas.sum()

    want = torch.autograd.grad(loss(**leaves), list(leaves.values()))
    got = torch.autograd.grad(torch.compile(loss, backend="aot_eager")(**leaves), list(leaves.values()))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * b.abs().max().item())


LATER = {
    "packed": True,
    "sparse_grad": True,
    "distributed": True,
    "camera_model": "fisheye",
    "with_ut": True,
    "with_eval3d": True,
    "radial_coeffs": torch.zeros(1, 6),
    "rolling_shutter": "ROLLING_TOP_TO_BOTTOM",
    "viewmats_rs": torch.eye(4)[None],
}


@pytest.mark.parametrize("option", LATER)
def test_what_comes_later_is_refused_by_name(option):
    with pytest.raises(UnsupportedError, match=f"{option}=.* is not supported: .*"):
        render(make_scene(0), **{option: LATER[option]})


def test_options_without_effect_are_accepted():
    scene = make_scene(11)
    assert torch.equal(render(scene, segmented=True, channel_chunk=1)[0], render(scene)[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"means": torch.zeros(65, 2)}, r"means: got shape \[65, 2\], expected \[65, 3\]"),
        (
            {"means": torch.zeros(65, 3, dtype=torch.float16)},
            r"means: got torch.float16, expected torch.float32 or torch.float64",
        ),
        ({"quats": None}, r"quats: got NoneType, expected a tensor \[65, 4\]"),
        ({"scales": torch.zeros(64, 3)}, r"scales: got shape \[64, 3\], expected \[65, 3\]"),
        ({"opacities": torch.zeros(65, 1)}, r"opacities: got shape \[65, 1\], expected \[65\]"),
        ({"viewmats": torch.eye(4)}, r"viewmats: got shape \[4, 4\], expected \[C, 4, 4\]"),
        (
            {"Ks": torch.eye(3, dtype=torch.float64)[None]},
            r"Ks: got torch.float64 on cpu, expected torch.float32 on cpu",
        ),
        ({"colors": torch.zeros(3, 64, 3)}, r"colors: got shape \[3, 64, 3\], expected \[1, 65, D\]"),
        ({"backgrounds": torch.zeros(3)}, r"backgrounds: got shape \[3\], expected \[1, 3\]"),
        ({"near_plane": float("nan")}, r"near_plane: got nan, expected a finite number, at least 0"),
        ({"near_plane": 10, "far_plane": 1}, r"far_plane: got 1, expected a number above near_plane=10"),
        ({"eps2d": -1}, r"eps2d: got -1, expected a finite number, at least 0"),
        ({"sh_degree": 7}, r"sh_degree: got 7, expected None or a whole number in 0\.\.4"),
        ({"tile_masks": torch.ones(1, 2, 2, dtype=torch.bool)}, r"tile_masks: got masks without tile_size"),
        ({"width": 0}, r"width: got 0, expected a whole number in 1"),
        ({"height": 4.5}, r"height: got 4.5, expected a whole number in 1"),
        ({"render_mode": "depth"}, r"render_mode: got 'depth', expected one of RGB, D, ED, RGB\+D, RGB\+ED"),
        ({"rasterize_mode": "smooth"}, r"rasterize_mode: got 'smooth', expected 'classic' or 'antialiased'"),
        ({"sh_degree": 3}, r"colors: got shape \[65, 3\]"),
        ({"backend": "triton"}, r"backend: got 'triton' with torch.float32 on cpu, expected float32 tensors on a GPU"),
        ({"camera_model": "pinhle"}, r"camera_model: got 'pinhle', expected one of 'pinhole'"),
    ],
)
def test_errors_name_the_argument_what_came_and_what_was_expected(change, message):
    scene = make_scene(0)
    arguments = {**scene.tensors, "width": 24, "height": 17, **change}
    with pytest.raises((InputError, UnsupportedError), match=message):
        rasterization(**arguments)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_torchs_default_dtype_changes_nothing(dtype):
    scene = make_scene(12, N=65, C=2, sh_degree=2, background=True)
    upstream = random_upstream(scene)
    want = kernel_run(scene, upstream)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        got = kernel_run(scene, upstream)
    finally:
        torch.set_default_dtype(before)
    assert all(torch.equal(a, b) for a, b in zip(got[0], want[0], strict=True))
    assert all(torch.equal(got[1][k], want[1][k]) for k in want[1])


def test_cameras_stand_where_they_see_the_origin_also_when_not_quite_rigid():
    viewmats = make_scene(1, N=1, batch=(2,), C=3).tensors["viewmats"].double()
    viewmats[..., :3, :3] += 0.1 * torch.randn(2, 3, 3, 3, generator=torch.Generator().manual_seed(0)).double()
    torch.testing.assert_close(camera_centres(viewmats), torch.linalg.inv(viewmats)[..., :3, 3])
    assert torch.autograd.gradcheck(camera_centres, (viewmats[:1].requires_grad_(),))
