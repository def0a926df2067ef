"""The incident in machine code: one launch over all images, whose buffer descriptor reaches as far as 2^31 bytes and
whose offsets have 32 bits, on the emulator of an AMD GPU. And the planner's slices of the same tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from conv_shapes import incident

from lanewise.audit.gate import gate, require
from lanewise.conv import launch, launch_operands, reference
from lanewise.conv.plan import plan
from lanewise.errors import UnsupportedError
from lanewise.prove import execute
from lanewise.prove.conv_gate import Layer, as_launched_with, operands, placed
from lanewise.prove.execute import Emulation, emulated
from lanewise.target import compiles, find

triton = pytest.importorskip("triton")

N, IMAGE = 43, 96 * 512 * 512  # the first batch that the report's search loses; numbers of one of its images
# Of each image a corner is there: 16 channels of 1 x 4 pixels, channels innermost. The distance of images is the
# report's, 100,663,296 bytes: the corners of images 0 to 21 lie before 2^31 bytes, and all before 2^32.
LAYER = Layer(N, 16, 16, (1, 4), channels_last=True, dot="ieee", apart=IMAGE)
ARCHITECTURES = [a for a in ("gfx950", "gfx1100") if compiles(a, triton.__version__) is not False]


@contextlib.contextmanager
def believing_that_tensors_are_small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a library does that asks too late: nothing checks a launch's bound, and the compiler is told that offsets
    fit 31 bits, so that it addresses x through a descriptor."""
    with monkeypatch.context() as patch:
        patch.setattr(launch_operands, "check", lambda holds, what: None)
        honest = execute.configuration

        def told(kernel, arguments, options):
            config = honest(kernel, arguments, options)
            known = tuple(
                (place, (*pairs, ("tt.pointer_range", 32)) if ("tt.pointer_range", 32) not in pairs else pairs)
                if config.signature[place][1].startswith("*")
                else (place, pairs)
                for place, pairs in config.attributes
            )
            return replace(config, attributes=known)

        patch.setattr(execute, "configuration", told)
        yield


def signal(images: range) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x, dy that is zero but in some images, and the weight's gradient in fp64."""
    x, _, _, dy = operands(LAYER)
    only = torch.zeros(N, 1, 1, 1)
    only[images.start : images.stop] = 1
    dy = (dy * only).contiguous(memory_format=torch.channels_last)
    return x, dy, reference.weight_grad(x, dy, LAYER.problem)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_one_launch_past_the_window_loses_what_lies_behind_it(arch: str, monkeypatch: pytest.MonkeyPatch):
    """Images before 2^31 bytes are right. What those after it say is exactly 0, and nothing is raised: the descriptor
    ends there."""
    for images, lost in ((range(22), False), (range(22, N), True)):
        x, dy, truth = signal(images)
        far = placed(LAYER, x)
        with believing_that_tensors_are_small(monkeypatch), emulated(Emulation(find(arch))), as_launched_with("ieee"):
            got = launch.weight_grad(far, dy, LAYER.problem)
        assert truth.any()
        assert (not got.any()) == lost
        assert gate("dw", got, truth, floor=1e-6).ok == (not lost)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_planners_slices_of_the_same_tensors_are_right(arch: str):
    """At the report's size the planner makes two slices, of which the second begins past 2^31 bytes."""
    slices = [piece.n for piece in plan(incident(N), 2**32 - 1)]
    assert slices == [(0, 22), (22, 43)]
    x, dy, truth = signal(range(N))
    far, total = placed(LAYER, x), torch.zeros_like(truth)
    with emulated(Emulation(find(arch))), as_launched_with("ieee"):
        for first, last in slices:
            problem = replace(LAYER, n=last - first).problem
            total += launch.weight_grad(far[first:last], dy[first:last], problem)
    require(gate("dw", total, truth, floor=1e-6))


def test_our_launch_refuses_the_unplanned_slice():
    layer = replace(LAYER, n=N + 1)  # the corner of image 43 lies past 2^32
    x, _, _, dy = operands(layer)
    with emulated(Emulation(find("gfx942"))), pytest.raises(UnsupportedError, match="in one launch"):
        launch.weight_grad(placed(layer, x), dy, layer.problem)
