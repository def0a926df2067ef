from dataclasses import replace

import pytest

from lanewise.audit.finding import CODES, Finding, find_code
from lanewise.errors import InputError

FINDING = Finding("LW103", "linear", "weight", {"x": [1, 2], "weight": [33, 2]}, "float32", {"device": "cpu"})


def test_every_code_has_a_title_and_says_what_helps_or_what_it_is():
    for code, entry in CODES.items():
        assert entry.code == code
        assert entry.title[0].islower() or entry.title.startswith("NaN")
        assert len(entry.explanation) > 60
    assert {code[:3] for code in CODES} == {"LW1", "LW2", "LW3", "LW4"}


def test_codes_are_found_in_any_case():
    assert find_code("lw202") is CODES["LW202"]
    with pytest.raises(InputError, match=r"code: got 'LW999', expected one of LW101"):
        find_code("LW999")


def test_the_fingerprint_does_not_depend_on_the_sizes_at_which_it_was_found():
    assert replace(FINDING, shapes={"x": [9, 9]}).fingerprint == FINDING.fingerprint
    for change in ({"code": "LW101"}, {"operator": "bmm"}, {"argument": "x"}, {"setting": {"compiled": True}}):
        assert replace(FINDING, **change).fingerprint != FINDING.fingerprint


def test_one_line_says_what_and_where():
    assert str(FINDING) == (
        "LW103 linear: part of the gradient is missing (argument weight; x [1, 2], weight [33, 2]; float32)"
    )
