"""All probes on healthy and on faulty operators, and what `probe` makes of what goes wrong on the way."""

import pytest
import torch
import torch.nn.functional as F
from audited import BATCH, CALLS, DTYPES, convolution, embedding, layer_norm, linear, values
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise import InputError
from lanewise.audit.call import Call
from lanewise.audit.faults import ALL_FAULTS, Fault, planted_call
from lanewise.audit.probes import PROBES, applicable, probe


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["normal", "one-sided", "huge"])
@pytest.mark.parametrize("make", CALLS, ids=lambda make: make.__name__)
def test_healthy_operators_raise_no_alarm(make, kind, dtype):
    call = make(kind=kind, dtype=dtype)
    verdicts = [probe(call, name, p) for name in call.names for p in applicable(call, name)]
    assert not [v for v in verdicts if v.outcome in ("failed", "skipped")]


@pytest.mark.parametrize("make", [linear, convolution, embedding, layer_norm], ids=lambda make: make.__name__)
@pytest.mark.parametrize("fault", ALL_FAULTS, ids=lambda fault: fault.name)
def test_every_fault_is_found(make, fault):
    call = make()
    name = call.names[-1]
    found = [p for p in applicable(call, name) if probe(planted_call(call, name, fault), name, p).outcome == "failed"]
    assert "truth" in found
    assert applicable(call, name)[0] in found


@pytest.mark.parametrize("make", [linear, embedding, layer_norm], ids=lambda make: make.__name__)
def test_one_infinite_element_is_found_by_every_probe(make):
    """Its norm is infinite, and so is what rounding may do to a gradient of that norm."""

    def spoil(grad):
        out = grad.clone()
        out[0, 5] = torch.inf
        return out

    call = make()
    name = call.names[-1]
    faulty = planted_call(call, name, Fault("infinite", "LW102", "", spoil))
    codes = {p: probe(faulty, name, p).code for p in applicable(call, name) if p != "poison"}
    assert set(codes.values()) == {"LW102"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("fault", ALL_FAULTS, ids=lambda fault: fault.name)
def test_every_fault_is_found_in_16_bits(fault, dtype):
    if fault.name == "bf16-sum" or (fault.name, dtype) == ("scaled", torch.bfloat16):
        pytest.skip("smaller than rounding to 16 bits")
    call = linear(dtype=dtype)
    assert any(probe(planted_call(call, "1", fault), "1", p).outcome == "failed" for p in applicable(call, "1"))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 70),
    st.integers(1, 40),
    st.integers(1, 60),
    st.sampled_from(DTYPES),
    st.sampled_from(["normal", "one-sided", "positive", "huge"]),
    st.sampled_from(["contiguous", "strided", "transposed", "expanded", "ones"]),
    st.integers(0, 10**6),
)
def test_no_shape_sign_or_layout_raises_an_alarm(n, m, k, dtype, kind, layout, seed):
    x, w = values(n, k, seed=seed, kind=kind, dtype=dtype), values(m, k, seed=seed, kind=kind, dtype=dtype)
    call = Call(F.linear, (x, w), linear=("0", "1"), batch=BATCH, cotangent=layout)
    for name in ("0", "1"):
        for p in ("adjoint", "jvp", "exact", "slices", "truth"):
            assert probe(call, name, p, seed=seed).outcome != "failed"


@pytest.mark.parametrize("name", PROBES)
def test_three_directions_from_seed_0_are_the_default(name):
    call = linear()
    stated = PROBES[name](call, "1", probes=3, seed=0)
    assert PROBES[name](call, "1") == probe(call, "1", name) == stated
    assert stated.probes == 3
    assert PROBES[name](call, "1", seed=1) != stated


def test_what_applies_depends_on_what_is_known():
    assert applicable(linear(), "1") == ("adjoint", "exact", "slices", "truth", "repeats", "poison")
    assert applicable(Call(torch.sin, (values(3),)), "0") == ("jvp", "truth", "repeats", "poison")
    assert set(PROBES) == {"jvp", *applicable(linear(), "1")}


def test_a_forward_that_refuses_is_skipped_and_a_backward_that_raises_fails():
    refused = probe(Call(F.linear, (values(3, 4), values(3, 5))), "0", "jvp")
    assert refused.outcome == "skipped"
    assert "the forward raised RuntimeError: mat1 and mat2" in refused.reason

    class Loud(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, *grads):
            raise ValueError("no")

    failed = probe(Call(Loud.apply, (values(3),)), "0", "jvp")
    assert (failed.outcome, failed.code) == ("failed", None)
    assert failed.reason == "the backward raised ValueError: no"


def test_out_of_memory_is_inconclusive():
    def fn(x):
        raise torch.OutOfMemoryError("40 GiB")

    verdict = probe(Call(fn, (values(3),)), "0", "jvp")
    assert (verdict.outcome, verdict.reason) == ("inconclusive", "out of memory: 40 GiB")


@pytest.mark.parametrize("name", PROBES)
def test_nothing_to_probe_is_skipped(name):
    empty = Call(F.linear, (values(0, 4), values(3, 4)), linear=("0", "1"), batch=BATCH)
    assert probe(empty, "0", name).outcome == "skipped"
    unused = Call(lambda x, y: x * 2, (values(3), values(3)), linear=("0", "1"), batch=BATCH)
    assert probe(unused, "1", name).outcome == "skipped"


def test_errors():
    with pytest.raises(InputError, match="probe: got 'x', expected one of adjoint, jvp"):
        probe(linear(), "0", "x")
    with pytest.raises(InputError, match="argument: got 'x', expected one of 0, 1"):
        probe(linear(), "x", "jvp")
