"""The callbacks with stand-ins for both packages; with the real ones: test_callbacks_lightning, _transformers."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from lanewise.audit.faults import find_fault
from lanewise.audit.watching.callbacks import lightning_callback, transformers_callback
from lanewise.errors import MissingDependencyError


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch):
    """Stand-ins for both packages, which have the classes that callbacks derive from."""
    for name, base in (("lightning", None), ("lightning.pytorch", "Callback"), ("transformers", "TrainerCallback")):
        module = ModuleType(name)
        if base is not None:
            setattr(module, base, type(base, (), {}))
        monkeypatch.setitem(sys.modules, name, module)


def train(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(30):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 6)).square().sum()
        loss.backward()
        model.weight.grad = find_fault("nan").apply(model.weight.grad)  # type: ignore[arg-type]
        optimizer.step()


@pytest.mark.usefixtures("installed")
def test_a_lightning_run_is_watched():
    callback, model = lightning_callback(on_finding="ignore"), nn.Linear(6, 3)
    callback.on_train_start(SimpleNamespace(global_step=7), model)
    train(model)
    callback.on_train_end(None, model)
    assert [f.code for f in callback.running.watch.findings] == ["LW403"]
    assert callback.running.watch.step == 37
    train(model)
    assert callback.running.watch.step == 37
    callback.on_exception(None, model, ValueError())


@pytest.mark.usefixtures("installed")
def test_a_transformers_run_is_watched():
    callback, model = transformers_callback(on_finding="ignore", every=5), nn.Linear(6, 3)
    callback.on_train_begin(None, SimpleNamespace(global_step=7), None, model=model, tokenizer=None)
    train(model)
    callback.on_train_end(None, None, None, model=model)
    assert callback.running.watch.step == 37
    assert [f.code for f in callback.running.watch.findings] == ["LW403"]


@pytest.mark.parametrize(
    ("make", "package"), [(lightning_callback, "lightning"), (transformers_callback, "transformers")]
)
def test_the_error_names_the_command(make, package: str, monkeypatch: pytest.MonkeyPatch):
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning", "transformers"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    class Nothing:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in ("lightning", "pytorch_lightning", "transformers"):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Nothing(), *sys.meta_path])
    with pytest.raises(MissingDependencyError, match=f"pip install {package}"):
        make()
