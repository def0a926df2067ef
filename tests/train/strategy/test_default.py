"""The default strategy against gsplat 1.5.3's semantics, one rule a test."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lanewise.io.scene import Gaussians
from lanewise.train import TrainConfig
from lanewise.train.optimizer import GaussianOptimizer
from lanewise.train.strategy import Changes, DefaultStrategy

WIDTH, HEIGHT, SCENE_SCALE = 40, 20, 2.0
SMALL, LARGE, HUGE = 0.015, 0.1, 0.3  # 0.01 and 0.1 scene scales are 0.02 and 0.2
HIGH = 1.0  # a gradient in pixels that is high in half images


def make(scales: list[float], opacity: float | list[float] = 0.5, **config: Any):
    """Optimizer with one taken step, strategy, generator; Gaussian i stands at (i, 0, 0)."""
    n = len(scales)
    opacities = torch.tensor(opacity if isinstance(opacity, list) else [opacity] * n)
    sizes = torch.tensor([[s, s / 2, s / 3] for s in scales]).reshape(n, 3)
    means = torch.zeros(n, 3)
    means[:, 0] = torch.arange(n)
    gaussians = Gaussians(
        means,
        torch.tensor([[1.0, 0, 0, 0]]).repeat(n, 1),
        sizes.log(),
        torch.logit(opacities),
        torch.rand(n, 1, 3),
        torch.rand(n, 3, 3),
    )
    options = TrainConfig(**config)
    optimizer = GaussianOptimizer(gaussians, options, SCENE_SCALE)
    for parameter in optimizer.params.values():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step(0)
    for name, value in optimizer.state().items():
        if "exp_avg" in name:
            value.fill_(1.0)
    return optimizer, DefaultStrategy(options, SCENE_SCALE), torch.Generator().manual_seed(0)


def seen(gradient: Tensor, radii: Tensor | None = None) -> dict[str, Any]:
    """What the renderer would leave behind: gradient of means2d [C, N, 2] in pixels, radii [C, N]."""
    means2d = torch.zeros_like(gradient, requires_grad=True)
    means2d.grad = gradient
    radii = torch.ones(gradient.shape[:2]) if radii is None else radii
    return {
        "means2d": means2d, "radii": radii[..., None].repeat(1, 1, 2).int(), "width": WIDTH, "height": HEIGHT,
        "n_cameras": gradient.shape[0],
    }  # fmt: skip


def after_step(
    strategy: DefaultStrategy,
    optimizer: GaussianOptimizer,
    meta: dict[str, Any],
    index: int,
    generator: torch.Generator,
) -> Changes:
    """What the trainer does with a strategy in a step."""
    if strategy.watches(index):
        strategy.prepare(len(optimizer), torch.device("cpu"))
        gradient = meta["means2d"].grad
        absolute = gradient is not None and strategy.config.absgrad
        strategy.observe(meta["means2d"].absgrad if absolute else gradient, meta)
    return strategy.refine(optimizer, index, generator) if strategy.due(index) else Changes()


def gradients(*x: float) -> Tensor:
    """One camera's gradients along x, [1, N, 2]."""
    return torch.tensor([[[value, 0.0] for value in x]])


def moments(optimizer: GaussianOptimizer, name: str = "means") -> Tensor:
    return optimizer.state()[f"adam.{name}.exp_avg"]


def test_small_ones_are_duplicated():
    optimizer, strategy, generator = make([SMALL, SMALL, LARGE])
    before = {name: parameter.detach().clone() for name, parameter in optimizer.params.items()}
    changes = after_step(strategy, optimizer, seen(gradients(HIGH, 0, 0)), 600, generator)
    assert changes == Changes(duplicated=1)
    for name, parameter in optimizer.params.items():
        assert torch.equal(parameter, before[name][[0, 1, 2, 0]]), name
    assert moments(optimizer)[:, 0].tolist() == [1, 1, 1, 0]


