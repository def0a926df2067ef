from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from process_group import in_a_process_group
from torch import nn
from torch.nn import functional as F
from torch.optim import optimizer as torch_optimizer
from watched import convnet, mlp, train

from lanewise.audit import FindingError, FindingWarning, Watch, watch
from lanewise.audit.faults import ALL_FAULTS, Fault, find_fault
from lanewise.audit.finding import Finding
from lanewise.audit.watching import pace, watcher
from lanewise.audit.watching.norms import Norms
from lanewise.audit.watching.probing import Probing
from lanewise.errors import InputError

ZERO = find_fault("zero")
NAMES = [fault.name for fault in ALL_FAULTS]


def test_a_clean_run_has_no_findings():
    running = train(mlp(), 400)
    assert running.findings == []
    assert running.step == 400
    outcomes = [covered.outcomes for covered in running.coverage.values()]
    assert {place for place, _ in running.coverage} == {"0 (Linear)", "2 (FaultyLinear)", "4 (Linear)"}
    assert sum(found["passed"] for found in outcomes) == sum(sum(found.values()) for found in outcomes) > 10


@pytest.mark.slow
@pytest.mark.parametrize("adam", [True, False])
def test_a_clean_run_of_a_convnet_has_no_findings(adam: bool):
    running = train(convnet(), 500, (3, 6, 6), adam=adam)
    assert running.findings == []


@pytest.mark.parametrize("fault", ALL_FAULTS, ids=NAMES)
def test_every_fault_of_a_weight_is_found(fault: Fault):
    running = train(mlp(fault), 500)
    (finding, *_) = running.findings
    assert (finding.operator, finding.argument) == ("2 (FaultyLinear)", "weight")
    expected = {
        "zero": {"LW401", "LW404"},
        "nan": {"LW403"},
        "odd-waves": {"LW401", "LW404"},
        "stale": {"LW404", "LW405"},
    }
    assert finding.code in expected.get(fault.name, {"LW404"})
    # What a stale buffer holds after a probe is the probe's own: its norm is another one.
    assert finding.evidence["false_alarm_probability"] < (0.1 if finding.code == "LW405" else 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ALL_FAULTS, ids=NAMES)
def test_every_fault_of_a_convolution_is_found(fault: Fault):
    running = train(convnet(fault), 500, (3, 6, 6))
    assert {(f.operator, f.argument) for f in running.findings} == {("3 (FaultyConv)", "weight")}


@pytest.mark.parametrize("name", ["zero", "nan", "one-row", "race"])
def test_a_fault_of_an_input_gradient_is_found_in_its_own_layer(name: str):
    (finding, *_) = train(mlp(find_fault(name), "input"), 500).findings
    assert (finding.operator, finding.argument) == ("2 (FaultyLinear)", "input")


# --- how often it looks


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_after_the_first_steps_close_looks_take_their_share_of_the_time(share: float, monkeypatch):
    """A step lasts two seconds here, and a close look one more."""
    clock, looks = [0.0], []
    monkeypatch.setattr(watcher, "FIRST", 8)
    monkeypatch.setattr(pace.time, "perf_counter", lambda: clock[0])

    def judged(self: Probing, step: int) -> list:
        looks.append(step)
        clock[0] += 1.0
        return []

    monkeypatch.setattr(Probing, "judge", judged)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(model, optimizer, every=2, share=share):
        for _ in range(50):
            clock[0] += 2.0
            optimizer.zero_grad()
            model(torch.randn(5, 3)).square().mean().backward()
            optimizer.step()
    later = looks[4:]
    assert looks[:4] == [0, 2, 4, 6]
    assert len(later) - 1 <= share * 2.0 * 50
    assert len(later) == {0.0: 0, 0.1: 10, 1.0: 21}[share]


