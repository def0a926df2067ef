import pytest
import torch
from splat_scenes import make_scene

from lanewise import InputError
from lanewise.splat import project_gaussians
from lanewise.splat.projection.reference import rotation_matrices


def arguments(scene):
    t = {k: v[None] for k, v in scene.tensors.items()}
    return t["means"], None, t["quats"], t["scales"], t["viewmats"], t["Ks"], scene.width, scene.height


def test_the_operator_passes_opcheck():
    means, _, quats, scales, viewmats, Ks, width, height = arguments(make_scene(0, N=9, C=2))
    leaves = [x.clone().requires_grad_() for x in (means, quats, scales, viewmats, Ks)]
    args = (*leaves[:3], None, torch.full((1, 9), 0.5), *leaves[3:], width, height, 0.01, 1e10, 0.0, 0.3, True, "cpu")
    # Not the test of AOT dispatch: its own sum over the outputs fails where the first one is integer.
    which = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.lanewise.project.default, args, test_utils=which)


def test_covariances_get_the_gradient_of_their_upper_triangle():
    means, _, quats, scales, viewmats, Ks, width, height = arguments(make_scene(1, N=40, C=2, shapes="round"))
    M = rotation_matrices(quats) * scales[..., None, :]
    grads = []
    for dtype, backend in ((torch.float32, "cpu"), (torch.float64, "reference")):
        covars = (M @ M.mT).to(dtype).requires_grad_()
        rest = [x.to(dtype) for x in (means, viewmats, Ks)]
        out = project_gaussians(rest[0], covars, None, None, *rest[1:], width, height, backend=backend)
        grads.append(torch.autograd.grad(out.conics.square().sum() + out.means2d.sum(), covars)[0])
    torch.testing.assert_close(grads[0].double(), grads[1], rtol=1e-4, atol=1e-4 * grads[1].abs().max().item())
    assert (grads[0].tril(-1) == 0).all()


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_what_fp32_cannot_hold_is_not_drawn(backend):
    means, _, quats, scales, viewmats, Ks, width, height = arguments(make_scene(2, N=5))
    scales = torch.full_like(scales, 1e-22)
    out = project_gaussians(means, None, quats, scales, viewmats, Ks, width, height, eps2d=0.0, backend=backend)
    assert (out.radii == 0).all()
    assert all(x.isfinite().all() for x in out)


def test_errors():
    means, _, quats, scales, viewmats, Ks, width, height = arguments(make_scene(3, N=5))
    with pytest.raises(InputError, match="quats, scales: got None, expected both, or covars"):
        project_gaussians(means, None, quats, None, viewmats, Ks, width, height)
    with pytest.raises(InputError, match=r"Ks: got shape \[1, 1, 3\], expected \[1, 1, 3, 3\]"):
        project_gaussians(means, None, quats, scales, viewmats, Ks[..., 0], width, height)
