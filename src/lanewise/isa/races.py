"""Who has touched a word: finds accesses that no barrier orders.

A mark is epoch * waves + wave + 1: the wave, and how many barriers its workgroup had passed. Two accesses of a word by
different waves conflict when one is a write (or one of two is an atomic and the other is not) and they are of two
workgroups, or of one workgroup between the same barriers. Two writes of the same value do not conflict: compilers
store what several lanes hold alike. A compare-and-swap does not conflict with reads: the loop around it reads the word
first. Of the readers of a word the last two are kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.isa.errors import RaceError

Array = Any
LARGEST = 1 << 28  # words; larger spaces are not followed (Machine.followed says so)


class Shadow:
    """Marks of the words of one space.

    Args:
        words: size of the space.
        group: workgroup of every wave, int [waves].
        what: name for messages.
    """

    def __init__(self, words: int, group: Array, what: str) -> None:
        self.group, self.waves, self.what = group, len(group), what
        self.epoch = np.zeros(int(group.max()) + 1 if len(group) else 1, np.int64)
        self.written, self.read, self.read_before = (np.zeros(words, np.int64) for _ in range(3))
        self.atomic, self.swapped = (np.zeros(words, np.int64) for _ in range(2))

    def _marks(self, wave: Array) -> Array:
        return self.epoch[self.group[wave]] * self.waves + wave + 1

    def _conflicts(self, marks: Array, wave: Array) -> Array:
        """bool: another wave's mark that nothing orders before this access."""
        other = (marks - 1) % self.waves
        unordered = (self.group[other] != self.group[wave]) | (
            (marks - 1) // self.waves == self.epoch[self.group[wave]]
        )
        return (marks != 0) & (other != wave) & unordered

    def _require(self, marks: Array, word: Array, wave: Array, this: str, that: str, excuse: Array | None = None) -> None:
        if not (marks != self._marks(wave)).any() or not marks.any():
            return
        bad = self._conflicts(marks, wave)
        if excuse is not None:
            bad &= ~excuse
        if bad.any():
            k = int(np.argmax(bad))
            other = int((marks[k] - 1) % self.waves)
            raise RaceError(
                f"{self.what} word {int(word[k])}: {this} by wave {int(wave[k])} and {that} by wave {other} (workgroups "
                f"{int(self.group[wave[k]])} and {int(self.group[other])}) with no barrier between them"
            )

    def load(self, word: Array, wave: Array) -> None:
        """Note reads: word and wave, int [accesses]."""
        self._require(self.written[word], word, wave, "a read", "a write")
        self._require(self.atomic[word], word, wave, "a read", "an atomic")
        marks, last = self._marks(wave), self.read[word]
        other = (last != 0) & ((last - 1) % self.waves != wave)
        self.read_before[word[other]] = last[other]
        self.read[word] = marks
        lost = self.read[word] != marks  # several waves in one instruction
        self.read_before[word[lost]] = marks[lost]

    def store(self, word: Array, wave: Array, before: Array, value: Array, after: Array) -> None:
        """Note writes of `value` [accesses]; the words held `before`, and hold `after` (the last lane's value)."""
        self._require(self.written[word], word, wave, "a write", "a write", before == value)
        for marks in (self.read[word], self.read_before[word]):
            self._require(marks, word, wave, "a write", "a read")
        for marks in (self.atomic[word], self.swapped[word]):
            self._require(marks, word, wave, "a write", "an atomic")
        self.written[word] = self._marks(wave)
        self._require(self.written[word], word, wave, "a write", "a write", after == value)  # in one instruction

    def update(self, word: Array, wave: Array, swap: bool) -> None:
        """Note atomics; `swap`: compare-and-swaps."""
        self._require(self.written[word], word, wave, "an atomic", "a write")
        if swap:
            self.swapped[word] = self._marks(wave)
            return
        for marks in (self.read[word], self.read_before[word]):
            self._require(marks, word, wave, "an atomic", "a read")
        self.atomic[word] = self._marks(wave)
