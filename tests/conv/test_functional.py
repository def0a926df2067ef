import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from lanewise import conv
from lanewise.audit.gate import gate, require
from lanewise.conv import vendor
from lanewise.errors import InputError, UnsupportedError

TORCH = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
OURS = {1: conv.conv1d, 2: conv.conv2d, 3: conv.conv3d}
TORCH_T = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
OURS_T = {1: conv.conv_transpose1d, 2: conv.conv_transpose2d, 3: conv.conv_transpose3d}
UNIT = {torch.float32: 2e-6, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6, torch.float64: 1e-14}


def with_gradients(function, tensors, v, options):
    leaves = [t.detach().clone(memory_format=torch.preserve_format).requires_grad_() for t in tensors]
    y = function(*leaves, **options)
    return y, *torch.autograd.grad(y, leaves, v(y))


def compare(ours, torchs, tensors, options, *, window=None, v=None, dtype=torch.float32):
    """Result and gradients beside torch's in fp64, with an upstream gradient that `v` lays out."""

    def upstream(y):
        made = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype)
        return made if v is None else v(made)

    got = with_gradients(ours, tensors, upstream, {**options, "window_bytes": window})
    want = with_gradients(torchs, [t.double() for t in tensors], lambda y: upstream(got[0]).double(), options)
    # A gradient of one or two numbers may cancel: then rounding is that of its terms, which these are the sums of.
    terms = with_gradients(
        torchs, [t.double().abs() for t in tensors], lambda y: upstream(got[0]).double().abs(), options
    )
    for name, a, b, sums in zip(("y", "dx", "dw", "db"), got, want, terms, strict=False):
        assert a.dtype == dtype
        rounding = 4 * torch.finfo(dtype).eps * float(sums.detach().norm() / b.detach().norm()) if b.any() else 0.0
        require(gate(name, a, b, floor=max(UNIT[dtype], rounding)))
    return got


