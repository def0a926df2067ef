from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import utils
from torch.nn.utils import clip_grad
from watched import mlp

from lanewise.audit import watch
from lanewise.audit.faults import find_fault

ORIGINAL = utils.clip_grad_norm_


def run(model: nn.Module, steps: int, clip: Callable[[nn.Module], object], scale: Callable[[int], float], **options):
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with watch(model, optimizer, on_finding="ignore", **options) as running:
        for step in range(steps):
            optimizer.zero_grad()
            (model(torch.randn(8, 16)).square().mean() * scale(step)).backward()
            clip(model)
            optimizer.step()
    return running


@pytest.mark.parametrize(
    "clip",
    [
        lambda model: utils.clip_grad_norm_(model.parameters(), 0.1),
        lambda model: clip_grad.clip_grad_norm_(parameters=list(model.parameters()), max_norm=0.1),
        lambda model: [utils.clip_grad_norm_(p, 0.1) for p in model.parameters()],
    ],
    ids=["attribute", "keyword", "each alone"],
)
def test_the_origin_of_nan_is_not_lost_in_clipping(clip):
    running = run(mlp(find_fault("nan")), 3, clip, lambda step: 1.0)
    (finding,) = running.findings
    assert (finding.code, finding.operator, finding.argument) == ("LW403", "2 (FaultyLinear)", "weight")
    assert "in a parameter's gradient alone" in str(finding.cause)


def test_with_a_function_that_nobody_sees_the_finding_says_so():
    running = run(mlp(find_fault("nan")), 3, lambda model: ORIGINAL(model.parameters(), 0.1), lambda step: 1.0)
    (finding,) = running.findings
    assert finding.evidence["finite"] == 0
    assert "torch.nn.utils.clip_grad_norm_" in str(finding.cause)


def test_a_jump_is_one_from_before_clipping():
    running = run(
        mlp(),
        100,
        lambda model: utils.clip_grad_norm_(model.parameters(), 1e-3),
        lambda step: 1e4 if step == 90 else 1.0,
        every=5,
        probe=False,
    )
    (finding,) = running.findings
    assert (finding.code, finding.evidence["step"]) == ("LW405", 90)


def test_norms_of_a_clipping_are_for_its_step_alone():
    """The first layer is clipped in the first step, and its norm in the second is that of the second."""
    model, norms = mlp(), []
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with watch(model, optimizer, every=1, on_finding="ignore", probe=False) as running:
        running._judge_norms = norms.append  # type: ignore[method-assign]
        for step in range(2):
            for p in model.parameters():
                p.grad = torch.full_like(p, 2.0 + step)
            if step == 0:
                utils.clip_grad_norm_(model[0].parameters(), 0.1)
            optimizer.step()
    counts = torch.tensor([float(p.numel()) for p in model.parameters()]).sqrt()
    for step, block in enumerate(norms):
        torch.testing.assert_close(block.values[0].float(), counts * (2 + step))


def test_norms_of_a_clipping_of_several_optimizers_are_for_each_of_their_steps():
    """The parameters are clipped together, and stepped in two parts, the later layers first."""
    model, norms = mlp(), []
    parts = [model[4].parameters(), [*model[0].parameters(), *model[2].parameters()]]
    optimizers = [torch.optim.SGD(part, 1e-3) for part in parts]
    with watch(model, optimizers, every=1, on_finding="ignore", probe=False) as running:
        running._judge_norms = norms.append  # type: ignore[method-assign]
        for i, p in enumerate(model.parameters()):
            p.grad = torch.zeros_like(p)
            p.grad.view(-1)[0] = 1.0 + i
        utils.clip_grad_norm_(model.parameters(), 0.1)
        for optimizer in optimizers:
            optimizer.step()
    assert [block.values[0].tolist() for block in norms] == [[-1, -1, -1, -1, 5, 6], [1, 2, 3, 4, -1, -1]]


@pytest.mark.parametrize("which", ["generator", "one", "none"])
def test_what_is_clipped_has_the_same_bits(which: str):
    def clipped(clip: Callable[..., Tensor]) -> list[Tensor | None]:
        model = mlp()
        model(torch.ones(4, 16)).sum().backward()
        given = {"generator": model.parameters(), "one": model[0].weight, "none": []}[which]
        return [clip(given, 0.1), *(p.grad for p in model.parameters())]

    plain = clipped(ORIGINAL)
    with watch(mlp(), []):
        seen = clipped(utils.clip_grad_norm_)
    torch.testing.assert_close(plain, seen, rtol=0, atol=0)


def test_the_last_watch_that_closes_puts_torchs_function_back():
    first, second = watch(mlp(), []), watch(mlp(), [])
    assert utils.clip_grad_norm_ is clip_grad.clip_grad_norm_ is not ORIGINAL
    first.close()
    assert utils.clip_grad_norm_ is not ORIGINAL
    second.close()
    first.close()
    assert utils.clip_grad_norm_ is clip_grad.clip_grad_norm_ is ORIGINAL
