import pytest

from lanewise import InputError
from lanewise.target import TARGETS, find


def test_every_row_is_found_by_its_name_and_only_once():
    names = [target.name for target in TARGETS]
    assert len(set(names)) == len(names)
    assert [find(name) for name in names] == list(TARGETS)


@pytest.mark.parametrize(
    ("name", "row"), [("gfx942:sramecc+:xnack-", "gfx942"), ("sm_90a", "sm_90"), ("sm_120f", "sm_120")]
)
def test_feature_suffixes_are_ignored(name, row):
    assert find(name).name == row


@pytest.mark.parametrize(
    ("name", "wave"), [("gfx90a", 64), ("gfx942", 64), ("gfx1030", 32), ("gfx1151", 32), ("sm_90", 32), ("cpu", 1)]
)
def test_wave_widths(name, wave):
    assert find(name).wave == wave


def test_the_window_is_what_an_unsigned_32_bit_offset_reaches():
    assert {target.window_bytes for target in TARGETS} == {4294967295}


def test_an_unknown_target_is_refused_not_guessed():
    with pytest.raises(InputError, match=r"target: got 'gfx9999', expected one of cpu, .* cannot be guessed"):
        find("gfx9999")
