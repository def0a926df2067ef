import pytest
import torch
from splat_scenes import make_scene

from lanewise.splat.projection.reference import Camera, project, rotation_matrices


def arguments(scene, **camera):
    t = scene.tensors
    batched = {k: v.reshape(-1, *v.shape[-n:]) for k, v, n in ((k, t[k], n) for k, n in
               (("means", 2), ("quats", 2), ("scales", 2), ("opacities", 1), ("viewmats", 3), ("Ks", 3)))}  # fmt: skip
    shape = (batched["quats"], batched["scales"])
    return [
        batched["means"],
        shape,
        batched["opacities"],
        batched["viewmats"],
        batched["Ks"],
        Camera(scene.width, scene.height, **camera),
    ]


@pytest.mark.parametrize("antialiased", [False, True])
@pytest.mark.parametrize("near", [False, True])
def test_gradcheck_in_slow_mode(near, antialiased):
    scene = make_scene(1, N=6, C=2, near=near, shapes="mixed").to(torch.float64)
    means, (quats, scales), opacities, viewmats, Ks, camera = arguments(scene, antialiased=antialiased)
    visible = (project(means, (quats, scales), opacities, viewmats, Ks, camera).radii > 0).all(-1)
    assert visible.any()

    def outputs(means, quats, scales, viewmats, Ks):
        return project(means, (quats, scales), opacities, viewmats, Ks, camera, visible=visible)[1:]

    inputs = [x.clone().requires_grad_() for x in (means, quats, scales, viewmats, Ks)]
    assert torch.autograd.gradcheck(outputs, inputs, fast_mode=False, eps=1e-6, atol=1e-6, rtol=1e-4)


def test_gradcheck_of_covariances():
    scene = make_scene(2, N=5).to(torch.float64)
    means, (quats, scales), _, viewmats, Ks, camera = arguments(scene)
    M = rotation_matrices(quats) * scales[..., None, :]
    covars = (M @ M.mT).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda c: project(means, c, None, viewmats, Ks, camera)[1:], (covars,), fast_mode=False, atol=1e-6, rtol=1e-4
    )


def test_covariances_and_their_factors_project_alike():
    scene = make_scene(3, N=65, C=2).to(torch.float64)
    means, (quats, scales), opacities, viewmats, Ks, camera = arguments(scene, antialiased=True)
    M = rotation_matrices(quats) * scales[..., None, :]
    a = project(means, (quats, scales), opacities, viewmats, Ks, camera)
    b = project(means, M @ M.mT, opacities, viewmats, Ks, camera)
    assert torch.equal(a.radii, b.radii)
    for x, y in zip(a[1:], b[1:], strict=True):
        torch.testing.assert_close(x, y, rtol=1e-8, atol=1e-10)


def test_the_conic_is_the_inverse_of_the_linearised_covariance():
    """Against the definition: J by automatic differentiation of the pinhole map at the mean."""
    scene = make_scene(4, N=12, shapes="round").to(torch.float64)
    means, (quats, scales), opacities, viewmats, Ks, camera = arguments(scene)
    got = project(means, (quats, scales), opacities, viewmats, Ks, camera)
    R, t, K = viewmats[0, 0, :3, :3], viewmats[0, 0, :3, 3], Ks[0, 0]

    def pinhole(x):
        c = K @ (R @ x + t)
        return c[:2] / c[2]

    visible = (got.radii[0, 0] > 0).all(-1).nonzero().flatten().tolist()
    assert len(visible) > 6
    checked = 0
    for n in visible:
        u = R @ means[0, n] + t
        if (u[:2] / u[2]).abs().max() > 0.35:  # outside the image the reference clamps the linearisation
            continue
        J = torch.autograd.functional.jacobian(pinhole, means[0, n])
        M = rotation_matrices(quats[0, n]) * scales[0, n]
        cov = J @ M @ M.mT @ J.mT + 0.3 * torch.eye(2)
        inverse = torch.linalg.inv(cov)
        torch.testing.assert_close(got.conics[0, 0, n], torch.stack([inverse[0, 0], inverse[0, 1], inverse[1, 1]]))
        torch.testing.assert_close(got.means2d[0, 0, n], pinhole(means[0, n]))
        checked += 1
    assert checked > 3


