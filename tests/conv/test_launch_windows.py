"""Which copies of x the weight gradient makes, and when it makes none."""

import importlib.util
import math
from dataclasses import replace

import pytest
import torch
from conv_problems import Layer
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")

three = st.tuples(*[st.integers(1, 4)] * 3)


@given(three, three, three, st.tuples(*[st.integers(0, 3)] * 3), st.tuples(*[st.integers(0, 9)] * 3))
def test_the_copies_hold_every_row_that_a_pixel_meets_and_no_other(kernel, stride, dilation, padding, more):
    from lanewise.conv.launch_windows import windows_shape

    size = tuple(d * (k - 1) + 1 + m for k, d, m in zip(kernel, dilation, more, strict=True))
    problem = Layer(2, 3, 5, size, kernel, stride, padding, dilation).problem()
    (taps, channels, images, *extents, width), steps = windows_shape(problem)
    assert (taps, channels, images) == (kernel[2], 3, 2)
    assert problem.spatial_out[2] <= width < problem.spatial_out[2] + 4
    assert width % 4 == 0
    assert steps[2] == stride[2]
    for axis in (0, 1):
        apart = stride[axis] // steps[axis]  # rows of a copy from one output row to the next
        met = {o * apart + j * dilation[axis] for o in range(problem.spatial_out[axis]) for j in range(kernel[axis])}
        assert max(met) == extents[axis] - 1
        if kernel[axis] == 1:
            assert len(met) == extents[axis]


def test_what_is_large_or_small_enough_to_be_read_as_it_is():
    from lanewise.conv.launch_windows import COPIES, MOST, takes, windows_shape

    layer = Layer(32, 64, 64, (56, 56), (3, 3), padding=1)
    assert takes(layer.problem())
    for dtype in (torch.float16, torch.bfloat16):
        assert not takes(replace(layer, dtype=dtype).problem())
    for kernel in (COPIES, COPIES + 1):  # along W, without anything else that makes the copies larger
        wide = Layer(1, 64, 8, (1, 2**17), (1, kernel)).problem()
        assert takes(wide) == (kernel == COPIES)
        small = Layer(1, 2, 8, (1, 1000), (1, kernel)).problem()
        assert takes(small)
    for channels in (2**8, 2**8 + 1):
        large = Layer(1, channels, 8, (1, 2**20), (1, 2)).problem()
        size = math.prod(windows_shape(large)[0])
        assert takes(large) == (size <= MOST) == (channels == 2**8)
