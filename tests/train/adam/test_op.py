from __future__ import annotations

import math

import pytest
import torch

from lanewise.audit.faults import FAULTS
from lanewise.audit.gate import GateError, require
from lanewise.errors import InputError
from lanewise.prove.training_gate import COUNTS, AdamState, Place, gate_adam
from lanewise.train.adam import adam_coefficients, adam_step

BETAS, EPS = (0.9, 0.999), 1e-8


def arguments(n: int = 3, dtype: torch.dtype = torch.float64, **changes: object) -> dict:
    g = torch.Generator().manual_seed(n)
    param, grad = (torch.randn(n, 2, generator=g, dtype=dtype) for _ in range(2))
    moments = {"exp_avg": torch.zeros(n, 2, dtype=dtype), "exp_avg_sq": torch.zeros(n, 2, dtype=dtype)}
    coefficients = torch.tensor(adam_coefficients(0.1, 1, BETAS), dtype=dtype)
    step = {"param": param, "grad": grad, **moments, "coefficients": coefficients, "betas": BETAS, "eps": EPS}
    return {**step, **changes}


def copies(values: dict) -> list[torch.Tensor]:
    return [values[name].clone() for name in ("param", "exp_avg", "exp_avg_sq")]


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.996), (0.6, 0.0)])
@pytest.mark.parametrize("shape", [(5,), (7, 3), (3, 15, 3), (0, 3), (1, 1)])
def test_the_steps_are_those_of_torch(betas: tuple[float, float], shape: tuple[int, ...]):
    g = torch.Generator().manual_seed(0)
    param = torch.randn(shape, generator=g, dtype=torch.float64)
    theirs = torch.nn.Parameter(param.clone())
    optimizer = torch.optim.Adam([theirs], lr=0.03, betas=betas, eps=1e-12)
    moments = [torch.zeros_like(param), torch.zeros_like(param)]
    for step in range(1, 8):
        theirs.grad = torch.randn(shape, generator=g, dtype=torch.float64)
        optimizer.step()
        coefficients = torch.tensor(adam_coefficients(0.03, step, betas), dtype=torch.float64)
        adam_step(param, theirs.grad, *moments, coefficients, betas=betas, eps=1e-12)
    state = optimizer.state[theirs]
    for ours, want in zip((param, *moments), (theirs.detach(), state["exp_avg"], state["exp_avg_sq"]), strict=True):
        torch.testing.assert_close(ours, want, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("N", COUNTS)
def test_float32_passes_the_gate(N: int):
    require(*gate_adam(AdamState((N, 3), selective=True), Place("auto")))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_gate_notices_a_faulty_gradient(fault):
    with pytest.raises(GateError, match="exp_avg"):
        require(*gate_adam(AdamState((97, 3)), Place("reference"), fault))


def test_invisible_rows_stay_and_visible_ones_step():
    visible = torch.tensor([True, False, True])
    chosen, everyone = arguments(visible=visible), arguments()
    before = copies(chosen)
    adam_step(**chosen)
    adam_step(**everyone)
    for old, got, full in zip(before, copies(chosen), copies(everyone), strict=True):
        assert torch.equal(got[1], old[1])
        assert torch.equal(got[visible], full[visible])
        assert not torch.equal(got[0], old[0])


def test_a_row_that_nobody_sees_may_have_any_gradient():
    values = arguments(visible=torch.tensor([True, False, True]))
    values["grad"][1] = torch.nan
    adam_step(**values)
    assert all(x.isfinite().all() for x in copies(values))


@pytest.mark.parametrize(("skip", "changes"), [(0, True), (1, False), (-3, False)])
def test_the_guard(skip: int, changes: bool):
    values = arguments(skip=torch.tensor([skip], dtype=torch.int32))
    if not changes:
        values["grad"].fill_(torch.nan)
    before = copies(values)
    adam_step(**values)
    assert all(torch.equal(old, new) != changes for old, new in zip(before, copies(values), strict=True))


def test_nan_gradients_poison_what_they_poison_in_torch():
    values = arguments()
    values["grad"][1, 0] = torch.nan
    adam_step(**values)
    assert all(torch.equal(x.isnan().nonzero(), torch.tensor([[1, 0]])) for x in copies(values))


def test_gradients_of_any_strides_and_leaves_that_need_a_gradient():
    strided, plain = arguments(), arguments()
    grad = torch.tensor(0.3, dtype=torch.float64).expand(3, 2)
    leaf = torch.nn.Parameter(strided["param"])
    adam_step(**{**strided, "param": leaf, "grad": grad})
    adam_step(**{**plain, "grad": grad.contiguous()})
    assert torch.equal(leaf.detach(), plain["param"])


def test_coefficients():
    assert adam_coefficients(0.1, 1, (0.9, 0.999)) == pytest.approx((1.0, 1 / math.sqrt(0.001)))
    assert adam_coefficients(0.1, 1, (0.0, 0.0)) == (0.1, 1.0)
    assert adam_coefficients(0.1, 10**6, (0.9, 0.999)) == pytest.approx((0.1, 1.0))
    with pytest.raises(InputError, match=r"^step: got 0, expected a number from 1 on"):
        adam_coefficients(0.1, 0, BETAS)
    with pytest.raises(InputError, match=r"^betas: "):
        adam_coefficients(0.1, 1, (0.9, 1.0))


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"param": torch.zeros((), dtype=torch.float64)}, "param"),
        ({"param": torch.zeros(3, 2, dtype=torch.int32)}, "param"),
        ({"param": torch.zeros(2, 3, dtype=torch.float64).T}, "param"),
        ({"grad": torch.zeros(3, 3, dtype=torch.float64)}, "grad"),
        ({"grad": torch.zeros(3, 2)}, "grad"),
        ({"grad": None}, "grad"),
        ({"exp_avg": torch.zeros(2, 2, dtype=torch.float64)}, "exp_avg"),
        ({"exp_avg_sq": torch.zeros(2, 3, dtype=torch.float64).T}, "exp_avg_sq"),
        ({"coefficients": torch.zeros(3, dtype=torch.float64)}, "coefficients"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"eps": math.nan}, "eps"),
        ({"visible": torch.zeros(3)}, "visible"),
        ({"visible": torch.zeros(2, dtype=torch.bool)}, "visible"),
        ({"visible": torch.zeros(3, dtype=torch.bool, device="meta")}, "visible"),
        ({"skip": torch.zeros(1)}, "skip"),
        ({"skip": torch.zeros((), dtype=torch.int32)}, "skip"),
        ({"backend": "triton"}, "backend"),
    ],
)
def test_bad_input_names_the_argument_and_changes_nothing(change: dict, argument: str):
    values = arguments(**change)
    before = copies(values)
    with pytest.raises(InputError, match=f"^{argument}: got .*, expected "):
        adam_step(**values)
    assert all(torch.equal(old, new) for old, new in zip(before, copies(values), strict=True))
