from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.signal import correlate2d

from lanewise.train.photometric.reference import photometric_loss, ssim_map, window


def ssim_by_definition(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """SSIM of one channel [H, W] from the two-dimensional window, written down as in the paper."""
    offset = np.arange(-5, 6)
    g = np.exp(-(offset[:, None] ** 2 + offset[None] ** 2) / (2 * 1.5**2))
    g /= g.sum()

    def mean(image: np.ndarray) -> np.ndarray:
        return correlate2d(image, g, mode="valid")

    mx, my = mean(x), mean(y)
    vx, vy, vxy = mean(x * x) - mx**2, mean(y * y) - my**2, mean(x * y) - mx * my
    return ((2 * mx * my + 1e-4) * (2 * vxy + 9e-4)) / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4))


@pytest.fixture
def pictures() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return tuple(torch.rand(2, 13, 17, 3, generator=generator, dtype=torch.float64) for _ in range(2))  # type: ignore[return-value]


def test_map_is_that_of_the_definition(pictures: tuple[torch.Tensor, torch.Tensor]):
    got = ssim_map(*pictures)
    assert got.shape == (2, 3, 7, 3)
    for camera in range(2):
        for channel in range(3):
            x, y = (p[camera, ..., channel].numpy() for p in pictures)
            np.testing.assert_allclose(got[camera, ..., channel].numpy(), ssim_by_definition(x, y), rtol=1e-10)


def test_window():
    assert window().sum().item() == pytest.approx(1, abs=1e-15)
    assert torch.equal(window(), window().flip(0))


def test_loss_of_the_definition(pictures: tuple[torch.Tensor, torch.Tensor]):
    render, target = pictures
    expected = 0.7 * (render - target).abs().mean() + 0.3 * (1 - ssim_map(render, target).mean())
    assert photometric_loss(render, target, None, 0.3).item() == pytest.approx(expected.item(), rel=1e-12)
    assert photometric_loss(render, render, None, 0.3).item() == pytest.approx(0, abs=1e-12)


def test_mask_of_all_pixels_changes_nothing(pictures: tuple[torch.Tensor, torch.Tensor]):
    everything = torch.ones(2, 13, 17, dtype=torch.bool)
    masked = photometric_loss(*pictures, everything, 0.2)
    assert masked.item() == pytest.approx(photometric_loss(*pictures, None, 0.2).item(), rel=1e-12)


def test_masked_pixels_do_not_count(pictures: tuple[torch.Tensor, torch.Tensor]):
    render, target = pictures
    mask = torch.rand(2, 13, 17, generator=torch.Generator().manual_seed(1)) > 0.4
    other = torch.where(mask[..., None], render, 7.0)
    loss = photometric_loss(render, target, mask, 0.2)
    assert photometric_loss(other, target, mask, 0.2).item() == loss.item()
    l1 = photometric_loss(render, target, mask, 0.0)
    assert l1.item() == pytest.approx((render - target).abs()[mask].mean().item(), rel=1e-12)


def test_nothing_counts(pictures: tuple[torch.Tensor, torch.Tensor]):
    render = pictures[0].requires_grad_()
    loss = photometric_loss(render, pictures[1], torch.zeros(2, 13, 17, dtype=torch.bool), 0.2)
    loss.backward()
    assert loss.item() == 0
    assert render.grad is not None
    assert not render.grad.any()


@pytest.mark.parametrize("masked", [False, True])
def test_gradient(masked: bool):
    generator = torch.Generator().manual_seed(5)
    render = torch.rand(1, 12, 11, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.rand(1, 12, 11, 2, generator=generator, dtype=torch.float64)
    mask = torch.rand(1, 12, 11, generator=generator) > 0.3 if masked else None
    assert torch.autograd.gradcheck(lambda x: photometric_loss(x, target, mask, 0.4), render)
