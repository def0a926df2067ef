"""The callback in Lightning's own Trainer, where that is installed."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn import utils
from torch.utils.data import DataLoader, TensorDataset
from watched import mlp

from lanewise.audit import FindingError, FindingWarning
from lanewise.audit.faults import find_fault
from lanewise.audit.watching.callbacks import lightning_callback

pl = pytest.importorskip("lightning.pytorch")
pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice

STEPS = 40
KINDS = [{}, {"accumulate_grad_batches": 3}, {"gradient_clip_val": 0.01}, {"precision": "bf16-mixed"}]


class Module(pl.LightningModule):
    """Three linear layers, with a fault in the middle one; Lightning's own loop, or one by hand."""

    def __init__(self, name: str | None = None, argument: str = "weight", *, by_hand: bool = False) -> None:
        super().__init__()
        self.net = mlp(find_fault(name) if name else None, argument)
        self.automatic_optimization = not by_hand
        self.losses: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        x, y = batch
        loss = F.mse_loss(F.dropout(self(x), 0.1), y)
        self.losses.append(loss.item())
        if not self.automatic_optimization:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 1e-3)


def fit(module: nn.Module, callback: Any = None, steps: int = STEPS, *, trainer: Any = pl.Trainer, **options: Any):
    """Train for so many optimizer steps."""
    torch.manual_seed(1)
    x = torch.randn(24 * 8, 16)
    batches = DataLoader(TensorDataset(x, torch.tanh(x @ torch.randn(16, 4))), batch_size=24)
    resumed = options.pop("resumed", None)
    options.setdefault("max_steps", steps)
    running = trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[] if callback is None else [callback],
        **options,
    )
    running.fit(module, batches, ckpt_path=resumed)
    return running


@pytest.mark.parametrize("options", [*KINDS, {"by_hand": True}], ids=str)
def test_a_healthy_run_is_the_same_and_has_no_findings(options: dict[str, Any]):
    by_hand = options.get("by_hand", False)
    options = {key: value for key, value in options.items() if key != "by_hand"}
    plain, seen = Module(by_hand=by_hand), Module(by_hand=by_hand)
    callback = lightning_callback(on_finding="raise", every=2)
    fit(plain, **options)
    fit(seen, callback, **options)
    assert plain.losses == seen.losses
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), seen.parameters(), strict=True))
    watch = callback.running.watch
    assert (watch.step, watch.notes) == (STEPS, {})
    assert len(watch.coverage) == 8  # three layers' weights and biases, and the inputs of two
    assert {outcome for covered in watch.coverage.values() for outcome in covered.outcomes} == {"passed"}


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize(("name", "codes", "last"), [
    ("nan", {"LW403"}, 0),
    ("half-the-terms", {"LW404"}, 16),  # a round of nine arguments
    ("zero", {"LW401", "LW404"}, 24),
])  # fmt: skip
def test_a_fault_is_found_in_its_layer(options: dict[str, Any], name: str, codes: set[str], last: int):
    callback = lightning_callback(on_finding="ignore", every=2)
    fit(Module(name), callback, **options)
    findings = callback.running.watch.findings
    assert codes <= {f.code for f in findings} <= codes | {"LW404"}  # where it was the layer's turn
    assert {(f.operator, f.argument) for f in findings} == {("net.2 (FaultyLinear)", "weight")}
    assert max(f.evidence["step"] for f in findings) <= last


def test_a_finding_stops_the_run_before_the_update():
    module, callback = Module("nan"), lightning_callback(on_finding="raise")
    with pytest.raises(FindingError, match="LW403"):
        fit(module, callback, gradient_clip_val=1.0)
    assert callback.running.watch.step == 0
    assert all(bool(p.isfinite().all()) for p in module.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())
    assert utils.clip_grad_norm_.__module__ == "torch.nn.utils.clip_grad"


def test_a_finding_is_warned_of_or_handed_to_a_function():
    found: list[Any] = []
    fit(Module("nan"), lightning_callback(on_finding=found.append))
    assert found[0].code == "LW403"
    with pytest.warns(FindingWarning, match=r"LW403 net\.2"):
        fit(Module("nan"), lightning_callback())


def test_a_resumed_run_counts_on(tmp_path: Path):
    log = tmp_path / "watch.jsonl"
    trainer = fit(Module("scaled"), lightning_callback(on_finding="ignore", every=50, log=log), 10)
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    callback = lightning_callback(on_finding="ignore", every=1, log=log)
    fit(Module("scaled"), callback, 30, resumed=tmp_path / "run.ckpt")
    assert callback.running.watch.step == 30
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["step"] for line in lines if line["event"] in ("start", "end")] == [0, 10, 10, 30]
    (finding,) = (line for line in lines if line["event"] == "finding")
    assert finding["finding"]["code"] == "LW404"
    assert 10 <= finding["step"] < 30


def test_nan_of_a_forward_pass_is_found_where_the_module_itself_is_not_called():
    class Parts(Module):
        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            return self.net(batch[0] / (0.0 if index == 3 else 1.0)).square().mean()

    callback = lightning_callback(on_finding="ignore", every=2)
    fit(Parts(), callback)
    (finding,) = callback.running.watch.findings
    assert (finding.code, finding.evidence["step"]) == ("LW403", 3)
    assert finding.evidence["finite"] == 0

    class Inside(Module):
        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            if index == 3:
                self.net[1].forward = lambda x: x / 0.0
            return self.net(batch[0]).square().mean()

    callback = lightning_callback(on_finding="ignore", every=2)
    fit(Inside(), callback)
    (finding,) = callback.running.watch.findings
    assert (finding.operator, finding.argument, finding.evidence["step"]) == ("net.1 (ReLU)", "forward", 3)


def test_the_package_of_the_other_name_takes_it_too():
    other = pytest.importorskip("pytorch_lightning")

    class Small(other.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(find_fault("nan"))

        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            return self.net(batch[0]).square().mean()

        configure_optimizers = Module.configure_optimizers

    callback = lightning_callback(on_finding="ignore", every=2)
    fit(Small(), callback, trainer=other.Trainer)
    assert callback.running.watch.findings[0].code == "LW403"


def test_a_copy_is_sent_to_processes_that_are_spawned():
    copied = pickle.loads(pickle.dumps(lightning_callback(on_finding="ignore", every=7)))
    assert copied.running.watch is None
    fit(Module("nan"), copied)
    assert copied.running.watch.every == 7
    assert copied.running.watch.findings[0].code == "LW403"
