import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lanewise.audit import tolerance
from lanewise.audit.call import Call
from lanewise.audit.verdict import Context

X = torch.zeros(3)


def where(dtype=torch.float32, **changes):
    return Context("cpu", **{"dtype": dtype, "operands": dtype, "accumulation": torch.float32, **changes})


def test_unit_roundoff():
    assert tolerance.unit(torch.float32) == 2**-24
    assert tolerance.unit(torch.bfloat16) == 2**-8
    assert tolerance.unit(torch.float16) == tolerance.unit("tf32") == 2**-11


@pytest.mark.parametrize(
    ("dtype", "accumulation"),
    [(torch.float16, torch.float32), (torch.bfloat16, torch.float32), (torch.float64, torch.float64)],
)
def test_sums_are_assumed_in_float32_or_better_unless_the_call_knows_it_worse(dtype, accumulation):
    context = tolerance.context(Call(torch.sin, (X,)), X.to(dtype))
    assert (context.operands, context.accumulation, context.flags) == (dtype, accumulation, ())
    known = Call(torch.sin, (X,), accumulation=dtype)
    assert tolerance.context(known, X.to(dtype)).accumulation == dtype


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_shortens_the_operands(dtype):
    with torch.autocast("cpu", dtype=dtype):
        context = tolerance.context(Call(torch.sin, (X,)), X)
    assert (context.operands, context.accumulation) == (dtype, torch.float32)
    assert context.flags == (f"autocast.{str(dtype).removeprefix('torch.')}",)
    assert tolerance.least(context, 1, 1, 1) > 100 * tolerance.least(where(), 1, 1, 1)


def test_an_element_is_a_sum_of_one_term_or_more():
    call = Call(torch.sin, (X,))
    assert [tolerance.context(call, X).reduction, tolerance.context(call, X, reduction=0).reduction] == [1, 1]


@pytest.mark.parametrize("flag", ["reduced_precision_reduction", "fp16_accumulation"])
def test_either_of_two_flags_allows_sums_in_16_bits(flag, monkeypatch):
    monkeypatch.setattr(tolerance, "_flags", lambda device, dtype: (flag,))
    assert tolerance.context(Call(torch.sin, (X,)), X.half()).accumulation == torch.float16


@pytest.mark.parametrize(
    ("dtype", "settings", "flags"),
    [
        (torch.float32, {}, ()),
        (torch.float32, {"tf32": True}, ("matmul.tf32",)),
        (torch.float32, {"conv": True}, ("conv.tf32",)),
        (torch.float32, {"tf32": True, "conv": True}, ("matmul.tf32", "conv.tf32")),
        (torch.float64, {"tf32": True, "conv": True}, ()),
        (torch.float16, {}, ()),
        (torch.float16, {"fp16_reduced_precision_reduction": True}, ("reduced_precision_reduction",)),
        (torch.float16, {"bf16_reduced_precision_reduction": True}, ()),
        (torch.float16, {"fp16_accumulation": True}, ("fp16_accumulation",)),
        (torch.bfloat16, {"bf16_reduced_precision_reduction": True}, ("reduced_precision_reduction",)),
        (torch.bfloat16, {"fp16_accumulation": True}, ()),
    ],
)
def test_the_flags_of_a_gpu_are_those_of_the_dtype(dtype, settings, flags, monkeypatch):
    names = ("tf32", "fp16_accumulation", "fp16_reduced_precision_reduction", "bf16_reduced_precision_reduction")
    matmul = {f"allow_{name}": settings.get(name, False) for name in names}
    monkeypatch.setattr(torch.backends.cuda, "matmul", SimpleNamespace(**matmul))
    monkeypatch.setattr(torch.backends, "cudnn", SimpleNamespace(allow_tf32=settings.get("conv", False)))
    monkeypatch.setattr(tolerance, "_settable", lambda: True)
    assert tolerance._flags("cuda", dtype) == flags
    assert tolerance._flags("cpu", dtype) == ()


@pytest.mark.parametrize(
    ("precision", "flags"), [("highest", ()), ("high", ("mkldnn.tf32",)), ("medium", ("mkldnn.bfloat16",))]
)
def test_the_setting_for_short_products_counts_on_a_processor_that_has_them(precision, flags, monkeypatch):
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
    monkeypatch.setattr(tolerance, "_settable", lambda: True)
    assert tolerance._flags("cpu", torch.float32) == flags
    assert tolerance._flags("cpu", torch.float16) == tolerance._flags("mps", torch.float32) == ()
    monkeypatch.setattr(tolerance, "_settable", lambda: False)
    assert tolerance._flags("cpu", torch.float32) == ()


@pytest.mark.parametrize("library", [True, False])
@pytest.mark.parametrize("instructions", [True, False])
def test_short_products_take_a_library_and_instructions(library, instructions, monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: library)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: instructions, raising=False)
    assert tolerance._settable() == (library and instructions)


