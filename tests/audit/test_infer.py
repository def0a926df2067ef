import pytest
import torch
import torch.nn.functional as F
from audited_functions import healthy
from torch import nn

from lanewise.audit.call import OUTPUT, Call
from lanewise.audit.case import Case
from lanewise.audit.infer import independent_batch, linear_arguments, spec_of
from lanewise.errors import InputError

X, W = torch.randn(8, 16), torch.randn(4, 16)


def call_of(spec, **sizes):
    return Case(spec.name, tuple({**spec.sizes, **sizes}.items())).call(spec)


def test_sizes_that_are_equal_vary_together_and_ones_stay():
    spec = spec_of(lambda x, w, b: x @ w.T + b, (X, W, torch.randn(1, 4)))
    assert spec.sizes == {"s4": 4, "s8": 8, "s16": 16}
    assert [tensor.dims for tensor in spec.inputs] == ["s8 s16", "s4 s16", "1 s4"]
    assert call_of(spec, s16=33, s8=5).output()[0].shape == (5, 4)


def test_numbers_of_a_shape_follow_the_sizes():
    spec = spec_of(F.layer_norm, (X, (16,)), {"weight": torch.ones(16)})
    assert call_of(spec, s16=31).output()[0].shape == (8, 31)


def test_the_example_itself_is_what_the_user_gave():
    spec = spec_of(healthy, (X, W))
    inputs = Case(spec.name, tuple(spec.sizes.items()), values="example").inputs(spec)
    assert torch.equal(inputs["x"], X)
    assert inputs["x"].data_ptr() != X.data_ptr()


def test_wrt_none_is_every_floating_tensor_and_every_parameter():
    layer = nn.Sequential(nn.Linear(16, 4), nn.BatchNorm1d(4))
    spec = spec_of(layer, (X,))
    assert spec.differentiable == ("input", "0.weight", "0.bias", "1.weight", "1.bias")
    assert call_of(spec, s16=17).output()[0].shape == (8, 4)


@pytest.mark.parametrize(("wrt", "names"), [(1, ("w",)), ("x", ("x",)), (["w", 0], ("w", "x"))])
def test_wrt_takes_names_and_places(wrt, names):
    assert set(spec_of(healthy, (X, W), wrt=wrt).differentiable) == set(names)


def test_wrt_that_is_not_there_is_refused():
    with pytest.raises(InputError, match=r"wrt: got 'v', expected some of x, w"):
        spec_of(healthy, (X, W), wrt="v")


def test_nothing_to_differentiate_is_refused():
    with pytest.raises(InputError, match="at least one to differentiate"):
        spec_of(lambda i: i, (torch.arange(3),))


def test_indices_stay_below_every_size_that_was_above_them():
    spec = spec_of(F.embedding, (torch.tensor([0, 3, 9]), torch.randn(10, 6)))
    for vocabulary in (3, 11, 100):
        index = Case("embedding", tuple({**spec.sizes, "s10": vocabulary}.items())).inputs(spec)["input"]
        assert 0 <= int(index.min()) <= int(index.max()) < vocabulary


def test_values_keep_the_range_of_the_example():
    spec = spec_of(torch.log, (torch.rand(50) + 2,))
    drawn = Case("log", tuple(spec.sizes.items())).inputs(spec)
    assert all(float(t.min()) >= 2 and float(t.max()) <= 3 for t in drawn.values())


def test_running_statistics_stay_as_they_are():
    layer = nn.BatchNorm1d(16)
    call_of(spec_of(layer, (X,))).output()
    assert torch.equal(layer.running_mean, torch.zeros(16))


@pytest.mark.parametrize(
    ("fn", "linear"),
    [
        (lambda x, w: x @ w.T + 1, ("x", "w")),
        (lambda x, w: x @ w.T.relu(), ("x",)),
        (lambda x, w: x.abs() @ w.T, ("w",)),
        (lambda x, w: (x @ w.T).sqrt(), ()),
        (lambda x, w: x @ w.T + 1e-3 * x.sum() ** 2, ("w",)),
    ],
)
def test_where_a_function_is_affine_shows(fn, linear):
    for positive in (X, X.abs()):  # relu and abs are affine on positive numbers, and only there
        call = Call(fn, kwargs={"x": positive, "w": W}, wrt=("x", "w"))
        assert linear_arguments(call, call.names) == linear


@pytest.mark.parametrize(
    ("fn", "batch"),
    [
        (lambda x, w: x @ w.T, {"x": 0, OUTPUT: 0}),
        (lambda x, w: (x @ w.T).softmax(0), None),
        (lambda x, w: (x @ w.T).sum(0), None),
        (lambda x, w: (x @ w.T).T, None),
    ],
)
def test_whether_entries_are_independent_shows(fn, batch):
    assert independent_batch(Call(fn, kwargs={"x": X, "w": W}, wrt=("x",))) == batch
