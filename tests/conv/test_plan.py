import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from conv_shapes import incident, problems
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.conv.plan import check, plan
from lanewise.conv.problem import Problem
from lanewise.errors import InputError, LanewiseError, UnsupportedError

WINDOW = 2**32 - 1
DIRECTIONS = ("forward", "input_grad", "weight_grad")


def counted(problem, slices):
    """How often every product's batch, channels and row is taken; rows are those that the direction cuts."""
    rows = problem.spatial_in if problem.direction == "input_grad" else problem.spatial_out
    count = np.zeros((problem.n, problem.k, problem.c // problem.groups, *rows), int)
    for s in slices:
        cut = s.owned if problem.direction == "input_grad" else s.y_rows
        count[tuple(slice(*r) for r in (s.n, s.k, s.w_c, *cut))] += 1
    return count


def smallest(problem):
    """The fewest bytes that the largest tensor of a slice can have, counted by hand: one image and channel, and along
    each axis one row with all that it sees, or all rows."""
    options = []
    gradient = problem.direction == "input_grad"
    for axis in range(3):
        i, o, s = problem.spatial_in[axis], problem.spatial_out[axis], problem.stride[axis]
        reach = problem.dilation[axis] * (problem.kernel[axis] - 1)
        outputs = min(o, reach // s + 1) if gradient else 1
        options.append({(i, o)})
        if (i if gradient else o) > 1:
            options[-1].add(((outputs - 1) * s + reach + 1, outputs))
    rows = ((np.prod([i for i, _ in axes]), np.prod([o for _, o in axes])) for axes in itertools.product(*options))
    return min(max(i, o, np.prod(problem.kernel)) for i, o in rows) * problem.dtype.itemsize


@settings(max_examples=400, deadline=None)
@given(problems(), st.integers(4, 6000))
def test_slices_cover_the_convolution_exactly_once_within_the_window(problem, window):
    try:
        slices = plan(problem, window)
    except UnsupportedError:
        assert smallest(problem) > window
        return
    assert smallest(problem) <= window
    assert (counted(problem, slices) == 1).all()
    for s in slices:
        assert max(s.problem.tensor_bytes.values()) <= window
        assert s.problem.groups in (1, problem.groups) or s.w_c == (0, problem.c // problem.groups)
    if problem.fits(window):
        assert [s.problem for s in slices] == [problem]
    else:
        assert len(slices) > 1


@settings(max_examples=200, deadline=None)
@given(problems(), st.integers(4, 3000))
def test_a_slice_has_all_rows_that_its_result_needs(problem, window):
    try:
        slices = plan(problem, window)
    except UnsupportedError:
        return
    for s, axis in itertools.product(slices, range(3)):
        stride, padding, dilation = problem.stride[axis], problem.padding[axis], problem.dilation[axis]
        pairs = [
            (o * stride - padding + t * dilation, o)
            for o in range(problem.spatial_out[axis])
            for t in range(problem.kernel[axis])
        ]
        if problem.direction == "input_grad":
            needed = [(i, o) for i, o in pairs if s.owned[axis][0] <= i < s.owned[axis][1]]
        else:
            inside = range(*s.y_rows[axis])
            needed = [(i, o) for i, o in pairs if o in inside and 0 <= i < problem.spatial_in[axis]]
        for i, o in needed:
            assert s.y_rows[axis][0] <= o < s.y_rows[axis][1]
            assert s.x_rows[axis][0] <= i < s.x_rows[axis][1]


@settings(max_examples=200, deadline=None)
@given(problems(), st.integers(4, 3000))
def test_partial_results_that_are_summed_follow_one_another(problem, window):
    try:
        slices = plan(problem, window)
    except UnsupportedError:
        return
    groups = [key for key, _ in itertools.groupby(s.result for s in slices)]
    assert len(groups) == len(set(groups))


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 2000), st.integers(1, 300), st.integers(1, 300), st.integers(1, 700), st.sampled_from(DIRECTIONS))
def test_a_batch_is_cut_into_as_few_slices_as_can_be(n, c, k, extent, direction):
    problem = incident(n, c, k, extent, direction)
    slices = plan(problem, WINDOW)
    most = WINDOW // (max(c, k) * extent * extent * 4)
    assert len(slices) == -(-n // most)
    lengths = [s.n[1] - s.n[0] for s in slices]
    assert max(lengths) <= most
    assert lengths[:-1] == [lengths[0]] * (len(lengths) - 1)
    assert lengths[-1] <= lengths[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_tensor_of_exactly_the_window_fits_and_one_byte_less_does_not(direction, dtype):
    problem = replace(incident(6, 4, 4, 8, direction), dtype=dtype)
    size = max(problem.tensor_bytes.values())
    assert len(plan(problem, size)) == 1
    assert len(plan(problem, size - 1)) == 2


def test_an_image_that_is_too_large_is_cut_along_rows_and_rows_along_columns():
    image = Problem(
        n=2, c=8, k=2, spatial_in=(1, 100, 10), spatial_out=(1, 100, 10), kernel=(1, 3, 3), padding=(0, 1, 1)
    )
    one = 8 * 100 * 10 * 4
    rows = plan(image, one // 2)
    assert {s.n for s in rows} == {(0, 1), (1, 2)}
    assert [s.y_rows[1] for s in rows[:3]] == [(0, 34), (34, 68), (68, 100)]
    assert [s.x_rows[1] for s in rows[:3]] == [(-1, 35), (33, 69), (67, 101)]
    assert {s.k for s in rows} == {(0, 2)}
    columns = plan(image, 8 * 3 * 10 * 4 - 1)  # the three rows that a row of y sees do not fit
    assert {s.k for s in columns} == {(0, 2)}
    assert {s.y_rows[1:] for s in columns} == {((y, y + 1), x) for y in range(100) for x in ((0, 5), (5, 10))}
    assert {s.x_rows[2] for s in columns} == {(-1, 6), (4, 11)}


def test_a_large_weight_is_cut_along_channels_alone():
    problem = Problem(n=16, c=64, k=96, spatial_in=(1, 4, 4), spatial_out=(1, 4, 4), kernel=(1, 1, 1))
    slices = plan(replace(problem, n=1), 96 * 64 * 4 // 3)
    assert [s.k for s in slices] == [(0, 32), (32, 64), (64, 96)]
    assert all(s.n == (0, 1) and s.y_rows == ((0, 1), (0, 4), (0, 4)) for s in slices)
    gradient = plan(replace(problem, n=1, direction="input_grad"), 96 * 64 * 4 // 3)
    assert len({s.c for s in gradient}) == 4  # x's own channels, so that nothing has to be summed
    assert {s.k for s in gradient} == {(0, 96)}


def test_groups_are_cut_before_their_channels():
    problem = Problem(n=1, c=12, k=12, spatial_in=(1, 1, 1), spatial_out=(1, 1, 1), kernel=(1, 1, 1), groups=6)
    assert [s.c for s in plan(problem, 32)] == [(0, 4), (4, 8), (8, 12)]
    inside = plan(problem, 4)
    assert len(inside) == 24
    assert {s.problem.groups for s in inside} == {1}


def test_the_fp32_sum_of_a_half_precision_weight_gradient_counts():
    problem = replace(incident(1, 4, 4, 1), dtype=torch.bfloat16)
    assert problem.tensor_bytes["weight"] == 64
    assert problem.along("forward").tensor_bytes["weight"] == 32
    assert len(plan(problem, 32)) > 1
    assert len(plan(problem.along("forward"), 32)) == 1


def test_nothing_is_planned_for_nothing():
    for empty in (incident(0), replace(incident(2), spatial_out=(1, 0, 512)), replace(incident(2), k=0)):
        assert plan(empty, WINDOW) == ()


def test_what_does_not_fit_is_refused_with_the_size_that_would():
    with pytest.raises(UnsupportedError, match=r"window of 3 bytes is not supported.*4 bytes of .*window_bytes=4"):
        plan(incident(2), 3)
    assert plan(incident(1, 1, 1, 2), 4)


@pytest.mark.parametrize("window", [0, -1, 1.5, True, None, "4"])
def test_a_window_is_a_positive_whole_number(window):
    with pytest.raises(InputError, match="window_bytes: got"):
        plan(incident(2), window)


def test_a_launch_past_the_window_is_an_error_and_not_a_wrong_gradient():
    with pytest.raises(LanewiseError, match=r"input: 4,328,521,728 bytes in one launch, at most 4,294,967,295"):
        check(incident(43), WINDOW)
    check(incident(42), WINDOW)
