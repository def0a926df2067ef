"""The incident's search loses batches; the planner, asked about the same ones, loses none."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import torch
from conv_shapes import incident
from conv_tensors import operands, truth

from lanewise.audit.gate import gate, require
from lanewise.conv import chooser, sliced
from lanewise.conv.plan import plan
from lanewise.demo.incidents import library as search

WINDOW = search.WINDOW_BYTES
IMAGE = search.image_bytes(96, 64, 512)
LOST = (
    [*range(43, 84)] + [*range(86, 125, 2)] + [n for n in range(129, 166) if n % 3 == 0] + [*range(172, 193, 4)]
)  # as the report's shapes were simulated


def largest_launch(n: int, slices: int) -> int:
    return n // slices * IMAGE


def test_the_geometry_is_the_reports():
    assert IMAGE == 100_663_296
    assert WINDOW // IMAGE == 42
    problem = incident(64)
    assert problem.tensor_bytes["input"] == 64 * IMAGE
    assert problem.tensor_bytes["input"] > WINDOW


def test_the_faulty_search_launches_80_batches_past_the_window():
    lost = [n for n in range(1, 193) if largest_launch(n, search.faulty_slices(n, IMAGE)) > WINDOW]
    assert lost == LOST
    assert len(lost) == 80
    assert search.faulty_slices(64, IMAGE) == 1  # the report: a single launch of 6 GiB


def test_the_mended_search_loses_none_but_a_prime_batch_becomes_single_images():
    assert all(largest_launch(n, search.mended_slices(n, IMAGE)) <= WINDOW for n in range(1, 193))
    assert search.mended_slices(61, IMAGE) == 61
    assert search.mended_slices(94, IMAGE) == 47


def fewest(n: int, window: int) -> list[int]:
    """By brute force: the smallest number of neighbouring ranges, each within the window, that 1..n images make."""
    best = [0]
    for images in range(1, n + 1):
        best.append(1 + min(best[images - last] for last in range(1, images + 1) if last * IMAGE <= window))
    return best


@pytest.mark.parametrize("direction", ["forward", "input_grad", "weight_grad"])
def test_the_planner_loses_none_and_takes_as_few_slices_as_can_be(direction):
    best = fewest(512, WINDOW)
    for n in range(1, 513):
        slices = plan(incident(n, direction=direction), WINDOW)
        assert [i for s in slices for i in range(*s.n)] == list(range(n))
        assert all(max(s.problem.tensor_bytes.values()) <= WINDOW for s in slices)
        assert len(slices) == best[n]
    assert len(plan(incident(61), WINDOW)) == 2
    assert len(plan(incident(94), WINDOW)) == 3


@pytest.mark.parametrize(("c", "k"), [(96, 64), (64, 96), (48, 200), (256, 256)])
def test_other_channel_pairs_of_the_report_lose_none(c, k):
    for n in range(43, 193):
        slices = plan(incident(n, c, k), WINDOW)
        assert sum(s.n[1] - s.n[0] for s in slices) == n
        assert all(max(s.problem.tensor_bytes.values()) <= WINDOW for s in slices)
        assert len(slices) == -(-n // (WINDOW // search.image_bytes(c, k, 512)))


def test_the_librarys_own_test_of_large_tensors_is_the_one_shape_of_exactly_one_byte_too_many():
    n, image = 2048, 2 << 20  # 2^32 bytes: max_n is 2047, the quotient 1, and 1 divides everything
    assert search.faulty_slices(n, image) == 1
    assert n * image == WINDOW + 1
    assert len(plan(incident(n, 2, 2, 512), WINDOW)) == 2


# The same geometry with images of 8 x 8 and a window of 42 of them: every batch does what it did.
SMALL = 96 * 8 * 8 * 4
SMALL_WINDOW = 42 * SMALL + SMALL // 2


def launch_past_the_window(window: int, launch):
    """`launch` on the incident's hardware: an access past the window reads zero and writes nowhere, and nothing is
    raised. For the kernel of the weight's gradient that is the end of all it does."""

    def on_hardware(problem, *operands):
        out = launch(problem, *operands)
        return out if problem.fits(window) else out.zero_()

    return on_hardware


def replayed(n: int, planner, monkeypatch) -> tuple[torch.Tensor, torch.Tensor]:
    """The weight's gradient on the incident's hardware with slices by `planner`, and the truth."""
    problem = incident(n, extent=8)
    x, w, dy = operands(problem, seed=n)
    run = functools.partial(chooser.convolve, "fp32")
    monkeypatch.setattr(sliced, "plan", planner)
    monkeypatch.setattr(sliced, "check", lambda problem, window: None)  # the incident's library had none
    launch = launch_past_the_window(SMALL_WINDOW, run)
    got = sliced.run(problem, x, dy, None, channels_last=False, window_bytes=SMALL_WINDOW, launch=launch)
    return got, truth(problem, x, w, dy)


def by_the_faulty_search(problem, window):
    pieces = search.faulty_slices(problem.n, SMALL, window)
    (whole,) = plan(problem, 2**40)
    size = problem.n // pieces
    starts = range(0, problem.n, size)
    return tuple(replace(whole, n=(a, a + size), problem=replace(problem, n=size)) for a in starts)


@pytest.mark.parametrize("n", [42, 43, 61, 64, 83, 84, 85, 86, 87, 128, 129, 172, 192])
def test_replay(n, monkeypatch):
    """Exactly zero, and no error, wherever the search loses the batch; the planner's slices are right everywhere."""
    got, want = replayed(n, by_the_faulty_search, monkeypatch)
    assert (not got.any()) == (n in LOST)
    assert gate("dw", got, want).ok == (n not in LOST)
    got, want = replayed(n, plan, monkeypatch)
    require(gate("dw", got, want, floor=1e-6))
