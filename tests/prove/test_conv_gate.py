"""The convolution kernels with the blocks of large layers, which a complete proof has no time for."""

import importlib.util

import pytest

from lanewise.prove.conv_gate import Layer, gate_convolution
from lanewise.prove.execute import Emulation, emulated
from lanewise.target import find


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201"])
@pytest.mark.parametrize("order", ["lockstep", "reverse"])
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_blocks_of_large_layers_are_right_on_every_family(arch: str, order: str):
    layer = Layer(1, 33, 65, (10, 13), (1, 2), largest=True)
    emulation = Emulation(find(arch), order=order)
    with emulated(emulation):
        results = gate_convolution(layer)
    assert all(result.ok for result in results), results
    blocks = {
        (config.name, dict(config.constants)["BM"], dict(config.constants)["BN"])
        for config in emulation.executed
        if "BM" in dict(config.constants)
    }
    assert {("conv.correlate", 128, 64), ("conv.windows_weight", 128, 128)} <= blocks
