"""How much room the renderer's lists of Gaussians get, when nothing may wait to learn how long they have to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from lanewise.train.data import TrainingData
from lanewise.train.plan import Plan
from lanewise.train.render import Renderer

Capacity = tuple[int, int]  # entries of the lists, and of the coarse lists that they are made from


class Lists:
    """The capacity of the lists, from what the pictures so far have needed.

    Args:
        renderer: whose lists they are.
        data: the capture.
        device: where it renders.

    Attributes:
        capacity: of the lists now.
    """

    first_room = 1.25  # capacity of new lists, in what the pictures seen so far needed
    more_room = 1.25  # the same after they did not fit

    def __init__(self, renderer: Renderer, data: TrainingData, device: torch.device) -> None:
        self.renderer, self.data, self.device = renderer, data, device
        self.capacity: Capacity = (1, 1)
        self._needed = [0.0, 0.0]  # most that a step has needed since the last fit
        self._gaussians = 0  # at the last fit

    def fit(self, params: Mapping[str, Tensor], plan: Plan) -> None:
        """Begin anew with other Gaussians, looking at what a step with them will need; the host waits for that."""
        count = len(params["means"])
        grown = count / max(self._gaussians, 1)
        likely = [max(now, grown * before) for now, before in zip(self._look(params, plan), self._needed, strict=True)]
        self.capacity = _roomy(self.first_room, likely)
        self._needed, self._gaussians = [0.0, 0.0], count

    def saw(self, needed: Sequence[float]) -> None:
        """Steps have needed so much, at most."""
        self._needed = [max(pair) for pair in zip(self._needed, needed, strict=True)]

    def enlarge(self, needed: Sequence[float]) -> None:
        """Make room: a step has needed so much, and it did not fit."""
        self.saw(needed)
        more = _roomy(self.more_room, needed)
        self.capacity = (max(self.capacity[0], more[0]), max(self.capacity[1], more[1]))

    @torch.no_grad()
    def _look(self, params: Mapping[str, Tensor], plan: Plan) -> list[float]:
        """What the lists of a step need; they are counted before there has to be room for them."""
        views = [self.data.train[i] for i in plan.views]
        viewmats, Ks = (
            torch.stack([torch.as_tensor(getattr(view, name)).float() for view in views]).to(self.device)
            for name in ("viewmat", "K")
        )
        size = (views[0].width, views[0].height)
        _, _, meta = self.renderer(params, viewmats, Ks, *size, sh_degree=plan.sh_degree, isect_capacity=(1, 1))
        return torch.stack([meta["n_isects"], meta["n_coarse"]]).tolist()


def _roomy(room: float, needed: Sequence[float]) -> Capacity:
    """A capacity with room to spare for both kinds of lists."""
    isects, coarse = (max(1, int(room * n)) for n in needed)
    return isects, coarse