def test_large_ones_are_split_in_two():
    optimizer, strategy, generator = make([SMALL, LARGE, LARGE])
    before = {name: parameter.detach().clone() for name, parameter in optimizer.params.items()}
    changes = after_step(strategy, optimizer, seen(gradients(0, HIGH, 0)), 600, generator)
    assert changes == Changes(split=1)
    assert len(optimizer) == 4
    order = [0, 2, 1, 1]
    for name in ("quats", "opacities", "sh0", "shN"):
        assert torch.equal(optimizer.params[name], before[name][order]), name
    torch.testing.assert_close(optimizer.params["scales"].detach()[2:], before["scales"][[1, 1]] - math.log(1.6))
    assert (optimizer.params["means"][2:] != before["means"][1]).any(-1).all()
    assert torch.equal(optimizer.params["means"][:2], before["means"][[0, 2]])
    assert moments(optimizer)[:, 0].tolist() == [1, 1, 0, 0]


def test_children_are_drawn_from_the_parents_distribution():
    n = 4000
    optimizer, strategy, generator = make([LARGE] * n)
    half = math.sqrt(0.5)
    with torch.no_grad():
        optimizer.params["means"].zero_()
        optimizer.params["quats"].copy_(torch.tensor([3 * half, 0, 0, 3 * half]))  # not unit; a quarter turn about z
    after_step(strategy, optimizer, seen(torch.full((1, n, 2), HIGH)), 600, generator)
    children = optimizer.params["means"].detach()
    assert len(children) == 2 * n
    covariance = children.T @ children / len(children)
    expected = torch.diag(torch.tensor([LARGE / 2, LARGE, LARGE / 3]) ** 2)  # the turn swaps x and y
    assert (covariance - expected).abs().max() < 0.05 * LARGE**2


def test_revised_opacity_keeps_the_transmittance():
    optimizer, strategy, generator = make([LARGE], 0.6, revised_opacity=True)
    after_step(strategy, optimizer, seen(gradients(HIGH)), 600, generator)
    child = optimizer.params["opacities"].detach().sigmoid()
    torch.testing.assert_close((1 - child[0]) * (1 - child[1]), torch.tensor(0.4))


@pytest.mark.parametrize(
    ("gradient", "cameras", "grows"),
    [
        # threshold 2e-4: |g_x| * WIDTH / 2 * cameras, |g_y| * HEIGHT / 2 * cameras
        ((0.9e-5, 0.0), 1, False), ((1.1e-5, 0.0), 1, True), ((0.0, 1.9e-5), 1, False), ((0.0, 2.1e-5), 1, True),
        ((0.45e-5, 0.0), 2, False), ((0.55e-5, 0.0), 2, True), ((0.8e-5, 1.3e-5), 1, True),
    ],
)  # fmt: skip
def test_gradient_is_measured_in_half_images_times_cameras(gradient: tuple[float, float], cameras: int, grows: bool):
    optimizer, strategy, generator = make([SMALL])
    meta = seen(torch.tensor(gradient).expand(cameras, 1, 2).clone())
    changes = after_step(strategy, optimizer, meta, 600, generator)
    assert changes.duplicated == int(grows)


def test_gradient_is_averaged_over_the_cameras_that_see():
    optimizer, strategy, generator = make([SMALL, SMALL])
    hidden = torch.tensor([[1.0, 0.0]])
    # Both have 3e-4 once; the second is seen once more, without gradient, and its mean is below the threshold.
    after_step(strategy, optimizer, seen(gradients(1.5e-5, 1.5e-5)), 598, generator)
    after_step(strategy, optimizer, seen(gradients(0, 0), torch.tensor([[0.0, 1.0]])), 599, generator)
    changes = after_step(strategy, optimizer, seen(gradients(0, HIGH), hidden * 0), 600, generator)
    assert changes == Changes(duplicated=1)
    assert optimizer.params["means"][:, 0].tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("index", "refines"),
    [(500, False), (550, False), (600, True), (601, False), (14_900, True), (15_000, False), (15_100, False)],
)
def test_schedule(index: int, refines: bool):
    optimizer, strategy, generator = make([SMALL])
    changes = after_step(strategy, optimizer, seen(gradients(HIGH)), index, generator)
    assert changes.duplicated == int(refines)


