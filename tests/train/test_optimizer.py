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


def make(n: int, *, seed: int = 0, scene_scale: float = 2.0, **config: Any) -> GaussianOptimizer:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    gaussians = Gaussians(draw(n, 3), draw(n, 4), draw(n, 3), draw(n), draw(n, 1, 3), draw(n, 3, 3))
    return GaussianOptimizer(gaussians, TrainConfig(**config), scene_scale)


def give_gradients(optimizer: GaussianOptimizer, seed: int, order: Tensor | None = None) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in optimizer.params.values():
        gradient = torch.randn(parameter.shape, generator=generator)
        parameter.grad = gradient if order is None else gradient[order]


@settings(deadline=None, max_examples=20)
@given(order=st.permutations(range(7)), steps=st.integers(1, 3))
def test_state_follows_its_gaussian(order: list[int], steps: int):
    """Training, then permuting, then training is permuting the result of training."""
    index = torch.tensor(order)
    straight, moved = make(7), make(7)
    for step in range(steps):
        for optimizer in (straight, moved):
            give_gradients(optimizer, step)
            optimizer.step(step)
    moved.rearrange(index, kept=7)
    give_gradients(straight, 99)
    give_gradients(moved, 99, index)
    for optimizer in (straight, moved):
        optimizer.step(steps)
    for name, parameter in straight.params.items():
        assert torch.equal(moved.params[name], parameter[index]), name


def test_new_gaussians_copy_values_and_begin_without_moments():
    optimizer = make(5)
    give_gradients(optimizer, 1)
    optimizer.step(0)
    before = {name: value.clone() for name, value in optimizer.state().items()}
    index = torch.tensor([4, 2, 2, 0])
    optimizer.rearrange(index, kept=2)
    after = optimizer.state()
    assert after.keys() == before.keys()
    for name in optimizer.params:
        assert torch.equal(after[f"params.{name}"], before[f"params.{name}"][index])
        for moment in ("exp_avg", "exp_avg_sq"):
            key = f"adam.{name}.{moment}"
            assert torch.equal(after[key][:2], before[key][[4, 2]])
            assert after[key].shape == optimizer.params[name].shape
            assert not after[key][2:].any()
        assert after[f"adam.{name}.step"] == 1


def test_parameters_train_on_after_rearranging():
    optimizer = make(5)
    optimizer.rearrange(torch.tensor([0, 1, 1]), kept=2)
    before = optimizer.params["means"].detach().clone()
    give_gradients(optimizer, 3)
    optimizer.step(0)
    assert (optimizer.params["means"] != before).all()
    assert all(parameter.grad is None for parameter in optimizer.params.values())


def test_overwrite_zeroes_the_moments_of_that_parameter_alone():
    optimizer = make(4)
    give_gradients(optimizer, 1)
    optimizer.step(0)
    optimizer.overwrite("opacities", torch.full((4,), -2.0))
    state = optimizer.state()
    assert torch.equal(state["params.opacities"], torch.full((4,), -2.0))
    assert not state["adam.opacities.exp_avg"].any()
    assert not state["adam.opacities.exp_avg_sq"].any()
    assert state["adam.scales.exp_avg"].all()


def test_parameter_without_gradient_stays_and_has_no_state():
    optimizer = make(4)
    before = optimizer.params["shN"].detach().clone()
    give_gradients(optimizer, 1)
    optimizer.params["shN"].grad = None
    optimizer.step(0)
    assert torch.equal(optimizer.params["shN"], before)
    assert not [name for name in optimizer.state() if name.startswith("adam.shN")]
    optimizer.rearrange(torch.tensor([1, 1]), kept=1)  # nothing to carry over
    assert len(optimizer) == 2


def displacement(index: int, **config: int) -> float:
    """How far Adam's first step moves a centre: its learning rate."""
    optimizer = make(1, scene_scale=2.0, **config)
    before = optimizer.params["means"].detach().clone()
    optimizer.params["means"].grad = torch.ones(1, 3)
    optimizer.step(index)
    return float((before - optimizer.params["means"]).detach().mean())


def test_learning_rate_of_the_centres():
    first = displacement(0)
    assert first == pytest.approx(1.6e-4 * 2.0, rel=1e-3)
    assert displacement(30_000) == pytest.approx(first * 0.01, rel=1e-2)
    assert displacement(15_000, steps=100) == pytest.approx(first * 0.1, rel=1e-2)  # whatever `steps` is
    assert displacement(0, batch_size=4) == pytest.approx(first * 2, rel=1e-3)