@st.composite
def calls(draw):
    """A convolution as somebody writes it, transposed or not."""
    dims, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    transposed = draw(st.booleans())

    def size(low, high):
        return draw(st.one_of(st.integers(low, high), st.tuples(*[st.integers(low, high)] * dims)))

    options = {"stride": size(1, 3), "dilation": size(1, 2), "padding": size(0, 2), "groups": groups}
    kernel = [draw(st.integers(1, 3)) for _ in range(dims)]
    extents = [draw(st.integers(5, 7)) for _ in range(dims)]
    c, k = (groups * draw(st.integers(1, 2)) for _ in range(2))
    if transposed:
        options["output_padding"] = size(0, 1)
        weight = (c, k // groups, *kernel)
    else:
        weight = (k, c // groups, *kernel)
        if draw(st.booleans()):
            options["padding"] = "valid"
        elif draw(st.booleans()):
            options |= {"padding": "same", "stride": 1}
    batch = draw(st.sampled_from([(), (1,), (3,)]))
    return dims, transposed, options, (*batch, c, *extents), weight, k


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@settings(max_examples=150, deadline=None)
@given(calls(), st.sampled_from([None, 400, 1500]), st.booleans())
def test_results_and_gradients_are_torchs(call, window, biased):
    dims, transposed, options, shape, weight, k = call
    torch.manual_seed(0)
    tensors = [torch.randn(shape), torch.randn(weight)] + [torch.randn(k)] * biased
    ours, torchs = (OURS_T, TORCH_T) if transposed else (OURS, TORCH)
    try:
        torchs[dims](*tensors, **options)
    except RuntimeError as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            ours[dims](*tensors, **options)
        return
    try:
        compare(ours[dims], torchs[dims], tensors, options, window=window)
    except UnsupportedError:  # what a position of x is seen by, with all that this sees, may take more than 1500 bytes
        assert window == 400 or (window == 1500 and dims == 3)


@pytest.mark.parametrize("dtype", UNIT)
@pytest.mark.parametrize("window", [None, 2000])
def test_every_dtype(dtype, window):
    x, w, b = (torch.randn(s).to(dtype) for s in ((4, 6, 8, 8), (4, 6, 3, 3), (4,)))
    compare(conv.conv2d, F.conv2d, [x, w, b], {"padding": 1}, window=window, dtype=dtype)


@pytest.mark.parametrize("window", [None, 2000])
@pytest.mark.parametrize("which", ["input", "weight", "both", "strided"])
def test_layouts_are_kept_as_torch_keeps_them(which, window):
    x, w, b = torch.randn(4, 6, 8, 8), torch.randn(4, 6, 3, 3), torch.randn(4)
    last = {"memory_format": torch.channels_last}
    if which in ("input", "both"):
        x = x.contiguous(**last)
    if which in ("weight", "both"):
        w = w.contiguous(**last)
    if which == "strided":
        x = torch.randn(4, 6, 8, 16)[..., ::2]
    y, dx, dw, _ = compare(conv.conv2d, F.conv2d, [x, w, b], {"padding": 1}, window=window)
    assert y.is_contiguous(**last) == F.conv2d(x, w, b, padding=1).is_contiguous(**last) == (which != "strided")
    assert dx.is_contiguous(**last) == x.is_contiguous(**last)
    assert dw.is_contiguous(**last) == w.is_contiguous(**last)


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_single_channel_has_the_order_that_it_was_made_in(channels_last):
    """Its numbers lie in memory alike in both; the result's are torch's way of telling."""
    x = torch.randn(2, 1, 6, 7)
    x = x.to(memory_format=torch.channels_last) if channels_last else x
    assert x.is_contiguous()
    w = torch.randn(5, 1, 3, 3)
    y = conv.conv2d(x, w)
    assert y.is_contiguous() != channels_last
    assert y.stride() == F.conv2d(x, w).stride()
    require(gate("y", y, F.conv2d(x.double(), w.double()), floor=1e-6))


def test_channels_last_in_three_dimensions():
    x, w = torch.randn(2, 4, 5, 6, 7).contiguous(memory_format=torch.channels_last_3d), torch.randn(3, 4, 2, 3, 3)
    for window in (None, 3000):
        y, *_ = compare(conv.conv3d, F.conv3d, [x, w], {"padding": 1}, window=window)
        assert y.is_contiguous(memory_format=torch.channels_last_3d)


@pytest.mark.parametrize("window", [None, 600])
@pytest.mark.parametrize(
    "v",
    [
        lambda v: v[:1, :1, :1, :1].expand_as(v),
        lambda v: torch.zeros_like(v),
        lambda v: v.contiguous(memory_format=torch.channels_last),
        lambda v: torch.empty(*v.shape[:3], 2 * v.shape[3])[..., ::2].copy_(v),
        lambda v: v.flip(3),
    ],
    ids=["expanded", "zero", "channels last", "strided", "flipped"],
)
def test_any_upstream_gradient(v, window):
    x, w, b = torch.randn(4, 6, 8, 8), torch.randn(4, 6, 3, 3), torch.randn(4)
    compare(conv.conv2d, F.conv2d, [x, w, b], {"padding": 1}, window=window, v=v)


@pytest.mark.parametrize("ours", [conv.conv2d, conv.conv_transpose2d])
def test_an_empty_batch_has_an_empty_result_and_zero_gradients(ours):
    x, w, b = torch.randn(0, 4, 8, 8), torch.randn(4, 4, 3, 3), torch.randn(4)
    y, dx, dw, db = with_gradients(ours, [x, w, b], torch.ones_like, {})
    assert y.shape == (0, 4, *([6, 6] if ours is conv.conv2d else [10, 10]))
    assert dx.shape == x.shape
    assert not dw.any()
    assert not db.any()


def test_no_channels_are_torchs_business():
    x, w = torch.randn(2, 0, 8, 8), torch.randn(4, 0, 3, 3)
    assert conv.conv2d(x, w).shape == F.conv2d(x, w).shape


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((2, 3, 5, 5), (4, 4, 3, 3), {}),
        ((2, 3, 5, 5), (4, 3, 7, 7), {}),
        ((2, 3, 5, 5), (0, 3, 3, 3), {}),
        ((2, 3, 5, 0), (4, 3, 3, 3), {"padding": 2}),
        ((5, 5), (4, 3, 3, 3), {}),
        ((2, 3, 5, 5), (4, 3, 3), {}),
        ((2, 3, 5, 5), (4, 3, 3, 3), {"padding": "same", "stride": 2}),
        ((2, 3, 5, 5), (4, 3, 3, 3), {"padding": "full"}),
        ((2, 3, 5, 5), (4, 3, 3, 3), {"padding": -1}),
        ((2, 3, 5, 5), (4, 3, 3, 3), {"stride": 0}),
        ((2, 3, 5, 5), (4, 3, 3, 3), {"stride": (1, 1, 1)}),
        ((2, 3, 5, 5), (4, 3, 3, 3), {"dilation": 0}),
        ((2, 3, 5, 5), (4, 3, 3, 3), {"groups": 0}),
        ((2, 3, 5, 5), (4, 3, 3, 3), {"bias": torch.zeros(5)}),
        ((2, 4, 5, 5), (3, 2, 3, 3), {"groups": 2}),
    ],
)
def test_what_torch_refuses_is_refused_with_its_words(x, w, options):
    x, w = torch.randn(x), torch.randn(w)
    with pytest.raises((RuntimeError, TypeError)) as torchs:
        F.conv2d(x, w, **options)
    with pytest.raises(torchs.type) as ours:
        conv.conv2d(x, w, **options)
    assert str(ours.value) == str(torchs.value)


