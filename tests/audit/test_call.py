import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lanewise import InputError
from lanewise.audit.call import Call, ForwardError, lay_out

G = torch.Generator().manual_seed(0)
X, W, B = (torch.randn(shape, generator=G) for shape in ((5, 3), (4, 3), (4,)))
LINEAR = Call(F.linear, (X, W), {"bias": B}, linear=("0", "1", "bias"), batch={"0": 0, "output": 0})


def test_arguments_are_named_by_place_keyword_parameter_and_place_in_a_list():
    assert LINEAR.names == ("0", "1", "bias")
    assert Call(torch.cat, ([X, X[:2]],)).names == ("0.0", "0.1")
    assert Call(nn.Sequential(nn.Linear(3, 4)), (X,)).names == ("0", "0.weight", "0.bias")
    assert Call(F.embedding, (torch.tensor([1, 2]), W)).names == ("1",)
    assert Call(F.linear, (X, W), wrt=("1",)).names == ("1",)
    with pytest.raises(InputError, match=r"argument: got 'weight', expected one of 0, 1, bias\."):
        LINEAR.value("weight")


@pytest.mark.parametrize(
    "call",
    [LINEAR, Call(torch.cat, ([X, X[:2]],)), Call(nn.Linear(3, 4), (X,)), Call(lambda x: {"a": (x.sin(),)}, (X,))],
)
def test_gradients_are_autograds(call):
    leaves, outputs = call.graph()
    v = call.cotangents(outputs, G)
    want = torch.autograd.grad(outputs, tuple(leaves.values()), v)
    got = call.gradient(v)
    assert list(got) == list(call.names)
    assert all(torch.equal(got[name], g) for name, g in zip(call.names, want, strict=True))
    assert not any(call.value(name).grad is not None for name in call.names)


def test_an_argument_can_be_replaced_and_one_that_does_not_matter_has_no_gradient():
    zero = LINEAR.output({"0": torch.zeros_like(X)})[0]
    assert torch.equal(zero, B.expand(5, 4))
    call = Call(lambda x, y: x * 2, (X, X))
    assert list(call.gradient((X,))) == ["0"]
    assert Call(lambda x: x.detach(), (X,)).gradient((X,)) == {}


def test_a_modules_running_statistics_stay_and_dropout_drops_the_same():
    norm = nn.BatchNorm1d(3)
    Call(norm, (X,)).gradient((X,))
    assert norm.running_mean is not None
    assert torch.equal(norm.running_mean, torch.zeros(3))
    before = torch.get_rng_state()
    drop = Call(F.dropout, (X,))
    assert torch.equal(drop.output()[0], drop.output()[0])
    assert torch.equal(torch.get_rng_state(), before)


def test_double_is_the_same_call_in_float64():
    for call in (LINEAR, Call(nn.Linear(3, 4), (X,))):
        (out,) = call.double().output()
        assert out.dtype == torch.float64
        torch.testing.assert_close(out.float(), call.output()[0])
    reference = Call(lambda x: x.half(), (X,), reference=torch.sin)
    assert torch.equal(reference.double().output()[0], X.double().sin())


def test_cotangents_are_exact_at_every_scale_and_ones_are_ones():
    outputs = (torch.zeros(1000, dtype=torch.bfloat16),)
    (v,) = LINEAR.cotangents(outputs, torch.Generator().manual_seed(1))
    assert all(torch.equal((v * c).double(), v.double() * c) for c in (0.625, 0.75, 0.875))
    assert 0.9 < v.double().std() < 1.1
    (ones,) = Call(F.linear, (X, W), cotangent="ones").cotangents(outputs, G)
    assert torch.equal(ones, torch.ones_like(ones))


def test_a_parameter_can_be_replaced():
    call = Call(nn.Linear(3, 4), (X,)).replaced({"weight": W, "bias": B})
    torch.testing.assert_close(call.output()[0], F.linear(X, W, B))
    assert torch.equal(call.value("weight"), W)


def test_a_forward_that_raises_says_so():
    with pytest.raises(ForwardError, match="the forward raised RuntimeError: mat1 and mat2 shapes"):
        Call(F.linear, (X, X.T)).output()


def test_entries_of_the_batch():
    (whole,) = LINEAR.output()
    (part,) = LINEAR.entries(2, 5).output()
    torch.testing.assert_close(part, whole[2:5])
    embedding = Call(F.embedding, (torch.tensor([2, 0, 1]), W), batch={"0": 0, "output": 0})
    assert torch.equal(embedding.entries(1, 3).output()[0], W[:2])
    with pytest.raises(InputError, match="batch: got None"):
        Call(F.linear, (X, W)).entries(0, 1)


@pytest.mark.parametrize("layout", ["contiguous", "strided", "transposed", "channels_last", "expanded", "ones"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (0, 3), (3, 0)])
def test_layouts_change_the_memory_and_not_the_values(layout, shape):
    x = torch.randn(shape, generator=G)
    out = lay_out(x, layout)
    assert out.shape == x.shape
    want = {
        "ones": x.flatten()[:1].expand(x.numel()).reshape(shape) if x.numel() else x,
        "expanded": (x[:1] if x.dim() else x).expand(shape),
    }.get(layout, x)
    assert torch.equal(out, want)
    if x.numel() > 1 and x.dim() > 1:
        strides = {
            "strided": (24, 8, 2),
            "transposed": (1, 2, 6),
            "channels_last": (12, 1, 3),
            "expanded": (0, 4, 1),
            "ones": (0, 0, 0),
        }
        assert out.stride() == strides.get(layout, (12, 4, 1))
