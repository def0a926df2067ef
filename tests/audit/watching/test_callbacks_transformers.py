"""The callback in Hugging Face's own Trainer, where that is installed."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import utils
from watched import FaultyLinear

from lanewise.audit import FindingError, FindingWarning
from lanewise.audit.faults import find_fault
from lanewise.audit.watching.callbacks import transformers_callback

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytestmark = pytest.mark.filterwarnings("ignore")  # the library's advice

STEPS = 40
KINDS = [{}, {"gradient_accumulation_steps": 3}, {"max_grad_norm": 0.0}, {"bf16": True}]
PLACE = "model.layers.0.mlp.down_proj (FaultyLinear)"


def language_model(name: str | None = None) -> Any:
    """A Llama of one layer with random weights, and a fault in one of its matrices."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=16,
    )
    model = transformers.LlamaForCausalLM(config)
    model.model.layers[0].mlp.down_proj = FaultyLinear(24, 16, find_fault(name) if name else None)
    return model


def fit(model: Any, folder: Path, callback: Any = None, *, resumed: Any = None, steps: int = STEPS, **options: Any):
    """Train for so many optimizer steps; the losses."""
    tokens = torch.randint(0, 32, (64, 8), generator=torch.Generator().manual_seed(1))
    arguments = transformers.TrainingArguments(
        str(folder / "run"),
        per_device_train_batch_size=8,
        max_steps=steps,
        report_to=[],
        use_cpu=True,
        logging_steps=1,
        disable_tqdm=True,
        save_steps=10,
        seed=3,
        **{"save_strategy": "no", **options},
    )
    trainer = transformers.Trainer(
        model,
        arguments,
        train_dataset=[{"input_ids": row, "labels": row} for row in tokens],
        callbacks=[] if callback is None else [callback],
    )
    trainer.train(resume_from_checkpoint=resumed)
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]


def hooks(model: Any) -> int:
    """How many there are; gradient checkpointing has one of its own."""
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@pytest.mark.parametrize("options", [*KINDS, {"gradient_checkpointing": True}], ids=str)
def test_a_healthy_run_is_the_same_and_has_no_findings(options: dict[str, Any], tmp_path: Path):
    plain, seen = language_model(), language_model()
    callback = transformers_callback(on_finding="raise", every=1)
    losses = fit(plain, tmp_path, **options)
    assert len(losses) == STEPS
    assert fit(seen, tmp_path, callback, **options) == losses
    pairs: list[tuple[Tensor, Tensor]] = list(zip(plain.parameters(), seen.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    watch = callback.running.watch
    assert watch.step == STEPS
    assert len(watch.coverage) > 15  # weights and inputs of nine layers, and attention
    assert {outcome for covered in watch.coverage.values() for outcome in covered.outcomes} == {"passed"}
    assert hooks(seen) == hooks(plain)


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize(("name", "codes", "last"), [
    ("nan", {"LW403"}, 0),
    ("half-the-terms", {"LW404"}, 24),  # a round of as many arguments
    ("zero", {"LW401", "LW404"}, 24),
])  # fmt: skip
def test_a_fault_is_found_in_its_layer(options: dict[str, Any], name: str, codes: set[str], last: int, tmp_path: Path):
    callback = transformers_callback(on_finding="ignore", every=1)
    fit(language_model(name), tmp_path, callback, **options)
    findings = callback.running.watch.findings
    assert codes <= {f.code for f in findings} <= codes | {"LW404"}  # where it was the layer's turn
    assert {(f.operator, f.argument) for f in findings} == {(PLACE, "weight")}
    assert max(f.evidence["step"] for f in findings) <= last


def test_a_finding_stops_the_run_before_the_update(tmp_path: Path):
    model, callback = language_model("nan"), transformers_callback(on_finding="raise")
    with pytest.raises(FindingError, match="LW403"):
        fit(model, tmp_path, callback)
    assert callback.running.watch.step == 0
    assert all(bool(p.isfinite().all()) for p in model.parameters())
    callback.running.end()  # nobody tells a callback of Hugging Face that training has failed
    assert hooks(model) == 0
    assert utils.clip_grad_norm_.__module__ == "torch.nn.utils.clip_grad"


def test_a_finding_is_warned_of_or_handed_to_a_function(tmp_path: Path):
    found: list[Any] = []
    fit(language_model("nan"), tmp_path, transformers_callback(on_finding=found.append), steps=2)
    assert found[0].code == "LW403"
    with pytest.warns(FindingWarning, match="LW403 model.layers.0.mlp.down_proj"):
        fit(language_model("nan"), tmp_path, transformers_callback(), steps=2)


def test_a_resumed_run_counts_on(tmp_path: Path):
    log = tmp_path / "watch.jsonl"
    first = transformers_callback(on_finding="ignore", every=50, log=log, probe=False)
    fit(language_model("scaled"), tmp_path, first, steps=10, save_strategy="steps")
    callback = transformers_callback(on_finding="ignore", every=1, log=log)
    checkpoint = str(tmp_path / "run" / "checkpoint-10")
    fit(language_model("scaled"), tmp_path, callback, steps=40, resumed=checkpoint)
    assert callback.running.watch.step == 40
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["step"] for line in lines if line["event"] in ("start", "end")] == [0, 10, 10, 40]
    (finding,) = (line for line in lines if line["event"] == "finding")
    assert finding["finding"]["code"] == "LW404"
    assert 10 <= finding["step"] < 40


def test_a_copy_watches_for_itself(tmp_path: Path):
    copied = pickle.loads(pickle.dumps(transformers_callback(on_finding="ignore", every=7)))
    assert copied.running.watch is None
    fit(language_model("nan"), tmp_path, copied, steps=2)
    assert copied.running.watch.every == 7
    assert copied.running.watch.findings[0].code == "LW403"
