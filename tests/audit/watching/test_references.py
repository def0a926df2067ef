from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lanewise.audit.watching import references, register_reference, watch
from lanewise.errors import InputError


class Cube(torch.autograd.Function):
    """x^3, from a kernel that has only float32; its backward may be wrong."""

    factor = 3.0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x.float() ** 3).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return Cube.factor * x**2 * gradient


def doubled(x: Tensor) -> Tensor:
    """2 x, whose gradient is 2 where it is right."""
    return x + x.detach() if Cube.factor != 3 and x.dtype == torch.float32 else 2 * x


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(40))

    def forward(self, x: Tensor) -> Tensor:
        return doubled(Cube.apply(x * self.scale))


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(references, "_SITES", dict(references._SITES))


def run(steps: int = 8):
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    with watch(model, optimizer, every=1, on_finding="ignore") as running:
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(6, 40)).square().mean().backward()
            optimizer.step()
    return running


@pytest.mark.parametrize("batch", [None, {"x": 0, "output": 0}])
def test_registered_functions_are_probed_and_put_back(batch: dict[str, int] | None):
    register_reference(Cube, lambda x: x**3, batch=batch)
    register_reference(doubled, lambda x: 2 * x)
    original = doubled
    running = run()
    assert running.findings == []
    assert {place for place, _ in running.coverage} == {"Cube", "doubled"}
    assert all(set(covered.outcomes) == {"passed"} for covered in running.coverage.values())
    assert "apply" not in vars(Cube)
    assert doubled is original


def test_their_wrong_gradients_are_found(monkeypatch: pytest.MonkeyPatch):
    register_reference(Cube, lambda x: x**3)
    register_reference(doubled, lambda x: 2 * x)
    monkeypatch.setattr(Cube, "factor", 2.9)
    found = {(f.code, f.operator, f.argument, f.evidence["looks_like"]) for f in run().findings}
    assert found == {("LW404", "Cube", "x", "LW105"), ("LW404", "doubled", "x", "LW105")}


def test_a_function_that_cannot_be_found_is_refused():
    with pytest.raises(InputError, match="function: got"):
        register_reference(lambda x: x, lambda x: x)
