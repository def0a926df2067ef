import copy

import pytest
import torch
from process_group import in_a_process_group
from torch import nn
from torch.nn.utils import parametrizations

from lanewise import conv
from lanewise.errors import InputError


class Own(nn.Conv2d):
    def forward(self, input):
        return super().forward(input) * 2


class Named(nn.Conv2d):
    """Adds nothing to how torch convolves."""

    def describe(self):
        return "named"


def model():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.ConvTranspose2d(4, 3, 2, stride=2)),
        Own(3, 3, 1),
        Named(3, 2, 1),
    )
    return net.double()


def test_every_convolution_is_replaced_and_the_report_says_which():
    net = model()
    before = copy.deepcopy(net)
    parameters = list(net.parameters())
    report = conv.protect(net, precision="fp32", window_bytes=2000)
    assert list(report.replaced) == ["0", "1.2", "3"]
    assert report.left == {"2": "Own has a forward of its own: call lanewise.conv's functions in it"}
    assert str(report).splitlines()[:2] == [
        "3 replaced, 1 left as they were",
        "  replaced 0: Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))",
    ]
    assert [type(net[0]), type(net.get_submodule("1.2"))] == [conv.Conv2d, conv.ConvTranspose2d]
    assert isinstance(net[3], Named)
    assert isinstance(net[3], conv.Conv2d)
    assert net[3].describe() == "named"
    assert (net[0].precision, net[3].window_bytes) == ("fp32", 2000)
    assert all(a is b for a, b in zip(parameters, net.parameters(), strict=True))
    x = torch.randn(4, 3, 8, 8, dtype=torch.float64)
    net(x).sum().backward()
    before(x).sum().backward()
    for a, b in zip(net.parameters(), before.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    before.load_state_dict(net.state_dict())


def test_a_convolution_by_itself_and_a_second_time():
    layer = nn.Conv1d(2, 3, 3)
    assert conv.protect(layer).replaced == {"": "Conv1d(2, 3, kernel_size=(3,), stride=(1,))"}
    assert type(layer) is conv.Conv1d
    again = conv.protect(layer)
    assert again.left == {"": "Conv1d is protected already"}
    assert "left     (the model): Conv1d is protected already" in str(again)


def test_hooks_and_parametrizations_stay():
    layer = parametrizations.weight_norm(nn.Conv2d(3, 4, 3))
    seen = []
    layer.register_forward_hook(lambda *_: seen.append("hook"))
    x = torch.randn(2, 3, 5, 5)
    want = layer(x)
    assert conv.protect(layer).replaced
    torch.testing.assert_close(layer(x), want)
    assert seen == ["hook", "hook"]
    layer(x).sum().backward()
    assert layer.parametrizations.weight.original0.grad is not None


def test_a_lazy_module_is_left_with_what_to_do():
    net = nn.Sequential(nn.LazyConv2d(3, 3))
    assert "call the model once, then protect it" in conv.protect(net).left["0"]
    net(torch.randn(1, 2, 5, 5))
    assert conv.protect(net).replaced


def test_a_forward_that_was_put_on_the_module_stays():
    layer = nn.Conv2d(2, 3, 3)
    layer.forward = lambda input: input
    assert "forward of its own" in conv.protect(layer).left[""]


def test_options_are_checked_before_anything_changes():
    net = model()
    with pytest.raises(InputError, match="window_bytes"):
        conv.protect(net, window_bytes=0)
    assert type(net[0]) is nn.Conv2d


def test_a_protected_model_trains_under_ddp(tmp_path):
    net = model()
    x = torch.randn(4, 3, 8, 8, dtype=torch.float64)
    want = copy.deepcopy(net)
    want(x).sum().backward()
    conv.protect(net, window_bytes=2000)
    in_a_process_group(tmp_path, lambda: nn.parallel.DistributedDataParallel(net)(x).sum().backward())
    for a, b in zip(net.parameters(), want.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
