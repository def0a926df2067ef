from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from lanewise.audit.watching.replay import Replay


class Broken(nn.Module):
    """Infinite where its input is large."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 100, x / 0, x)


class Model(nn.Module):
    """Two parts, with a buffer that counts calls."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
        self.decoder = nn.Sequential(nn.Identity(), Broken(), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x) + 1000 * x)


def by_parts(model: Model, x: Tensor) -> Tensor:
    """What a training step may do that never calls the model itself."""
    return Model.forward(model, x)


@pytest.mark.parametrize("call", [Model.__call__, by_parts], ids=["as a whole", "by its parts"])
def test_the_layer_in_which_it_begins_is_found(call):
    model = Model()
    replay = Replay(model)
    call(model, torch.zeros(4, 3))
    assert replay.origin() is None
    call(model, torch.ones(4, 3))
    before = [x.clone() for x in model.state_dict().values()], torch.get_rng_state()
    origin = replay.origin()
    assert origin is not None
    assert origin.place == "decoder.1 (Broken)"
    assert all(torch.equal(a, b) for a, b in zip(before[0], model.state_dict().values(), strict=True))
    assert torch.equal(before[1], torch.get_rng_state())
    replay.remove()
    assert replay.origin() is None
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("call", [Model.__call__, by_parts], ids=["as a whole", "by its parts"])
def test_an_evaluation_in_between_is_not_the_step(call):
    model = Model()
    replay = Replay(model)
    call(model, torch.ones(4, 3))
    with torch.no_grad():
        model(torch.zeros(4, 3))
    origin = replay.origin()
    assert origin is not None
    assert origin.place == "decoder.1 (Broken)"


def test_the_parts_of_a_model_that_is_called_as_a_whole_are_let_go():
    model = Model()
    replay = Replay(model)
    assert model.encoder._forward_pre_hooks
    model(torch.ones(4, 3))
    assert not model.encoder._forward_pre_hooks
    replay.remove()


def test_a_model_that_cannot_be_called_again_says_nothing():
    class Once(Model):
        def forward(self, x: Tensor) -> Tensor:
            if hasattr(self, "called"):
                raise RuntimeError("once is enough")
            self.called = True
            return super().forward(x)

    model = Once()
    replay = Replay(model)
    model(torch.ones(4, 3))
    assert replay.origin() is None
    replay.remove()