@pytest.mark.parametrize(("precision", "allowed"), [("ieee", False), ("tf32", True)])
def test_the_newer_setting_is_read_where_the_older_refuses(precision, allowed):
    class Backend:
        fp32_precision = precision

        @property
        def allow_tf32(self):
            raise RuntimeError("mix of the legacy and new APIs")

    assert tolerance._allows(Backend()) == allowed


@pytest.mark.parametrize(
    ("norm", "gain", "terms", "store"),
    [(0.0, 1.0, 1.0, 0.0), (1.0, 0.0, 1.0, 1.0), (2.0, 1.0, 2.0, 2.0), (1.0, 2.0, 2.0, 1.0)],
)
def test_the_rounding_of_terms_is_of_the_gradient_or_of_what_it_is_where_nothing_cancels(norm, gain, terms, store):
    u = 2**-24
    many = tolerance.least(where(reduction=2**20), norm, gain, 1)
    assert many == pytest.approx(u * math.hypot(terms * math.sqrt(21 / 3), store / math.sqrt(3)), rel=1e-6)
    short = tolerance.least(where(operands="tf32"), norm, gain, 1)
    assert short == pytest.approx(2**-11 * math.sqrt(2 / 3) * terms, rel=1e-6)
    in_turn = tolerance.sequential(where(reduction=2**20), norm, gain, 1)
    sums = terms * math.hypot(math.sqrt(2**20 / 6), math.sqrt(4 / 3))
    assert in_turn == pytest.approx(math.hypot(u * sums, many), rel=1e-6)
    kept = tolerance.sequential(where(operands="tf32"), norm, gain, 1)
    assert kept == pytest.approx(math.hypot(2**-11 * math.sqrt(4 / 3) * terms, short), rel=1e-6)


@pytest.mark.parametrize("n", [256, 1024, 65536])
@pytest.mark.parametrize("one_sided", [False, True])
def test_one_accumulator_errs_by_what_the_bound_says(n, one_sided):
    rng = np.random.default_rng(n)
    terms = rng.standard_normal((200, n)).astype(np.float32)
    terms = np.abs(terms) if one_sided else terms
    total = np.zeros(200, np.float32)
    for k in range(n):
        total += terms[:, k]
    error = np.linalg.norm(total - terms.sum(1, dtype=np.float64))
    norm = float(np.linalg.norm(total.astype(np.float64)))
    bound = tolerance.sequential(where(reduction=n), norm, norm, 200)
    assert 0.3 * bound < error < 1.1 * bound


def test_a_coherent_cotangent_may_cancel_after_it_has_grown():
    context = where(reduction=100, one_sided=True)
    assert tolerance.sequential(context, 0.0, 1.0, 1) == pytest.approx(
        tolerance.sequential(where(reduction=100), 10.0, 10.0, 1), rel=0.2
    )
    assert tolerance.sequential(context, 20.0, 1.0, 1) == pytest.approx(
        tolerance.sequential(where(reduction=100), 20.0, 1.0, 1)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_gradient_that_is_only_rounded_to_its_dtype_errs_by_the_least(dtype):
    x = torch.randn(10_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    error = float((x.to(dtype).double() - x).norm())
    norm = float(x.norm())
    assert 0.5 < error / tolerance.least(where(dtype), norm, norm, 10_000) < 1


def test_the_measured_error_serves_between_the_least_and_the_bound():
    assert tolerance.sigma(1.0, 10.0, 2.0, 1000) == 4  # with its safety
    assert tolerance.sigma(1.0, 10.0, 0.1, 1000) == 1
    assert tolerance.sigma(1.0, 10.0, 50.0, 1000) == 10
    assert tolerance.sigma(1.0, 10.0, 0.1, tolerance.FEW - 1) == 10
    assert tolerance.sigma(1.0, 10.0, 0.1, 32) == 1  # from so many elements on


def test_what_cancels_is_held_against_a_gradient_that_does_not():
    assert tolerance.composed(where(), 0.0, 2.0, 1) == 2 * tolerance.composed(where(), 1.0, 1.0, 1)
    assert tolerance.composed(where(torch.bfloat16), 1.0, 0.0, 1) == pytest.approx(2**-8 * math.sqrt(4 / 3), rel=1e-3)


def test_numbers_near_zero_lose_what_the_dtype_cannot_hold():
    x = torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 1e-7
    error = float((x.half().double() - x).norm())
    assert error < tolerance.LAMBDA * tolerance.least(where(torch.float16), float(x.norm()), float(x.norm()), 1000)
    assert error > tolerance.LAMBDA * 2**-11 * float(x.norm())


def test_only_half_precision_surely_has_subnormal_numbers():
    assert tolerance.spacing(torch.float16) == 2**-24
    assert tolerance.spacing(torch.float32) == tolerance.spacing(torch.bfloat16) == 2**-126


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_subnormal_follows_from_the_dtype(dtype):
    x = torch.full((50,), torch.finfo(dtype).smallest_normal, dtype=torch.float64)
    assert not tolerance.subnormal(1.01 * float(x.norm()), 50, dtype)
    assert tolerance.subnormal(0.99 * float(x.norm()), 50, dtype)
    assert not tolerance.subnormal(0.0, 0, dtype)
