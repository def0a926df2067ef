from __future__ import annotations

from lanewise.prove.report import by_target, not_covered, page, verdict
from lanewise.prove.rows import Row

GOOD = Row("sh.harmonics", "D=3", "gfx942", "gfx942", 64, True, True, 1e-6, 40, 0, 0, ["lockstep"], limit=2e-6)
CLOSED = Row("sh.harmonics", "D=3", "sm_90", "sm_90", 32, compiled=True, note="compiled; not executed: <none>")
BAD = Row("adam.step", "K=1", "gfx942", "gfx942", 64, True, True, 3e-6, 40, 0, 2, ["lockstep"], False, "off", 2e-6)


def test_the_verdict_names_the_compiler_the_machine_and_failures():
    assert verdict([GOOD, CLOSED], "Triton 3.9.0") == (
        "2 rows hold: 1 kernels, Triton 3.9.0, 1 rows executed on an emulator (gfx942)."
    )
    assert verdict([GOOD, BAD], "Triton 3.9.0").startswith("1 of 2 rows FAILED: 2 kernels, Triton 3.9.0")
    assert "(nowhere)" in verdict([CLOSED], "Triton 3.9.0")


def test_what_is_not_covered_is_said():
    assert not_covered([GOOD, BAD, CLOSED, CLOSED]) == ["sm_90: compiled; not executed: <none> (2 rows)"]


def test_a_line_a_target():
    assert by_target([GOOD, BAD, CLOSED]) == [
        ["gfx942", "gfx942", 64, 2, 2, 1.5, 1, 0, 1],
        ["sm_90", "sm_90", 32, 1, 0, None, 0, 0, 0],
    ]


def test_the_page_shows_every_row_and_escapes():
    text = page([GOOD, BAD, CLOSED], "2 < 3")
    assert text.count("<tr class=") == 3
    assert "2 &lt; 3" in text
    assert "&lt;none&gt;" in text
    assert "class=bad" in text
