import pytest
import torch
from torch.nn import functional as F

from lanewise import conv
from lanewise.conv import op

HOW = ([2, 1], [1, 0], [1, 2], 2, None)


def tensors(dtype=torch.float64):
    shapes = (2, 4, 5, 4), (4, 2, 2, 2), (4,), (2, 4, 3, 2)
    return tuple(torch.randn(s, dtype=dtype, requires_grad=True) for s in shapes)


def calls(window=None):
    """The operators' names, arguments and where among these the tensors stand, on one small convolution."""
    x, w, b, dy = tensors()
    return {
        "forward": (x, w, b, [3, 2], False, *HOW, window),
        "input_grad": (dy, w, b, [5, 4], False, *HOW, window),
        "weight_grad": (x, dy, [2, 2], False, *HOW, window),
        "bias_grad": (dy, window),
    }


@pytest.mark.parametrize("name", op.NAMES)
def test_the_operators_pass_opcheck(name):
    torch.library.opcheck(getattr(torch.ops.lanewise, f"convolution_{name}"), calls(500)[name])


@pytest.mark.parametrize("window", [None, 500])
@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("name", op.NAMES)
def test_first_and_second_derivatives(name, registered, window):
    function = getattr(torch.ops.lanewise, f"convolution_{name}") if registered else getattr(op, name)
    arguments = calls(window)[name]
    leaves = [a for a in arguments if isinstance(a, torch.Tensor)]

    def of_leaves(*leaves):
        return function(*leaves, *arguments[len(leaves) :])

    assert torch.autograd.gradcheck(of_leaves, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(of_leaves, leaves, fast_mode=True)


def test_a_third_derivative_is_torchs():
    x, w, *_ = tensors()

    def third(convolve):
        y = convolve(x, w, stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2)
        first = torch.autograd.grad(y.pow(3).sum(), x, create_graph=True)[0]
        second = torch.autograd.grad(first.pow(2).sum(), w, create_graph=True)[0]
        return torch.autograd.grad(second.sin().sum(), (x, w))

    for ours, torchs in zip(third(conv.conv2d), third(F.conv2d), strict=True):
        torch.testing.assert_close(ours, torchs)


@pytest.mark.parametrize("window", [None, 2000])
def test_the_compiler_sees_the_operators(window):
    x, w, b = (torch.randn(s, requires_grad=True) for s in ((3, 4, 6, 6), (4, 2, 3, 3), (4,)))
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def model(x, w, b):
        y = conv.conv2d(x, w, b, padding=1, groups=2, window_bytes=window).relu()
        return conv.conv_transpose2d(y, w, stride=2, groups=2, window_bytes=window)

    compiled = torch.compile(model, backend=backend, fullgraph=True)
    got = torch.autograd.grad(compiled(x, w, b).pow(2).sum(), (x, w, b))
    want = torch.autograd.grad(model(x, w, b).pow(2).sum(), (x, w, b))
    for a, c in zip(got, want, strict=True):
        torch.testing.assert_close(a, c)
    targets = {str(node.target) for node in graphs[0].graph.nodes}
    assert any("convolution_forward" in t for t in targets)
    assert any("convolution_input_grad" in t for t in targets)


def test_a_compiled_model_trains():
    torch.manual_seed(0)
    model = torch.nn.Sequential(conv.Conv2d(2, 3, 3, padding="same"), torch.nn.ReLU(), conv.ConvTranspose2d(3, 2, 2))
    x = torch.randn(2, 2, 5, 5)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
    compiled(x).pow(2).mean().backward()
    got = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).pow(2).mean().backward()
    for a, p in zip(got, model.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad)
    larger = torch.randn(3, 2, 7, 6)
    torch.testing.assert_close(compiled(larger), model(larger))