def test_clip_planes_and_radius_clip():
    scene = make_scene(5, N=128, near=True)
    args = arguments(scene)
    depth = (args[3][0, 0, :3, :3] @ args[0][0].T)[2] + args[3][0, 0, 2, 3]
    got = project(*args[:5], Camera(scene.width, scene.height, near_plane=3.5, far_plane=4.5))
    seen = (got.radii[0, 0] > 0).all(-1)
    assert seen.any()
    assert ((depth[seen] >= 3.5) & (depth[seen] <= 4.5)).all()
    clipped = project(*args[:5], Camera(scene.width, scene.height, radius_clip=6.0))
    large = project(*args).radii[0, 0].amax(-1) > 6
    assert torch.equal((clipped.radii[0, 0] > 0).all(-1), large)


@pytest.mark.parametrize(("opacity", "drawn"), [(0.0, False), (1 / 256, False), (0.5, True), (1.0, True)])
def test_extents_follow_the_opacity(opacity, drawn):
    scene = make_scene(6, N=3, shapes="round")
    scene.tensors["means"] = scene.tensors["means"] * 0.1
    args = arguments(scene)
    args[2] = torch.full_like(args[2], opacity)
    radii = project(*args).radii
    assert bool((radii > 0).all()) is drawn
    assert (radii <= project(*args[:2], None, *args[3:]).radii).all()


HOSTILE = {
    "zero quaternion": ("quats", 0.0),
    "tiny quaternion": ("quats", 1e-30),
    "huge quaternion": ("quats", 1e30),
    "zero scale": ("scales", 0.0),
    "huge scale": ("scales", 1e30),
    "NaN scale": ("scales", float("nan")),
    "NaN mean": ("means", float("nan")),
    "infinite mean": ("means", float("inf")),
    "NaN opacity": ("opacities", float("nan")),
    "NaN quaternion": ("quats", float("nan")),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_one_hostile_gaussian_poisons_nobody(case):
    name, value = HOSTILE[case]
    scene = make_scene(9, N=33)
    scene.tensors[name][5] = value
    args = arguments(scene)
    inputs = [x.clone().requires_grad_() for x in (args[0], *args[1], args[3], args[4])]
    out = project(inputs[0], (inputs[1], inputs[2]), args[2], inputs[3], inputs[4], args[5])
    assert all(x.isfinite().all() for x in out)
    others = [x for x in range(33) if x != 5]
    grads = torch.autograd.grad([x.sum() for x in out[1:4]], inputs)
    assert all(g.isfinite().all() for g in (grads[0][:, others], grads[1][:, others], grads[2][:, others], *grads[3:]))


def test_on_and_behind_the_camera_plane_nothing_is_drawn():
    scene = make_scene(10, N=4)
    scene.tensors["viewmats"] = torch.eye(4)[None]
    scene.tensors["means"] = torch.tensor([[0.0, 0, 0], [0, 0, -1], [0, 0, 0.005], [0, 0, 1]])
    assert (project(*arguments(scene)).radii > 0).all(-1).flatten().tolist() == [False, False, False, True]


def test_rotation_of_a_quaternion_of_any_length():
    q = torch.tensor([0.3, -0.2, 0.5, 0.7], dtype=torch.float64)
    R = rotation_matrices(q)
    torch.testing.assert_close(R @ R.mT, torch.eye(3, dtype=torch.float64))
    assert torch.linalg.det(R) > 0
    for factor in (1e-200, 3.0, 1e200):
        torch.testing.assert_close(rotation_matrices(q * factor), R)
    assert torch.equal(rotation_matrices(torch.zeros(4)), torch.eye(3))
