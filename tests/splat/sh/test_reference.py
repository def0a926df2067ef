import numpy as np
import pytest
import torch
from scipy.special import lpmv

from lanewise.splat.sh.reference import sh_basis, spherical_harmonics


def sphere(n: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    """Points and weights of a quadrature that is exact for polynomials of the sphere up to degree 2 n - 1."""
    z, wz = np.polynomial.legendre.leggauss(n)
    phi = 2 * np.pi * np.arange(2 * n) / (2 * n)
    r = np.sqrt(1 - z**2)
    points = np.stack([np.outer(r, np.cos(phi)), np.outer(r, np.sin(phi)), np.outer(z, np.ones_like(phi))], -1)
    return torch.from_numpy(points.reshape(-1, 3)), torch.from_numpy(np.outer(wz, np.full(2 * n, np.pi / n)).ravel())


def test_the_basis_is_orthonormal():
    points, weights = sphere()
    basis = sh_basis(4, points)
    gram = torch.einsum("pi,pj,p->ij", basis, basis, weights)
    torch.testing.assert_close(gram, torch.eye(25, dtype=torch.float64), rtol=0, atol=1e-12)


def test_the_basis_is_that_of_associated_legendre_functions():
    """An independent formula: sqrt(2) K P_l^|m|(cos theta) cos or sin(|m| phi), with the Condon-Shortley phase of P."""
    g = torch.Generator().manual_seed(0)
    d = torch.nn.functional.normalize(torch.randn(50, 3, generator=g, dtype=torch.float64), dim=-1).numpy()
    phi, columns = np.arctan2(d[:, 1], d[:, 0]), []
    for l in range(5):
        for m in range(-l, l + 1):
            k = abs(m)
            K = np.sqrt((2 * l + 1) / (4 * np.pi) * np.prod([1.0 / i for i in range(l - k + 1, l + k + 1)]))
            angle = 1.0 if m == 0 else np.sqrt(2) * (np.cos(k * phi) if m > 0 else np.sin(k * phi))
            columns.append(K * angle * lpmv(k, l, d[:, 2]))
    np.testing.assert_allclose(sh_basis(4, torch.from_numpy(d)).numpy(), np.stack(columns, -1), atol=1e-12)


@pytest.mark.parametrize("degree", range(5))
def test_gradcheck_through_the_direction(degree):
    g = torch.Generator().manual_seed(degree)
    dirs = (torch.randn(5, 3, generator=g, dtype=torch.float64) * 3).requires_grad_()
    coeffs = torch.randn(5, 25, 3, generator=g, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda d, c: spherical_harmonics(degree, d, c), (dirs, coeffs), fast_mode=False)
    (v,) = torch.autograd.grad(spherical_harmonics(degree, dirs, coeffs).sum(), dirs, allow_unused=True)
    assert degree == 0 or v.abs().min() > 0


def test_length_does_not_matter_and_zero_is_no_direction():
    g = torch.Generator().manual_seed(1)
    d, c = torch.randn(7, 3, generator=g, dtype=torch.float64), torch.randn(7, 25, 2, generator=g, dtype=torch.float64)
    torch.testing.assert_close(spherical_harmonics(4, d * 1e-3, c), spherical_harmonics(4, d * 40, c))
    zero = torch.zeros(7, 3, dtype=torch.float64, requires_grad=True)
    out = spherical_harmonics(4, zero, c)
    torch.testing.assert_close(out, spherical_harmonics(0, d, c))
    out.sum().backward()
    assert zero.grad.isfinite().all()