def test_pause_after_reset():
    optimizer, strategy, generator = make([SMALL], pause_refine_after_reset=200)
    grown = [
        after_step(strategy, optimizer, seen(gradients(*[HIGH] * len(optimizer))), index, generator).duplicated
        for index in (3000, 3100, 3200)
    ]
    assert grown == [0, 0, 1]


def test_statistics_begin_anew_after_refinement():
    optimizer, strategy, generator = make([SMALL])
    after_step(strategy, optimizer, seen(gradients(HIGH)), 600, generator)
    assert after_step(strategy, optimizer, seen(gradients(0, 0)), 700, generator) == Changes()


def test_faint_ones_are_pruned():
    optimizer, strategy, generator = make([SMALL, SMALL, SMALL], [0.0049, 0.5, 0.0051])
    changes = after_step(strategy, optimizer, seen(gradients(0, 0, 0)), 600, generator)
    assert changes == Changes(pruned=1)
    assert optimizer.params["means"][:, 0].tolist() == [1, 2]
    assert moments(optimizer).tolist() == [[1, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize(("index", "pruned"), [(600, 0), (3000, 0), (3100, 1)])
def test_huge_ones_are_pruned_after_the_first_reset(index: int, pruned: int):
    optimizer, strategy, generator = make([SMALL, HUGE])
    changes = after_step(strategy, optimizer, seen(gradients(0, 0)), index, generator)
    assert changes == Changes(pruned=pruned)


def test_all_may_be_pruned_and_training_goes_on():
    optimizer, strategy, generator = make([SMALL, SMALL], 0.001)
    assert after_step(strategy, optimizer, seen(gradients(0, 0)), 600, generator).pruned == 2
    for index in (601, 700, 3000):
        after_step(strategy, optimizer, seen(torch.zeros(1, 0, 2)), index, generator)
    assert len(optimizer) == 0


@pytest.mark.parametrize(("index", "resets"), [(0, False), (2999, False), (3000, True), (6000, True), (15_000, False)])
def test_opacity_reset(index: int, resets: bool):
    optimizer, strategy, generator = make([SMALL, SMALL, SMALL], [0.9, 0.3, 0.007])
    after_step(strategy, optimizer, seen(gradients(0, 0, 0)), index, generator)
    opacities = optimizer.params["opacities"].detach().sigmoid()
    expected = [0.01, 0.01, 0.007] if resets else [0.9, 0.3, 0.007]
    torch.testing.assert_close(opacities, torch.tensor(expected))
    assert moments(optimizer, "opacities").any() != resets
    assert moments(optimizer, "means").all()


def test_nothing_visible():
    optimizer, strategy, generator = make([SMALL, LARGE])
    meta = seen(gradients(HIGH, HIGH), torch.zeros(1, 2))
    assert after_step(strategy, optimizer, meta, 600, generator) == Changes()
    meta["means2d"].grad = None
    assert after_step(strategy, optimizer, meta, 700, generator) == Changes()


def test_absgrad_is_used_when_asked_for():
    optimizer, strategy, generator = make([SMALL, SMALL], absgrad=True)
    meta = seen(gradients(0, HIGH))
    meta["means2d"].absgrad = gradients(HIGH, 0)
    assert after_step(strategy, optimizer, meta, 600, generator) == Changes(duplicated=1)
    assert optimizer.params["means"][-1, 0] == 0


def test_rules_on_image_plane_size():
    config = {"refine_scale2d_stop": 10_000}
    optimizer, strategy, generator = make([SMALL, SMALL], **config)
    radii = torch.tensor([[3.0, 1.0]])  # of 40 pixels: 0.075 and 0.025; split above 0.05
    assert after_step(strategy, optimizer, seen(gradients(0, 0), radii), 600, generator) == Changes(split=1)
    optimizer, strategy, generator = make([SMALL, SMALL], **config)
    radii = torch.tensor([[7.0, 1.0]])  # 0.175: split, and both children pruned as they inherit the radius
    changes = after_step(strategy, optimizer, seen(gradients(0, 0), radii), 3100, generator)
    assert changes == Changes(split=1, pruned=2)


@settings(deadline=None, max_examples=30)
@given(
    kinds=st.lists(st.sampled_from([SMALL, LARGE]), min_size=1, max_size=12),
    room=st.integers(-2, 8),
    seed=st.integers(0, 99),
    both=st.booleans(),
)
def test_cap_is_never_exceeded_and_takes_the_largest_gradients(kinds: list[float], room: int, seed: int, both: bool):
    n = len(kinds)
    cap = max(1, n + room)
    stop = 10_000 if both else 0  # then wide small ones are duplicated and split at once
    optimizer, strategy, generator = make(kinds, max_gaussians=cap, refine_scale2d_stop=stop)
    strength = torch.rand(n, generator=torch.Generator().manual_seed(seed)) + 0.1
    gradient = torch.stack([strength, torch.zeros(n)], -1)[None]
    changes = after_step(strategy, optimizer, seen(gradient, torch.full((1, n), 3.0)), 600, generator)
    assert len(optimizer) == n + changes.split + changes.duplicated
    assert len(optimizer) <= max(cap, n)
    if not both:
        grown = min(n, max(cap - n, 0))
        assert changes.split + changes.duplicated == grown
        strongest = set(strength.topk(grown).indices.tolist())
        new = optimizer.params["means"].detach()[n - changes.split :, 0].round()
        if not changes.split:
            assert {int(x) for x in new.tolist()} == strongest


def test_state_carries_over():
    straight, resumed = make([SMALL, LARGE]), make([SMALL, LARGE])
    for optimizer, strategy, generator in (straight, resumed):
        after_step(strategy, optimizer, seen(gradients(1.5e-5, 0.9e-5)), 599, generator)
    fresh = DefaultStrategy(TrainConfig(), SCENE_SCALE)
    fresh.load_state(resumed[1].state())
    results = [
        after_step(strategy, optimizer, seen(gradients(1.5e-5, 0.9e-5)), 600, generator)
        for optimizer, strategy, generator in (straight, (resumed[0], fresh, resumed[2]))
    ]
    assert results == [Changes(duplicated=1)] * 2
    assert DefaultStrategy(TrainConfig(), 1.0).state() == {}


def test_statistics_are_given_up_when_densification_is_over():
    optimizer, strategy, generator = make([SMALL])
    assert [strategy.watches(index) for index in (0, 14_999, 15_000)] == [True, True, False]
    after_step(strategy, optimizer, seen(gradients(HIGH)), 14_999, generator)
    assert set(strategy.state()) == {"grad2d", "count"}
    assert strategy.due(15_000)
    assert strategy.refine(optimizer, 15_000, generator) == Changes()
    assert strategy.state() == {}
    assert not strategy.due(15_001)


def test_what_is_due():
    _, strategy, _ = make([SMALL], pause_refine_after_reset=200)
    due = [index for index in range(15_100) if strategy.due(index)]
    assert due[:2] == [600, 700]
    assert {3000, 6000, 9000, 12_000} <= set(due)
    assert not {3100, 500, 15_000} & set(due)


def test_a_step_that_is_skipped_is_not_observed():
    _, strategy, _ = make([SMALL, SMALL])
    strategy.prepare(2, torch.device("cpu"))
    skip = torch.ones(1, dtype=torch.int32)
    strategy.observe(gradients(HIGH, HIGH), seen(gradients(HIGH, HIGH)), skip)
    assert not any(value.any() for value in strategy.state().values())
    strategy.observe(gradients(HIGH, HIGH), seen(gradients(HIGH, HIGH)), skip.zero_())
    assert all(value.all() for value in strategy.state().values())
