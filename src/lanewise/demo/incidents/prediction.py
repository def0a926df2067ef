"""What a replay must show, said before it is run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Prediction:
    """A sentence about a replay, and whether it came true.

    Attributes:
        text: the sentence.
        holds: whether it came true.
        seen: the figures that decided.
    """

    text: str
    holds: bool
    seen: str = ""


def came_true(predictions: Iterable[Prediction]) -> bool:
    """Whether all of them did; there must be some."""
    predictions = tuple(predictions)
    return bool(predictions) and all(prediction.holds for prediction in predictions)
