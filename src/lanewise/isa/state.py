"""Registers, EXEC, VCC, SCC and LDS of waves, as arrays over (wave, lane).

Every register is a *row*; an operand is the number of its row:

    0 .. vgprs                vector registers, then accumulation registers, then TEMPORARIES (VOPD, DPP, SDWA)
    scalar .. scalar + 128    scalar registers, seen as [waves, 1]
    constant ..               constants of the program, [1, 1]

An instruction runs on all the waves of a `Waves` at once. The scheduler keeps one for all waves of the grid and
smaller ones, by size, that it copies a selection of waves into.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lanewise.isa.parse import EXEC, NULL, Operand

U, I, F = np.uint32, np.int32, np.float32
U64, I64, D = np.uint64, np.int64, np.float64
POISON = U(0x7FDEAD01)  # a NaN: what registers and LDS hold before they are written
TEMPORARIES = 4
SCALAR_ROWS = 128


class Layout:
    """Which row an operand is. Rows of constants are made as they are asked for.

    Args:
        vectors, accumulators: registers of a wave.
        wave: lanes.
        arch: "gfx1100".
    """

    def __init__(self, vectors: int, accumulators: int, wave: int, arch: str) -> None:
        self.vectors, self.accumulators, self.wave, self.arch = vectors, accumulators, wave, arch
        self.generation = int(arch.removeprefix("gfx")[:-2])  # 9, 10, 11 or 12
        self.temporary = vectors + accumulators
        self.scalar = self.temporary + TEMPORARIES
        self.constant = self.scalar + SCALAR_ROWS
        self.constants: list[int] = []

    def row(self, operand: Operand) -> int:
        """The row of the operand's first register, or of a constant's low 32 bits."""
        if operand.kind == "v":
            return operand.index
        if operand.kind == "a":
            return self.vectors + operand.index
        if operand.kind == "s":
            return self.scalar + operand.index
        bits = operand.index & 0xFFFFFFFF
        if bits not in self.constants:
            self.constants.append(bits)
        return self.constant + self.constants.index(bits)


class Waves:
    """State of `count` waves that run the same instruction.

    Attributes:
        u, i, f: the rows as uint32, int32 and float32, [count, lanes] or [count, 1] or [1, 1].
        s: the scalar rows as [count], by number of the scalar register; constants follow after SCALAR_ROWS.
        active: EXEC as bool [count, lanes]; `full` where all are set.
        write: lanes that a vector result is written to: None for `active`, else a mask (DPP).
        scc: bool [count].
        number, group: the wave's number in the grid and its workgroup's, int [count].
    """

    def __init__(self, layout: Layout, count: int) -> None:
        self.layout, self.count, lanes = layout, count, layout.wave
        self.vectors = np.empty((layout.scalar, count, lanes), U)
        self.scalars = np.empty((count, SCALAR_ROWS), U)
        self.pairs = self.scalars.view(U64)  # of even registers, by half their number
        self.masks: dict[int, np.ndarray] = {}  # scalar registers as last seen as lane masks
        constants = np.array(layout.constants, U).reshape(-1, 1, 1)
        rows = [*self.vectors, *(self.scalars[:, k : k + 1] for k in range(SCALAR_ROWS)), *constants]
        self.u = rows
        self.i = [row.view(I) for row in rows]
        self.f = [row.view(F) for row in rows]
        self.s = [*self.scalars.T, *constants[:, 0, 0:1]]
        self.active = np.ones((count, lanes), bool)
        self.full = True
        self.write: np.ndarray | None = None
        self.scc = np.zeros(count, bool)
        self.number = np.arange(count)
        self.group = np.zeros(count, I64)
        self.result = np.empty((count, lanes), U)
        self.results = {"u": self.result, "i": self.result.view(I), "f": self.result.view(F)}
        self.machine: Any = None  # what waves share: schedule.Machine

    # ---- vector results

    def put(self, row: int, value: np.ndarray) -> None:
        """Write uint32-like values [.., ..] to a vector row where lanes are active."""
        target = self.u[row] if value.dtype == U else self.i[row] if value.dtype == I else self.f[row]
        if self.write is not None:
            np.copyto(target, value, where=self.write)
        elif self.full:
            target[...] = value
        else:
            np.copyto(target, value, where=self.active)

    def put64(self, row: int, value: np.ndarray) -> None:
        """Write 64-bit values to two vector rows."""
        bits = value.view(U64)
        self.put(row, bits.astype(U))  # casts keep the low 32 bits
        self.put(row + 1, (bits >> U64(32)).astype(U))

    def get64(self, row: int, high: int) -> np.ndarray:
        """uint64 of two rows; `high` may be a constant's row."""
        return self.u[row] | self.u[high].astype(U64) << U64(32)

    # ---- lane masks in scalar registers

    def mask(self, number: int) -> np.ndarray:
        """bool [count, lanes] of a scalar register (pair)."""
        if number == EXEC:
            return self.active
        found = self.masks.get(number)
        if found is None:
            found = self.masks[number] = self._unpacked(number)
        return found

    def _unpacked(self, number: int) -> np.ndarray:
        words = self.scalars[:, number : number + self.layout.wave // 32]
        return np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").view(bool)

    def put_mask(self, number: int, mask: np.ndarray) -> None:
        """Write bool [count, lanes], zero in lanes that are not active, to a scalar register (pair)."""
        if number == NULL:
            return
        if self.write is not None:
            mask = mask & self.write
        elif not self.full:
            mask = mask & self.active
        if mask.shape != self.active.shape:
            mask = np.broadcast_to(mask, self.active.shape)
        self.scalars[:, number : number + self.layout.wave // 32] = np.packbits(mask, axis=1, bitorder="little").view(U)
        self._forget(number, 2)
        if number == EXEC:
            self.exec_changed()
        else:
            self.masks[number] = mask

    def _forget(self, number: int, count: int) -> None:
        """Masks that a write to scalar registers makes stale."""
        if self.masks:
            for k in range(number - 1, number + count):
                self.masks.pop(k, None)

    # ---- scalars

    def put_scalar(self, number: int, value: Any) -> None:
        """Write [count] or one value to a scalar register."""
        if number == NULL:
            return
        self.s[number][...] = value
        self._forget(number, 1)
        if number >= EXEC:
            self.exec_changed()

    def put_scalar64(self, number: int, value: np.ndarray) -> None:
        """Write uint64 [count] to two scalar registers."""
        if number == NULL:
            return
        self.pairs[:, number // 2] = value
        self._forget(number, 2)
        if number >= EXEC - 1:
            self.exec_changed()

    def put_scalars(self, first: int, values: np.ndarray) -> None:
        """Write uint32 [count, registers]."""
        n = values.shape[1]
        self.scalars[:, first : first + n] = values
        self._forget(first, n)
        if first + n > EXEC:
            self.exec_changed()

    def exec_changed(self) -> None:
        """Follow what was written to EXEC."""
        self.active = self._unpacked(EXEC)
        self.full = bool(self.active.all())

    def any_lane(self, number: int) -> np.ndarray:
        """bool [count]: some bit of VCC or EXEC is set."""
        return (self.pairs[:, number // 2] if self.layout.wave == 64 else self.s[number]) != 0
