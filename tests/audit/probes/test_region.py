import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lanewise.audit.probes.region import bounding_region, classify, search_region

boxes = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40), st.integers(0, 5)), min_size=1, max_size=3)


@settings(max_examples=200, deadline=None)
@given(boxes)
def test_both_ways_find_the_box(dims):
    shape = [start + size + rest for start, size, rest in dims]
    box = tuple((start, start + size) for start, size, _ in dims)
    wrong = torch.zeros(shape, dtype=torch.bool)
    wrong[tuple(slice(*ends) for ends in box)] = True
    assert bounding_region(wrong) == box
    assert search_region(shape, lambda part: bool(wrong[tuple(slice(*ends) for ends in part)].any())) == box
    assert bounding_region(torch.zeros(shape, dtype=torch.bool)) is None
    assert bounding_region(torch.tensor(True)) == ()


@pytest.mark.parametrize("at", [(0, 0, 0), (2, 3, 1), (0, 3, 0)])
def test_one_element_at_an_edge_is_its_own_box(at):
    wrong = torch.zeros(3, 4, 2, dtype=torch.bool)
    wrong[at] = True
    box = tuple((i, i + 1) for i in at)
    assert bounding_region(wrong) == box
    assert search_region(wrong.shape, lambda part: bool(wrong[tuple(slice(*ends) for ends in part)].any())) == box


EXACT = torch.randn(60, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
OTHER = torch.randn(60, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("gradient", "code"),
    [
        (EXACT * torch.nan, "LW102"),
        (EXACT * 0, "LW101"),
        (EXACT * 1.001, "LW105"),
        (EXACT * (torch.arange(60) < 30)[:, None], "LW103"),
        (EXACT + 0.01 * OTHER, "LW105"),
        (OTHER, "LW104"),
        (EXACT.roll(1), "LW104"),
        (5 * EXACT + 0.3 * OTHER, "LW105"),  # nearly all of the difference is the factor
        (1.5 * EXACT + 0.15 * OTHER, "LW104"),
        (0.7 * EXACT + 0.7 * OTHER, "LW104"),  # what is there is not without what is missing
        (EXACT * (torch.arange(60) < 1)[:, None] + 1e-3 * OTHER, "LW104"),  # nor is so little of it a part
    ],
)
def test_what_a_wrong_gradient_looks_like(gradient, code):
    assert classify(gradient, EXACT, ~torch.isclose(gradient, EXACT, rtol=1e-9)) == code


@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_something_where_there_is_nothing_is_in_the_wrong_place(size):
    """However small it is: a little of it alone would look like a part of a sum, or like a bias."""
    exact = EXACT * (torch.arange(60) > 0)[:, None]
    gradient = exact + size * (torch.arange(60) == 0)[:, None]
    assert classify(gradient, exact, gradient != exact) == "LW104"


def test_half_of_a_sum_is_a_part_of_it():
    whole = EXACT + OTHER
    assert classify(EXACT, whole, torch.ones_like(whole, dtype=torch.bool)) == "LW103"