def test_what_torch_refuses_of_transposed_ones_and_of_dtypes():
    x, w = torch.randn(2, 3, 5, 5), torch.randn(3, 4, 3, 3)
    for options in ({"output_padding": 1}, {"padding": 4}, {"groups": 2}, {"bias": torch.zeros(3)}):
        with pytest.raises(RuntimeError) as torchs:
            F.conv_transpose2d(x, w, **options)
        with pytest.raises(torchs.type, match=re.escape(str(torchs.value))):
            conv.conv_transpose2d(x, w, **options)
    with pytest.raises(RuntimeError, match=r"should be the same|expected scalar type"):
        conv.conv2d(x, torch.randn(3, 3, 3, 3, dtype=torch.float64))
    with pytest.raises(TypeError, match=r"must be Tensor|invalid combination"):
        conv.conv2d([1.0], x)
    with pytest.raises(TypeError, match="invalid combination"):
        conv.conv2d(x, torch.randn(4, 3, 3, 3), stride=1.5)


def test_complex_numbers_are_torchs_business_and_have_to_fit():
    x, w = torch.randn(2, 3, 5, 5, dtype=torch.complex64), torch.randn(4, 3, 3, 3, dtype=torch.complex64)
    assert torch.equal(conv.conv2d(x, w), F.conv2d(x, w))
    with pytest.raises(UnsupportedError, match=r"input of torch.complex64 \[2, 3, 5, 5\], 1,200 bytes"):
        conv.conv2d(x, w, window_bytes=1000)


def test_options_are_checked():
    x, w = torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3)
    with pytest.raises(InputError, match="precision: got 'bf16', expected 'fp32', 'tf32' or None"):
        conv.conv2d(x, w, precision="bf16")
    with pytest.raises(InputError, match="window_bytes: got 0"):
        conv.conv_transpose2d(x.repeat(1, 4, 1, 1)[:, :4], w, window_bytes=0)
    with pytest.raises(UnsupportedError, match=r"window of 35 bytes.*Fix: window_bytes=36 or more"):
        conv.conv2d(x, w, window_bytes=35)


def test_autocast_casts_as_it_does_for_torch():
    x, w, b = torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3, requires_grad=True), torch.randn(4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = conv.conv2d(x, w, b)
        assert torch.equal(y, F.conv2d(x, w, b))
        assert conv.conv_transpose2d(y, w).dtype == torch.bfloat16
        assert conv.conv2d(x.double(), w.double()).dtype == torch.float64
        y.float().sum().backward()
    assert w.grad is not None
    assert w.grad.dtype == torch.float32


def test_only_the_gradients_that_are_asked_for_are_made(monkeypatch):
    made = []
    for name in ("forward", "input_grad", "weight_grad"):
        run = getattr(vendor, name)
        monkeypatch.setattr(vendor, name, lambda *given, name=name, run=run: made.append(name) or run(*given))
    x, w = torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3, requires_grad=True)
    conv.conv2d(x, w).sum().backward()
    assert made == ["forward", "weight_grad"]
    made.clear()
    conv.conv2d(x.requires_grad_(), w.detach()).sum().backward()
    assert made == ["forward", "input_grad"]


@pytest.mark.parametrize("function", [conv.conv2d, conv.conv_transpose2d])
def test_tensors_without_memory_have_the_shape_that_torchs_have(function):
    """Of any size: no window bounds what is not in memory."""
    x = torch.empty(64, 96, 4096, 4096, device="meta", requires_grad=True)
    w = torch.empty(96, 96, 3, 3, device="meta", requires_grad=True)
    y = function(x, w, None, 2, 1)
    assert y.device == x.device
    assert y.shape == getattr(F, function.__name__)(x, w, None, 2, 1).shape
    y.sum().backward()
    assert (x.grad.shape, w.grad.shape) == (x.shape, w.shape)
