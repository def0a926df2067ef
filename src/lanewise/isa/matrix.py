"""Matrix instructions: dense MFMA (64 lanes) and WMMA (32 lanes) with fp32 results. Sums are taken in fp64."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from lanewise.isa.errors import UnsupportedInstruction
from lanewise.isa.parse import Instruction, Operand
from lanewise.isa.state import D, F, Layout, U, Waves

Run = Callable[[Waves], None]
Array = Any


def decode(ins: Instruction, layout: Layout) -> Run:
    """v_mfma_f32_* and v_wmma_f32_16x16x16_*; raises UnsupportedInstruction."""
    name = ins.opcode
    if m := re.fullmatch(r"v_wmma_f32_16x16x16_(f16|bf16)", name):
        return _wmma(m[1], ins.operands, layout)
    if m := re.fullmatch(r"v_mfma_f32_(16x16|32x32)x(\d+)_?(f32|f16|bf16_1k|bf16)", name):
        return _mfma(int(m[1][:2]), int(m[2]), m[3], ins.operands, layout)
    raise UnsupportedInstruction("opcode")


def _numbers(o: Operand, count: int, kind: str, layout: Layout) -> Callable[[Waves], Array]:
    """fp64 [waves, lanes, count] of an operand's registers."""
    row = layout.row(o)
    if kind == "f32":
        return lambda w: np.stack([w.f[row + k] for k in range(count)], 2).astype(D)

    def halves(w: Waves) -> Array:
        words = np.ascontiguousarray(np.stack([w.u[row + k] for k in range(count // 2)], 2))
        if kind == "f16":
            return words.view(np.float16).astype(D)
        return (words.view(np.uint16).astype(U) << U(16)).view(F).astype(D)

    return halves


def _finish(o: list[Operand], rows: list[Array], columns: Array, layout: Layout) -> Callable[[Waves, Array], None]:
    """Write products [waves, row, column] + C to D; rows: of every register, by lane."""
    target, addend = layout.row(o[0]), layout.row(o[3])
    step = 1 if o[3].kind in "va" else 0

    def finish(w: Waves, product: Array) -> None:
        results = [(product[:, r, columns] + w.f[addend + step * k]).astype(F) for k, r in enumerate(rows)]
        for k, result in enumerate(results):
            w.put(target + k, result)

    return finish


def _mfma(size: int, depth: int, kind: str, o: list[Operand], layout: Layout) -> Run:
    groups = 64 // size
    count, registers = depth // groups, size * size // 64
    words = count if kind == "f32" else count // 2
    if layout.wave != 64 or o[0].count != registers or o[1].count != words or o[2].count != words:
        raise UnsupportedInstruction("matrix shape")
    lane = np.arange(64)
    rows = [8 * (r // 4) + 4 * (lane // 32) + r % 4 if size == 32 else 4 * (lane // 16) + r for r in range(registers)]
    a, b = (_numbers(x, count, kind[:4].rstrip("_"), layout) for x in o[1:3])
    finish = _finish(o, rows, lane % size, layout)

    def run(w: Waves) -> None:
        if not w.full:
            raise UnsupportedInstruction("a matrix instruction where some lanes are not active")
        sides = [np.concatenate([x[:, g * size : (g + 1) * size] for g in range(groups)], 2) for x in (a(w), b(w))]
        finish(w, np.einsum("nik,njk->nij", *sides))

    return run


def _wmma(kind: str, o: list[Operand], layout: Layout) -> Run:
    if layout.wave != 32:
        raise UnsupportedInstruction("WMMA with 64 lanes")
    count = 2 * o[1].count  # 16 numbers a lane on generation 11, where lanes 16.. repeat; 8 on 12
    if o[0].count != 8 or count not in (8, 16):
        raise UnsupportedInstruction("matrix shape")
    lane = np.arange(32)
    rows = [2 * r + lane // 16 if count == 16 else 8 * (lane // 16) + r for r in range(8)]
    a, b = (_numbers(x, count, kind, layout) for x in o[1:3])
    finish = _finish(o, rows, lane % 16, layout)

    def run(w: Waves) -> None:
        if not w.full:
            raise UnsupportedInstruction("a matrix instruction where some lanes are not active")
        x, y = a(w), b(w)
        sides = [s[:, :16] if count == 16 else np.concatenate([s[:, :16], s[:, 16:]], 2) for s in (x, y)]
        finish(w, np.einsum("nik,njk->nij", *sides))

    return run
