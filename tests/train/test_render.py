from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lanewise.errors import InputError
from lanewise.io.captures import View
from lanewise.io.scene import SH_C0, Gaussians
from lanewise.train import Renderer, TrainConfig, render_view, resolve_device

VIEW = View(
    name="a.png", path=Path("a.png"), viewmat=np.eye(4), K=np.array([[20.0, 0, 8], [0, 20.0, 6], [0, 0, 1]]),
    width=16, height=12, mask_path=None, split=None,
)  # fmt: skip


def one_gaussian(color: tuple[float, float, float] = (1.0, 0.5, 0.0)) -> Gaussians:
    """A nearly opaque ball on the optical axis."""
    return Gaussians(
        means=torch.tensor([[0.0, 0.0, 2.0]]),
        quats=torch.tensor([[1.0, 0.0, 0.0, 0.0]]),
        scales=torch.full((1, 3), 0.2).log(),
        opacities=torch.logit(torch.tensor([0.99])),
        sh0=((torch.tensor(color) - 0.5) / SH_C0).reshape(1, 1, 3),
        shN=torch.zeros(1, 3, 3),
    )


def test_stored_values_are_activated():
    picture = render_view(one_gaussian(), VIEW, background=(0.0, 0.0, 1.0))
    assert picture.shape == (12, 16, 3)
    assert not picture.requires_grad
    # The four pixels around the axis are (0.5, 0.5) from it; the variance there is (0.2 * 20 / 2)^2 + 0.3 pixels^2.
    alpha = 0.99 * np.exp(-0.25 / (2.0**2 + 0.3))
    expected = alpha * torch.tensor([1.0, 0.5, 0.0]) + (1 - alpha) * torch.tensor([0.0, 0.0, 1.0])
    torch.testing.assert_close(picture[6, 8], expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(picture[0, 0], torch.tensor([0.0, 0.0, 1.0]), atol=0.02, rtol=0)


def test_degree_limits_the_harmonics():
    gaussians = one_gaussian()
    gaussians.shN += 0.5
    flat = render_view(gaussians, VIEW, sh_degree=0)
    assert not torch.allclose(flat, render_view(gaussians, VIEW))
    torch.testing.assert_close(flat, render_view(one_gaussian(), VIEW))
    with pytest.raises(InputError, match=r"^sh_degree: got 2, expected at most 1"):
        render_view(gaussians, VIEW, sh_degree=2)


@pytest.mark.parametrize("degree", [0, 1])
def test_higher_coefficients_get_no_gradient_at_degree_0(degree: int):
    params = {name: tensor.requires_grad_() for name, tensor in one_gaussian().tensors().items()}
    colors, _, _ = Renderer()(
        params, torch.eye(4)[None], torch.as_tensor(VIEW.K).float()[None], 16, 12, sh_degree=degree
    )
    colors.square().sum().backward()
    assert (params["shN"].grad is not None) == (degree > 0)
    for name in ("means", "scales", "opacities", "sh0"):
        gradient = params[name].grad
        assert gradient is not None
        assert gradient.any(), name


def test_options_of_the_run_reach_the_renderer():
    assert Renderer.of(TrainConfig(antialiased=True, absgrad=True, backend="cpu")) == Renderer("cpu", True, True)


def test_no_gaussians_show_the_background():
    empty = Gaussians(
        torch.zeros(0, 3),
        torch.zeros(0, 4),
        torch.zeros(0, 3),
        torch.zeros(0),
        torch.zeros(0, 1, 3),
        torch.zeros(0, 3, 3),
    )
    picture = render_view(empty, VIEW, background=(0.2, 0.4, 0.6))
    torch.testing.assert_close(picture, torch.tensor([0.2, 0.4, 0.6]).expand(12, 16, 3))


def test_devices():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type in ("cpu", "cuda")
    for name in ("gpu", "cuda:99"):
        with pytest.raises(InputError, match=r"^device: got .* Fix: use auto or cpu"):
            resolve_device(name)