@pytest.mark.parametrize("name", ["scales", "opacities", "quats", "sh0", "shN"])
def test_learning_rate_of_the_others(name: str):
    optimizer = make(1)
    before = optimizer.params[name].detach().clone()
    optimizer.params[name].grad = torch.ones_like(before)
    optimizer.step(20_000)
    moved = (before - optimizer.params[name]).detach().mean().item()
    assert moved == pytest.approx(getattr(TrainConfig(), f"{name}_lr"), rel=1e-3)


def test_state_carries_over_to_the_bit():
    straight, other = make(6), make(6, seed=5)
    for step in range(3):
        give_gradients(straight, step)
        straight.step(step)
    straight.rearrange(torch.tensor([0, 3, 5, 5]), kept=3)
    other.load_state(straight.state())
    for step in range(3, 6):
        for optimizer in (straight, other):
            give_gradients(optimizer, step)
            optimizer.step(step)
    expected, got = straight.state(), other.state()
    assert expected.keys() == got.keys()
    assert all(torch.equal(expected[name], got[name]) for name in expected)
    assert got["params.means"].data_ptr() != expected["params.means"].data_ptr()


def test_no_gaussians():
    optimizer = make(3)
    optimizer.rearrange(torch.zeros(0, dtype=torch.int64), kept=0)
    give_gradients(optimizer, 0)
    optimizer.step(0)
    assert len(optimizer) == 0
    assert len(optimizer.gaussians()) == 0


def test_gaussians_are_copied_in():
    means = torch.zeros(1, 3)
    gaussians = Gaussians(
        means, torch.ones(1, 4), torch.zeros(1, 3), torch.zeros(1), torch.zeros(1, 1, 3), torch.zeros(1, 0, 3)
    )
    optimizer = GaussianOptimizer(gaussians, TrainConfig(), 1.0)
    optimizer.params["means"].grad = torch.ones(1, 3)
    optimizer.step(0)
    assert math.isclose(means.abs().max().item(), 0)


# --- the step in two halves, as on a GPU


def step_in_halves(optimizer: GaussianOptimizer, index: int, skip: Tensor | None = None, visible: Tensor | None = None):
    names = [name for name, parameter in optimizer.params.items() if parameter.grad is not None]
    told = torch.tensor(optimizer.announce(index, names)).reshape(6, 2)
    gradients = {name: optimizer.params[name].grad for name in names}
    optimizer.update(gradients, told, skip=skip, visible=visible)  # type: ignore[arg-type]
    for parameter in optimizer.params.values():
        parameter.grad = None


def test_two_halves_are_torchs_step():
    whole, halves = make(9, batch_size=2), make(9, batch_size=2)
    for index in range(4):
        for optimizer in (whole, halves):
            give_gradients(optimizer, index)
            if index < 2:
                optimizer.params["shN"].grad = None  # joins later, and counts its own steps
        whole.step(index)
        step_in_halves(halves, index)
        if index == 1:
            for optimizer in (whole, halves):
                optimizer.rearrange(torch.tensor([8, 3, 3, 1]), kept=2)
    expected, got = whole.state(), halves.state()
    assert expected.keys() == got.keys()
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value, rtol=3e-6, atol=1e-7)
    assert (got["adam.means.step"], got["adam.shN.step"]) == (4, 2)


def test_a_step_taken_back_can_be_taken_again():
    straight, other = make(5), make(5)
    for index in range(3):
        give_gradients(straight, index)
        step_in_halves(straight, index)
    for index in range(3):
        if index == 1:  # announced, launched in vain, and taken back
            give_gradients(other, 99)
            step_in_halves(other, index, skip=torch.ones(1, dtype=torch.int32))
            other.take_back(other.params)
        give_gradients(other, index)
        step_in_halves(other, index, skip=torch.zeros(1, dtype=torch.int32))
    expected, got = straight.state(), other.state()
    assert all(torch.equal(got[name], expected[name]) for name in expected)


def test_only_visible_ones_move():
    optimizer = make(4, selective_adam=True)
    assert optimizer.on_device
    before = {name: value.detach().clone() for name, value in optimizer.params.items()}
    give_gradients(optimizer, 0)
    step_in_halves(optimizer, 0, visible=torch.tensor([True, False, True, False]))
    for name, value in optimizer.params.items():
        moved = (value != before[name]).reshape(4, -1).any(1)
        assert moved.tolist() == [True, False, True, False], name


def test_addresses_follow_what_is_changed():
    optimizer = make(4, selective_adam=True)
    optimizer.ready()
    first = optimizer.addresses()
    assert len(set(first)) == 18
    give_gradients(optimizer, 0)
    step_in_halves(optimizer, 0)
    optimizer.overwrite("opacities", torch.full((4,), -2.0))
    assert optimizer.addresses() == first
    optimizer.rearrange(torch.tensor([1, 2]), kept=2)
    assert not set(optimizer.addresses()) & set(first)
