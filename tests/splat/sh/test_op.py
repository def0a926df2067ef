import pytest
import torch

from lanewise import InputError
from lanewise.splat import spherical_harmonics


def test_masked_colours_are_zero_and_get_no_gradient_not_even_a_nan():
    g = torch.Generator().manual_seed(0)
    dirs, coeffs = torch.randn(3, 5, 3, generator=g), torch.randn(5, 16, 3, generator=g)
    dirs[:, 2] = float("nan")
    masks = torch.ones(3, 5, dtype=torch.bool)
    masks[:, 2] = False
    dirs.requires_grad_()
    coeffs.requires_grad_()
    out = spherical_harmonics(3, dirs, coeffs, masks)
    assert (out[:, 2] == 0).all()
    out.square().sum().backward()
    assert coeffs.grad.isfinite().all()
    assert (coeffs.grad[2] == 0).all()
    assert (coeffs.grad[[0, 1, 3, 4]].abs().amax((1, 2)) > 0).all()
    assert dirs.grad[:, [0, 1, 3, 4]].isfinite().all()


@pytest.mark.parametrize(
    ("degree", "shape", "message"),
    [
        (5, (4, 36, 3), "degrees_to_use: got 5, expected a whole number in 0..4"),
        (3, (4, 9, 3), r"coeffs: got shape \[4, 9, 3\], expected \[..., K, D\] with K >= 16"),
    ],
)
def test_errors(degree, shape, message):
    with pytest.raises(InputError, match=message):
        spherical_harmonics(degree, torch.randn(4, 3), torch.randn(shape))


@pytest.mark.parametrize("leading", [(1, 1, 5), (2, 1, 5), (1, 3, 5), (2, 3, 5), (1, 5), (5,), (1, 1, 1), ()])
def test_leading_dimensions_broadcast(leading):
    g = torch.Generator().manual_seed(1)
    dirs, coeffs = torch.randn(2, 3, 5, 3, generator=g), torch.randn(*leading, 9, 3, generator=g).requires_grad_()
    got = spherical_harmonics(2, dirs, coeffs)
    want = spherical_harmonics(2, dirs, coeffs, backend="reference")
    torch.testing.assert_close(got, want)
    v = torch.randn(got.shape, generator=g)
    a, b = (torch.autograd.grad(x, coeffs, v)[0] for x in (got, want))
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_leading_dimensions_that_do_not_broadcast_and_no_cameras():
    with pytest.raises(InputError, match=r"coeffs: got shape \[4, 9, 3\], expected leading dimensions that broadcast"):
        spherical_harmonics(2, torch.randn(5, 3), torch.randn(4, 9, 3))
    assert spherical_harmonics(2, torch.randn(0, 6, 3), torch.randn(1, 6, 9, 3)).shape == (0, 6, 3)


def test_the_operator_passes_opcheck():
    g = torch.Generator().manual_seed(2)
    dirs, coeffs = (
        torch.randn(2, 5, 3, generator=g).requires_grad_(),
        torch.randn(1, 5, 9, 3, generator=g).requires_grad_(),
    )
    torch.library.opcheck(
        torch.ops.lanewise.spherical_harmonics.default, (dirs, coeffs, torch.ones(2, 5, dtype=torch.bool), 2, "cpu")
    )
