"""The predictions can fail: each by what it is about. (tests/incidents/wavefront/test_training.py makes them true.)"""

from __future__ import annotations

from dataclasses import replace

import pytest

from lanewise.demo.incidents.lanes import CAUSES
from lanewise.demo.incidents.wavefront import HEALTHY, Run, Watched, predictions, spec_of

NAMES = ("means2d", "means", "quats", "scales", "opacities", "sh0", "viewmats")
NAN = float("nan")


def run(name: str, psnr: float, born: int, errors: dict[str, float], code: str | None) -> Run:
    watched = [] if code is None else [Watched(code, ("means",), 1, "")]
    audited = [] if code is None else ["LW104 of means"]
    return Run(name, psnr, 100, 100 + born, born, 0, True, errors, "", watched, audited)


def as_predicted() -> dict[str, Run]:
    projected = {name: 0.7 if name in ("means", "quats", "scales", "viewmats") else 0.0 for name in NAMES}
    return {
        HEALTHY: run(HEALTHY, 24.0, 50, dict.fromkeys(NAMES, 0.0), None),
        "tile": run("tile", 22.0, 40, dict.fromkeys(NAMES, 0.5), "LW404"),
        "lane-mask": run("lane-mask", 22.0, 50, projected, "LW401"),
        "block-64": run("block-64", 4.0, 0, dict.fromkeys(NAMES, NAN), "LW403"),
    }


def failing(runs: dict[str, Run]) -> list[int]:
    return [i for i, prediction in enumerate(predictions(list(runs.values()))) if not prediction.holds]


def test_all_hold_where_all_is_as_predicted():
    assert failing(as_predicted()) == []


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("tile", {"same_picture": False}, [0]),
        ("block-64", {"born": 1}, [1]),
        (HEALTHY, {"born": 0}, [1, 2]),
        ("tile", {"born": 24}, [2]),
        ("lane-mask", {"psnr": 23.9}, [3]),
        ("tile", {"psnr": NAN}, [3]),
        ("tile", {"errors": dict.fromkeys(NAMES, 0.05)}, [4]),
        ("lane-mask", {"errors": dict.fromkeys(NAMES, 0.7)}, [4]),
        ("block-64", {"errors": dict.fromkeys(NAMES, 0.7)}, [4]),
        (HEALTHY, {"watched": [Watched("LW404", ("means",), 1, "")]}, [5]),
        ("tile", {"watched": []}, [5]),
        ("tile", {"watched": [Watched("LW404", ("means",), 101, "")]}, [5]),
        ("lane-mask", {"watched": [Watched("LW404", ("means",), 1, "")]}, [5]),
        (HEALTHY, {"audited": ["LW104 of means"]}, [6]),
        ("block-64", {"audited": []}, [6]),
    ],
)
def test_each_fails_by_what_it_is_about(name, change, expected):
    runs = as_predicted()
    runs[name] = replace(runs[name], **change)
    assert failing(runs) == expected


@pytest.mark.parametrize("cause", [None, *CAUSES])
def test_the_audited_operators_are_the_catalogues_with_the_cause(cause):
    for place in ("rasterization", "projection"):
        spec = spec_of(cause, place)
        assert set(spec.sizes) == {"N"}
        assert ("broken" in spec.source) == (cause is not None)
        call = spec.bind({**spec.sizes, **{name: choices[0] for name, choices in spec.options.items()}})
        assert callable(call)
