from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from watched import mlp

from lanewise.audit import watch
from lanewise.audit.faults import find_fault
from lanewise.audit.watching.hooks import on_steps


class Again(torch.optim.SGD):
    """An optimizer whose step is another one's."""

    def step(self, closure=None):  # type: ignore[override]
        return super().step(closure)


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        *((kind, way) for kind in (torch.optim.SGD, Again) for way in ("none", "positional", "keyword")),
        *((torch.optim.LBFGS, way) for way in ("positional", "keyword")),
    ],
)
@pytest.mark.parametrize("given", [True, False])
def test_the_gradients_are_there_before_a_step_and_the_update_after_it(kind, way: str, given: bool):
    p = nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = kind([p], lr=0.25)
    seen: list[tuple[str, Tensor, Tensor]] = []

    def evaluate() -> Tensor:
        optimizer.zero_grad()
        loss = p.square().sum()
        loss.backward()
        return loss

    def note(when: str) -> None:
        assert p.grad is not None
        seen.append((when, p.detach().clone(), p.grad.clone()))

    handles = on_steps(optimizer if given else None, lambda: [p], lambda _: note("before"), lambda: note("after"))
    if way == "none":
        evaluate()
        optimizer.step()
    else:
        loss = optimizer.step(evaluate) if way == "positional" else optimizer.step(closure=evaluate)
        assert loss.item() == 5.0
    for handle in handles:
        handle.remove()
    (first, start, gradient), (last, end, _) = seen
    assert (first, last) == ("before", "after")
    assert torch.equal(start, torch.tensor([1.0, -2.0]))
    assert torch.equal(gradient, 2 * start)
    assert torch.equal(end, p)
    assert not torch.equal(end, start)


@pytest.mark.parametrize("name", ["scaled", None])
def test_a_loop_of_closures_is_probed(name: str | None):
    model = mlp(find_fault(name) if name else None)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def evaluate() -> Tensor:
        optimizer.zero_grad()
        loss = model(torch.randn(8, 16)).square().mean()
        loss.backward()
        return loss

    with watch(model, optimizer, every=2, on_finding="ignore") as running:
        for _ in range(30):
            optimizer.step(evaluate)
    assert [f.code for f in running.findings] == (["LW404"] if name else [])
    assert running.coverage
    assert not running.notes
