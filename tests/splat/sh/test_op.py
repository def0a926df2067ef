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
