"""Who touches a word: finds accesses that no barrier orders.

Accesses are written down as they happen and compared at the end of the run, so that every pair is seen, whatever the
order of the waves was. Two accesses of a word by different waves conflict when one is a write (or one of two is an
atomic and the other is not) and they are of two workgroups, or of one workgroup between the same two barriers.
Words that somebody touches a part of, or across their borders, are compared byte by byte. Writes of one and the same
value do not conflict: compilers store what several lanes hold alike. A compare-and-swap
does not conflict with reads: the loop around it reads the word first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lanewise.isa.errors import RaceError

Array = Any
# Places [waves] or [waves, lanes], waves, their epochs, where active, values, bytes.
Seen = tuple[Array, Array, Array, "Array | None", "Array | None", int]
READ, WRITE, ATOMIC, SWAP = range(4)
NAMES = ("a read", "a write", "an atomic", "a compare-and-swap")
CONFLICTS = ((WRITE, WRITE), (WRITE, READ), (WRITE, ATOMIC), (WRITE, SWAP), (ATOMIC, READ))


class Flat(NamedTuple):
    """Single accesses, [accesses] each; the place counts words or bytes."""

    place: Array
    wave: Array
    epoch: Array
    value: Array


class Shadow:
    """The accesses of one space.

    Args:
        group: workgroup of every wave, int [waves].
        what: name for messages.
        start: byte position of the space's first word.
    """

    def __init__(self, group: Array, what: str, start: int) -> None:
        self.group, self.what, self.start = group, what, start
        self.epoch = np.zeros(int(group.max()) + 1 if len(group) else 1, np.int64)
        # By kind: accesses of whole words, and others, which count in bytes.
        self._words: list[list[Seen]] = [[] for _ in NAMES]
        self._bytes: list[list[Seen]] = [[] for _ in NAMES]

    def note(
        self, kind: int, where: Array, wave: Array, active: Array | None, value: Array | None = None, size: int = 4
    ) -> None:
        """Write down accesses at byte positions `where`, [waves] or [waves, lanes], where active (None: all).

        Args:
            wave: [waves].
            value: of writes, uint32 [accesses]; of at most 4 bytes.
            size: bytes that each access touches.
        """
        whole = size % 4 == 0 and not (where & 3).any()
        there = (self._words if whole else self._bytes)[kind]
        there.append((where, wave, self.epoch[self.group[wave]], active, value, size))

    def check(self) -> None:
        """Raises RaceError where two accesses conflict."""
        words = [_flat(seen, 4) for seen in self._words]
        self._conflicts(words, 4)
        parts = [_flat(seen, 1) for seen in self._bytes]
        touched = np.unique(np.concatenate([place for place, *_ in parts]) >> 2)
        if len(touched):
            pairs = zip(parts, words, strict=True)
            self._conflicts([_joined(part, _in_bytes(word, touched)) for part, word in pairs], 1)

    def _conflicts(self, seen: Sequence[Flat], unit: int) -> None:
        """Compares accesses whose places count units of so many bytes."""
        groups = len(self.epoch)
        for a, b in CONFLICTS:
            if not len(seen[a][0]) or not len(seen[b][0]):
                continue
            lasting = int(max(seen[a][2].max(), seen[b][2].max())) + 1

            def within(x: tuple[Array, ...], lasting: int = lasting) -> Array:
                return (x[0] * groups + self.group[x[1]]) * lasting + x[2]

            self._compare(a, b, seen, unit, within, lambda x: x[1])
            self._compare(a, b, seen, unit, lambda x: x[0], lambda x: self.group[x[1]])

    def _compare(self, a: int, b: int, seen: Sequence[Flat], unit: int, key: Any, who: Any) -> None:
        """Accesses of one key are in conflict when they are of several `who`."""
        keys_a, keys_b = key(seen[a]), key(seen[b])
        keys, slot = np.unique(keys_a, return_inverse=True)
        at = np.minimum(np.searchsorted(keys, keys_b), len(keys) - 1)
        both = keys[at] == keys_b
        who_a, who_b = who(seen[a]), who(seen[b])[both]
        slots = np.concatenate([slot, at[both]])
        low, high = _extremes(len(keys), slots, np.concatenate([who_a, who_b]))
        bad = low != high
        if a == b:
            least, most = _extremes(len(keys), slot, seen[a][3].astype(np.int64))
            bad &= least != most
        else:
            bad &= np.bincount(at[both], minlength=len(keys)) > 0
        if bad.any():
            k = int(np.argmax(bad))
            place = unit * int(seen[a][0][slot == k][0]) - self.start
            waves = sorted({int(seen[a][1][slot == k][0]), *map(int, seen[b][1][both][at[both] == k])})
            raise RaceError(
                f"{self.what}, byte {place}: {NAMES[a]} and {NAMES[b]} by waves {waves} with no barrier between them"
            )


def _flat(seen: Sequence[Seen], unit: int) -> Flat:
    """Units of so many bytes, one after the other."""
    places, waves, epochs, values = [], [], [], []
    lanes_of: dict[int, Array] = {}  # many accesses are of the same active lanes
    for where, wave, epoch, active, value, size in seen:
        place = (where.ravel() if active is None else where[active]) // unit
        if active is None:
            count = 1 if where.ndim == 1 else where.shape[1]
        elif (count := lanes_of.get(id(active))) is None:
            count = lanes_of[id(active)] = np.count_nonzero(active, axis=1)
        units = size // unit
        if units > 1:
            place = (place[:, None] + np.arange(units)).ravel()
        if value is not None and unit == 1:
            value = _bytes_of(value, size)
        places.append(place)
        waves.append(wave.repeat(count * units))
        epochs.append(epoch.repeat(count * units))
        values.append(np.zeros(len(place), np.uint32) if value is None else value)
    none = [np.zeros(0, np.int64)]
    return Flat(*(np.concatenate(x or none) for x in (places, waves, epochs, values)))


def _in_bytes(words: Flat, touched: Array) -> Flat:
    """The bytes of those words that are among `touched`."""
    place, wave, epoch, value = (x[np.isin(words.place, touched)] for x in words)
    bytes_ = (4 * place[:, None] + np.arange(4)).ravel()
    return Flat(bytes_, wave.repeat(4), epoch.repeat(4), _bytes_of(value, 4))


def _bytes_of(value: Array, size: int) -> Array:
    """The bytes of little-endian numbers, [numbers * size]."""
    return (value.astype(np.int64)[:, None] >> 8 * np.arange(size) & 255).ravel()


def _joined(a: Flat, b: Flat) -> Flat:
    return Flat(*(np.concatenate(pair) for pair in zip(a, b, strict=True)))


def _extremes(count: int, slot: Array, value: Array) -> tuple[Array, Array]:
    """Smallest and largest value of every slot."""
    order = np.lexsort((value, slot))
    slot, value = slot[order], value[order]
    low, high = np.zeros(count, np.int64), np.zeros(count, np.int64)
    low[slot[::-1]], high[slot] = value[::-1], value  # the last that is assigned stays
    return low, high
