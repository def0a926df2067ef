import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conv_problems import Layer, operands, run
from interpreter import missing

from lanewise.errors import UnsupportedError

HELPERS = Path(__file__).parents[1] / "helpers"

triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=str(missing()))
def test_the_kernels_pass_the_gate_in_the_interpreter():
    """In a process of its own: the interpreter is chosen when Triton is imported, and computes on one thread."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HELPERS), *sys.path])}
    script = [sys.executable, str(HELPERS / "interpreted_conv.py")]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 7


@triton
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.int32])
def test_other_dtypes_are_refused_with_the_reason(dtype: torch.dtype):
    from lanewise.conv import launch

    layer = Layer(1, 3, 3, (4, 4), (3, 3))
    assert launch.supports(layer.problem()) is None
    assert str(dtype) in str(launch.supports(Layer(1, 3, 3, (4, 4), (3, 3), dtype=dtype).problem()))


@triton
@pytest.mark.parametrize("direction", ["forward", "input_grad", "weight_grad"])
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("last", [False, True])
def test_a_launch_past_the_window_is_refused(direction: str, kernel: int, last: bool):
    """Incident B's layer at 43 images; shapes are all that is looked at."""
    from lanewise.conv import launch

    layer = Layer(43, 96, 64, (512, 512), (kernel, kernel), padding=kernel // 2, channels_last=last)
    x, w, dy = (
        torch.empty(s, device="meta").contiguous(memory_format=layer.order())
        for s in ((43, 96, 512, 512), (64, 96, kernel, kernel), (43, 64, 512, 512))
    )
    given = {"forward": (x, w, None), "input_grad": (dy, w, None), "weight_grad": (x, dy)}[direction]
    with pytest.raises(UnsupportedError, match="a tensor that reaches 1082130432 numbers"):
        getattr(launch, direction)(*given, layer.problem())


@triton
@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "NHWC"])
@pytest.mark.parametrize("half", [False, True], ids=["fp32", "fp16"])
def test_launches_are_what_the_launch_cache_asks_for(last: bool, half: bool, monkeypatch: pytest.MonkeyPatch):
    """Constants come last and in their order, and no whole number is specialized on: `launch` asserts both."""
    from lanewise.prove.launches import launches_go_to
    from lanewise.splat import _launch

    monkeypatch.setattr(_launch, "_compiled", {})
    monkeypatch.setattr(_launch, "_on_gpu", lambda args: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    layers = (
        Layer(2, 32, 17, (5, 6), (3, 3), stride=2, padding=1),
        Layer(2, 5, 7, (6, 9), (1, 1)),
        Layer(2, 160, 32, (6, 9), (1, 1)),
        Layer(2, 3, 6, (6, 9), (3, 3), groups=3),
    )
    launched = set()
    with launches_go_to(lambda kernel, *_: launched.add(f"{kernel.fn.__module__.split('.')[-1]}.{kernel.fn.__name__}")):
        for layer in layers:
            layer = replace(layer, channels_last=last, dtype=torch.float16 if half else torch.float32)
            run(layer, *operands(layer))
    assert {"kernels.correlate", "kernels_depthwise.depthwise", "kernels_depthwise.depthwise_weight"} <= launched
    # Products of fp32 want channels as neighbours, and for the gradient of the weight pixels.
    planes = set() if last else {"narrow", "wide"} if half else {"narrow"}
    planes |= set() if last and half else {"pointwise_weight"}
    found = {name.removeprefix("kernels_pointwise.") for name in launched if name.startswith("kernels_pointwise.")}
    assert found == planes
    copied = {"kernels_layout.windows", "kernels_windows.windows_weight"}
    assert copied.isdisjoint(launched) if half else copied <= launched
    assert ("kernels_weight.weight_grad" in launched) == half
    assert "kernels_layout.transpose" in launched or (last and half)
