import copy
import pickle

import pytest
import torch
from torch import nn

from lanewise import conv
from lanewise.audit.gate import gate, require
from lanewise.errors import InputError

PAIRS = [
    (getattr(conv, name), getattr(nn, name))
    for name in ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
]
DIMS = {name: dims for dims in (1, 2, 3) for name in (f"Conv{dims}d", f"ConvTranspose{dims}d")}


@pytest.mark.parametrize("window", [None, 2000])
@pytest.mark.parametrize(("ours", "torchs"), PAIRS, ids=DIMS)
def test_a_module_is_torchs_with_another_convolution(ours, torchs, window):
    arguments = {"stride": 2, "padding": 1, "groups": 2}
    module, other = ours(4, 6, 3, window_bytes=window, **arguments), torchs(4, 6, 3, **arguments)
    assert isinstance(module, torchs)
    other.load_state_dict(module.state_dict())
    module.load_state_dict(other.state_dict())
    x = torch.randn(2, 4, *[7] * DIMS[ours.__name__])
    module(x).pow(2).sum().backward()
    other.double()(x.double()).pow(2).sum().backward()
    for (name, p), q in zip(module.named_parameters(), other.parameters(), strict=True):
        require(gate(name, p.grad, q.grad))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", [2, (1, 2), "same"])
def test_every_way_of_padding(mode, padding):
    module = conv.Conv2d(2, 3, (3, 4), padding=padding, padding_mode=mode, window_bytes=800)
    x = torch.randn(2, 2, 6, 7)
    require(gate("y", module(x).detach(), nn.Conv2d._conv_forward(module, x, module.weight, module.bias).detach()))


def test_an_output_size_is_taken():
    module = conv.ConvTranspose2d(2, 3, 3, stride=2, window_bytes=1000)
    x = torch.randn(2, 2, 5, 5)
    assert module(x, output_size=(12, 11)).shape == (2, 3, 12, 11)
    with pytest.raises(ValueError, match="requested an output size of"):
        module(x, output_size=(13, 13))


def test_copies_and_pickles_keep_the_options():
    module = conv.Conv2d(2, 3, 3, precision="fp32", window_bytes=5000)
    for same in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert (same.precision, same.window_bytes) == ("fp32", 5000)
        assert type(same) is conv.Conv2d


def test_options_are_checked_when_the_module_is_made():
    with pytest.raises(InputError, match="precision: got 'double'"):
        conv.Conv2d(2, 3, 3, precision="double")
    with pytest.raises(InputError, match="window_bytes: got -1"):
        conv.ConvTranspose1d(2, 3, 3, window_bytes=-1)
