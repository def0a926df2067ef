"""Who touches a word: finds accesses that no barrier orders.

Accesses are written down as they happen and compared at the end of the run, so that every pair is seen, whatever the
order of the waves was. Two accesses of a word by different waves conflict when one is a write (or one of two is an
atomic and the other is not) and they are of two workgroups, or of one workgroup between the same two barriers.
Writes of one and the same value do not conflict: compilers store what several lanes hold alike. A compare-and-swap
does not conflict with reads: the loop around it reads the word first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.isa.errors import RaceError

Array = Any
READ, WRITE, ATOMIC, SWAP = range(4)
NAMES = ("a read", "a write", "an atomic", "a compare-and-swap")
CONFLICTS = ((WRITE, WRITE), (WRITE, READ), (WRITE, ATOMIC), (WRITE, SWAP), (ATOMIC, READ))


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
        self._seen: list[list[tuple[Array, Array, Array, Array | None, Array | None, int]]] = [[] for _ in NAMES]

    def note(
        self, kind: int, where: Array, wave: Array, active: Array | None, value: Array | None = None, words: int = 1
    ) -> None:
        """Write down accesses at byte positions `where`, [waves] or [waves, lanes], where active (None: all).

        Args:
            wave: [waves].
            value: of writes, uint32 [accesses].
            words: that each access touches, one after the other.
        """
        self._seen[kind].append((where, wave, self.epoch[self.group[wave]], active, value, words))

    def _flat(self, kind: int) -> tuple[Array, Array, Array, Array]:
        """word, wave, epoch and value, [accesses]."""
        words_, waves, epochs, values, counts = [], [], [], [], []  # counts: accesses of every wave
        for where, wave, epoch, active, value, words in self._seen[kind]:
            word = (where.ravel() if active is None else where[active]) >> 2
            if where.ndim == 1:
                count = np.full(len(wave), words)
            else:
                count = np.full(len(wave), words * where.shape[1]) if active is None else active.sum(1) * words
            if words > 1:
                word = (word[:, None] + np.arange(words)).ravel()
            for list_, x in zip((words_, waves, epochs, counts), (word, wave, epoch, count), strict=True):
                list_.append(x)
            values.append(np.zeros(len(word), np.uint32) if value is None else value)
        none = [np.zeros(0, np.int64)]
        word, wave, epoch, value, count = (
            np.concatenate(x or none) for x in (words_, waves, epochs, values, counts)
        )  # fmt: skip
        return word, wave.repeat(count), epoch.repeat(count), value

    def check(self) -> None:
        """Raises RaceError where two accesses conflict."""
        seen = [self._flat(kind) for kind in range(len(NAMES))]
        groups = len(self.epoch)
        for a, b in CONFLICTS:
            if not len(seen[a][0]) or not len(seen[b][0]):
                continue
            lasting = int(max(seen[a][2].max(), seen[b][2].max())) + 1

            def within(x: tuple[Array, ...], lasting: int = lasting) -> Array:
                return (x[0] * groups + self.group[x[1]]) * lasting + x[2]

            self._compare(a, b, seen, within, lambda x: x[1])
            self._compare(a, b, seen, lambda x: x[0], lambda x: self.group[x[1]])

    def _compare(self, a: int, b: int, seen: Any, key: Any, who: Any) -> None:
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
            word = int(seen[a][0][slot == k][0])
            waves = sorted({int(seen[a][1][slot == k][0]), *map(int, seen[b][1][both][at[both] == k])})
            raise RaceError(
                f"{self.what}, byte {4 * word - self.start}: {NAMES[a]} and {NAMES[b]} by waves {waves} "
                "with no barrier between them"
            )


def _extremes(count: int, slot: Array, value: Array) -> tuple[Array, Array]:
    """Smallest and largest value of every slot."""
    order = np.lexsort((value, slot))
    slot, value = slot[order], value[order]
    low, high = np.zeros(count, np.int64), np.zeros(count, np.int64)
    low[slot[::-1]], high[slot] = value[::-1], value  # the last that is assigned stays
    return low, high
