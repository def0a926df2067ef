"""The predictions can fail: each by what it is about. (tests/incidents/window/test_training.py makes them true.)"""

from __future__ import annotations

from dataclasses import replace

import pytest

from lanewise.audit.finding import Finding
from lanewise.demo.incidents.library import WINDOW_BYTES, image_bytes
from lanewise.demo.incidents.window import (
    EXTENT,
    FITTING,
    HEALTHY,
    IMAGES,
    NOTHING,
    PROTECTED,
    SHRUNK,
    WINDOW,
    WRAPPED,
    C,
    K,
    Run,
    predictions,
)

PLACE = "0 (Conv2d)"


def found(images: int = 43, workaround: str | None = "use lanewise.conv.conv2d", reason: str = "") -> Finding:
    return Finding(
        "LW103", "conv2d", "weight", {"x": [images, C, 8, 8]}, "float32", {}, {"reason": reason}, workaround=workaround
    )


def as_predicted() -> dict[str, Run]:
    slab = found(reason="what outputs 42 to 42 along dimension 0 contribute is wrong")
    return {
        HEALTHY: Run(HEALTHY, [1.0, 0.01], 1.7, 0.0, 64, [], []),
        NOTHING: Run(NOTHING, [1.0, 0.2], 0.0, 1.0, 64, [("LW401", PLACE, "weight", 26)], [found()]),
        WRAPPED: Run(WRAPPED, [1.0, 0.1], 4.0, 0.4, 64, [("LW404", PLACE, "weight", 76)], [slab]),
        PROTECTED: Run(PROTECTED, [1.0, 0.01], 1.7, 1e-7, 16, [], []),
    }


def failing(runs: dict[str, Run]) -> list[int]:
    return [i for i, prediction in enumerate(predictions(list(runs.values()))) if not prediction.holds]


def test_the_numbers_are_the_reports_divided_by_4096():
    assert (WINDOW + 1) * SHRUNK == WINDOW_BYTES + 1
    assert image_bytes(C, K, EXTENT) * SHRUNK == image_bytes(96, 64, 512) == 100_663_296
    assert WINDOW // image_bytes(C, K, EXTENT) == WINDOW_BYTES // image_bytes(96, 64, 512) == FITTING
    assert IMAGES == 64


def test_all_hold_where_all_is_as_predicted():
    assert failing(as_predicted()) == []


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        (NOTHING, {"launches": 32}, [0]),
        (WRAPPED, {"error": 1e-7}, [0]),
        (NOTHING, {"moved": 0.1}, [1]),
        (NOTHING, {"losses": [1.0, 0.001]}, [1]),
        (WRAPPED, {"losses": [1.0, 0.9]}, [2]),
        (HEALTHY, {"watched": [("LW404", PLACE, "weight", 76)]}, [3]),
        (PROTECTED, {"watched": [("LW404", PLACE, "weight", 76)]}, [3]),
        (NOTHING, {"watched": []}, [3]),
        (WRAPPED, {"watched": [("LW404", "4 (Linear)", "weight", 76)]}, [3]),
        (NOTHING, {"audited": []}, [4]),
        (NOTHING, {"audited": [found(images=64)]}, [4]),
        (NOTHING, {"audited": [found(workaround=None)]}, [4]),
        (WRAPPED, {"audited": [found()]}, [5]),
        (PROTECTED, {"launches": 64}, [6]),
        (PROTECTED, {"error": 1e-3}, [6]),
        (PROTECTED, {"losses": [1.0, 0.2]}, [6]),
        (PROTECTED, {"audited": [found()]}, [6]),
    ],
)
def test_each_fails_by_what_it_is_about(name, change, expected):
    runs = as_predicted()
    runs[name] = replace(runs[name], **change)
    assert failing(runs) == expected
