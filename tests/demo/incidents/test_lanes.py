"""The planted causes lose what the report's arithmetic says, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from lanewise.demo.incidents.lanes import CAUSES, broken_projection, broken_rasterization, second_halves
from lanewise.prove.scenes import Scene, make_scene
from lanewise.splat import project_gaussians

WAVE = 32
NAMES = [cause.name for cause in CAUSES]


def rendered(scene: Scene, cause: str | None) -> tuple[Tensor, dict[str, Tensor], Any]:
    leaves = scene.leaves()
    colors, alphas, _ = broken_rasterization(cause, **leaves, **scene.options, width=scene.width, height=scene.height)
    return colors, leaves, alphas


def gradients(scene: Scene, cause: str | None, keep: Tensor | None = None) -> dict[str, Tensor]:
    """Of a loss that weighs all pixels, or those of `keep` [H, W]."""
    colors, leaves, alphas = rendered(scene, cause)
    weights = torch.randn(colors.shape, generator=torch.Generator().manual_seed(1))
    weights = weights if keep is None else weights * keep[..., None]
    loss = (colors * weights).sum() + (alphas * weights[..., :1]).sum()
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


@pytest.mark.parametrize(("tile_size", "rows"), [(16, {2, 3, 6, 7, 10, 11, 14, 15}), (8, {4, 5, 6, 7})])
def test_the_second_half_of_64_lanes_is_whole_rows_of_a_tile(tile_size, rows):
    lost = second_halves(40, 2 * tile_size, tile_size)
    for y, row in enumerate(lost):
        assert bool(row.all()) == bool(row.any()) == (y % tile_size in rows)


@pytest.mark.parametrize("cause", NAMES)
def test_the_picture_has_the_healthy_bits(cause):
    scene = make_scene(3, C=2)
    assert torch.equal(rendered(scene, cause)[0], rendered(scene, None)[0])


@pytest.mark.parametrize("cause", NAMES)
def test_float64_is_right(cause):
    scene = make_scene(3).to(torch.float64)
    healthy = gradients(scene, None)
    assert all(torch.equal(gradient, healthy[name]) for name, gradient in gradients(scene, cause).items())


def test_tile_is_a_loss_that_does_not_see_half_of_the_pixels():
    scene = make_scene(5, C=2, width=33, height=41)
    blind = gradients(scene, None, keep=~second_halves(41, 33, 16))
    healthy = gradients(scene, None)
    for name, gradient in gradients(scene, "tile").items():
        assert torch.equal(gradient, blind[name])
        assert not torch.equal(gradient, healthy[name])


def test_block_64_leaves_no_seen_gaussian_finite():
    scene = make_scene(5)
    healthy, broken = gradients(scene, None), gradients(scene, "block-64")
    for name in ("means", "quats", "scales", "opacities", "colors", "viewmats"):
        assert healthy[name].isfinite().all()
        assert broken[name].isnan().any()


def test_lane_mask_loses_the_gaussians_of_odd_waves_and_keeps_what_goes_around_the_projection():
    scene = make_scene(7, N=100)
    healthy, broken = gradients(scene, None), gradients(scene, "lane-mask")
    odd = torch.arange(100) // WAVE % 2 == 1
    for name in ("means", "quats", "scales"):
        assert healthy[name][odd].any()
        assert not broken[name][odd].any()
        assert torch.equal(broken[name][~odd], healthy[name][~odd])
    for name in ("opacities", "colors"):
        assert torch.equal(broken[name], healthy[name])


def test_lane_mask_counts_threads_camera_by_camera():
    """The gradient of each camera is that of the Gaussians whose threads are in even waves."""
    scene = make_scene(9, N=45, C=3)
    t = scene.tensors
    threads = torch.arange(3 * 45).view(3, 45)

    def by_camera(project: Any, keep: Tensor) -> Tensor:
        viewmats = t["viewmats"].clone().requires_grad_()
        p = project(t["means"][None], None, t["quats"][None], t["scales"][None], viewmats[None], t["Ks"][None], 24, 17)
        loss = (
            (p.means2d[0] * keep[..., None]).sum() + (p.depths[0] * keep).sum() + (p.conics[0] * keep[..., None]).sum()
        )
        return torch.autograd.grad(loss, viewmats)[0]

    everything, even = torch.ones(3, 45), (threads // WAVE % 2 == 0).float()
    broken = by_camera(lambda *args: broken_projection("lane-mask", *args), everything)
    assert torch.equal(broken, by_camera(project_gaussians, even))
    assert not torch.equal(broken, by_camera(project_gaussians, everything))
    for other in ("tile", "block-64", None):  # theirs is another operator
        healthy = by_camera(lambda *args, other=other: broken_projection(other, *args), everything)
        assert torch.equal(healthy, by_camera(project_gaussians, everything))