def test_a_resumed_run_counts_on_and_is_looked_at_as_closely_as_a_new_one(tmp_path: Path):
    path, model = tmp_path / "watch.jsonl", mlp(ZERO)
    running = train(model, 60, every=10, share=0.0, step=1003, log=path)
    (finding,) = running.findings
    assert finding.evidence["step"] == 1040  # zero for 20 steps in 1030; the next look asks why
    assert running.step == 1041
    steps = [line["step"] for line in map(json.loads, path.read_text().splitlines())]
    assert (steps[0], steps[-1]) == (1003, 1041)
    assert {1010, 1020, 1030, 1040} <= set(steps)


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_after_the_first_steps_norms_take_half_of_that_share_but_are_there_at_every_look(share: float, monkeypatch):
    """A step lasts two seconds here, and its norms one more. On a CPU a step is looked into at once, which needs every
    one of them; so this watch does not."""
    clock, steps = [0.0], []
    monkeypatch.setattr(watcher, "FIRST", 8)
    monkeypatch.setattr(watcher, "Replay", lambda module: None)
    monkeypatch.setattr(pace.time, "perf_counter", lambda: clock[0])
    record = Norms.record

    def recorded(self: Norms, step: int, *args, **kwargs) -> None:
        steps.append(step)
        clock[0] += 1.0
        record(self, step, *args, **kwargs)

    monkeypatch.setattr(Norms, "record", recorded)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(model, optimizer, every=20, share=share, probe=False) as running:
        for _ in range(208):
            clock[0] += 2.0
            optimizer.zero_grad()
            model(torch.randn(5, 3)).square().mean().backward()
            optimizer.step()
    assert steps[:8] == list(range(8))
    assert set(range(20, 208, 20)) <= set(steps)
    assert len(steps) - 8 == {0.0: len(range(20, 208, 20)), 0.2: 44, 1.0: 200}[share]
    assert running.findings == []


# --- what it does to a run


def weights(watched: bool, **options) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 70), nn.BatchNorm1d(70), nn.Dropout(0.3), nn.ReLU(), nn.Linear(70, 2))
    optimizer = torch.optim.Adam(model.parameters())
    running = watch(model, optimizer, every=2, **options) if watched else None
    for _ in range(12):
        loss = model(torch.randn(9, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if running is not None:
        running.close()
    return [*model.state_dict().values(), torch.get_rng_state()]


def test_the_run_has_the_same_bits_and_random_numbers():
    for plain, seen in zip(weights(False), weights(True), strict=True):
        assert torch.equal(plain, seen)


def hooks(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    own = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules())
    steps = len(optimizer._optimizer_step_pre_hooks) + len(optimizer._optimizer_step_post_hooks)
    everywhere = torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks
    return own + steps + sum(map(len, everywhere))


@pytest.mark.parametrize("given", [True, False])
def test_nothing_is_left_after_close(given: bool):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    attention = F.scaled_dot_product_attention
    running = watch(model, optimizer if given else None, every=1)
    assert hooks(model, optimizer) >= 3
    assert F.scaled_dot_product_attention is attention  # it is not its turn
    model(torch.randn(3, 16)).sum().backward()
    optimizer.step()
    assert running.step == 1
    running.close()
    running.close()
    assert hooks(model, optimizer) == 0
    assert F.scaled_dot_product_attention is attention
    optimizer.step()
    assert running.step == 1


def test_without_an_optimizer_foreign_ones_do_not_count():
    model, other = mlp(), mlp()
    own, foreign = (torch.optim.SGD(m.parameters(), 0.1) for m in (model, other))
    with watch(model) as running:
        foreign.step()
        own.step()
    assert running.step == 1


def test_an_error_inside_the_block_leaves_no_hooks():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(ZeroDivisionError), watch(model, optimizer):
        raise ZeroDivisionError
    assert hooks(model, optimizer) == 0


# --- telling


def test_a_finding_is_warned_of_once():
    with pytest.warns(FindingWarning, match=r"LW401 2 \(FaultyLinear\).* in step 50") as caught:
        train(mlp(ZERO), 100, on_finding="warn", probe=False)
    assert len(caught) == 1


def test_a_finding_may_stop_the_run_before_the_update():
    model = mlp(find_fault("nan"))
    with pytest.raises(FindingError, match="LW403") as caught:
        train(model, 100, on_finding="raise")
    assert caught.value.finding.code == "LW403"
    assert caught.value.exit_code == 1
    assert all(bool(p.isfinite().all()) for p in model.parameters())


def test_a_finding_may_be_handed_to_a_function():
    found = []
    running = train(mlp(find_fault("scaled")), 500, on_finding=found.append)
    assert found == running.findings
    assert len(found) == 1


def test_the_log_has_a_line_for_everything(tmp_path: Path):
    path = tmp_path / "watch.jsonl"
    train(mlp(find_fault("one-entry")), 500, log=path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0]["event"] == "start"
    assert {"norms", "finding", "end"} <= {line["event"] for line in lines}
    (found,) = (line["finding"] for line in lines if line["event"] == "finding")
    assert (found["code"], found["argument"]) == ("LW404", "weight")
    assert found["evidence"]["looks_like"] == "LW103"
    assert lines[-1]["event"] == "end"
    assert lines[-1]["coverage"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every: got 0"),
        ({"step": -1}, "step: got -1"),
        ({"on_finding": "shout"}, "on_finding: got 'shout'"),
        ({"optimizer": [3]}, "int"),
    ],
)
def test_bad_arguments_are_refused(options: dict, message: str):
    with pytest.raises(InputError, match=message):
        Watch(mlp(), **options)


@pytest.mark.parametrize("model", [3, {}, nn.ReLU()])
def test_a_model_without_parameters_is_refused(model: object):
    with pytest.raises(InputError, match="model: got"):
        watch(model)  # type: ignore[arg-type]


# --- loops of other kinds


def test_gradient_accumulation():
    model = mlp(find_fault("half-the-terms"))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watch(model, optimizer, every=2, on_finding="ignore") as running:
        for _ in range(30):
            optimizer.zero_grad()
            for _ in range(3):
                model(torch.randn(8, 16)).square().mean().backward()
            optimizer.step()
    assert [f.code for f in running.findings] == ["LW404"]


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("name", ["scaled", None])
def test_activation_checkpointing(reentrant: bool, name: str | None):
    from torch.utils.checkpoint import checkpoint

    model = mlp(find_fault(name) if name else None)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watch(model, optimizer, every=2, on_finding="ignore") as running:
        for _ in range(24):
            x = torch.randn(8, 16, requires_grad=True)
            optimizer.zero_grad()
            checkpoint(model, x, use_reentrant=reentrant).square().mean().backward()
            optimizer.step()
    assert [f.code for f in running.findings] == (["LW404"] if name else [])
    assert len(running.coverage) >= 6


@pytest.mark.parametrize("name", ["half-the-terms", None])
def test_autocast(name: str | None):
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp(find_fault(name) if name else None)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return self.inner(x).float()

    running = train(Cast(), 300, every=10)
    assert [f.code for f in running.findings] == (["LW404"] if name else [])
    if name:
        assert running.findings[0].evidence["autocast"] == "torch.bfloat16"


def test_data_parallel(tmp_path: Path):
    def found() -> list[Finding]:
        return train(nn.parallel.DistributedDataParallel(mlp(find_fault("shifted"))), 300).findings

    findings = in_a_process_group(tmp_path, found)
    assert [(f.code, f.operator) for f in findings] == [("LW404", "module.2 (FaultyLinear)")]


@pytest.mark.slow
def test_a_compiled_model_is_watched_as_far_as_hooks_go():
    model = mlp()
    running = train(torch.compile(model, backend="eager"), 60)  # type: ignore[arg-type]
    assert running.findings == []
    assert running.step == 60
    assert not running.coverage
    assert any("compiled" in note for note in running.notes.values())


def test_a_mapping_whose_tensors_are_replaced():
    params = {name: torch.randn(200, 3, requires_grad=True) for name in ("means", "scales")}
    keep = torch.arange(260)[:, None] // 32 % 2 == 0
    with watch(params, [], every=5, on_finding="ignore") as running:
        for step in range(12):
            if step == 3:  # densification
                params.update({name: torch.randn(260, 3, requires_grad=True) for name in params})
            size = len(params["means"])
            gradients = {name: torch.randn(size, 3) for name in params}
            if size == 260:
                gradients["means"] *= keep
            running.before_step(gradients)
            with torch.no_grad():
                for name, p in params.items():
                    p -= gradients[name]
            running.after_step()
    (finding,) = running.findings
    assert (finding.code, finding.argument, finding.evidence["step"]) == ("LW401", "means", 5)
    assert finding.evidence["where"] == "row // 32 is odd"
