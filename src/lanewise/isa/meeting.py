"""Which waves of a grid can tell the order in which they run.

A wave hears of another one through memory alone. Where two touch a word and one of them writes, with no barrier between
them, the run fails in every order (`races`). What is left are atomics, which may touch a word in any order, and
barriers with what waves share between them. A program without atomics has workgroups that never hear of one another;
one without LDS and barriers too, waves that never do. Whatever runs in between, such waves compute the same, so that
they may as well run together, and where no wave hears of another all orders are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import numpy as np

from lanewise.isa.parse import Instruction

Meeting = Literal["none", "workgroup", "grid"]  # how far a wave may hear of others
_SHARED = re.compile(r"ds_(?!bpermute|permute|swizzle)|s_barrier")


def meeting(instructions: Iterable[Instruction]) -> Meeting:
    """How far the waves of a program may hear of one another."""
    opcodes = {ins.opcode for ins in instructions}
    if any(re.match(r"(global|buffer|flat)_atomic", opcode) for opcode in opcodes):
        return "grid"
    return "workgroup" if any(map(_SHARED.match, opcodes)) else "none"


def teams(meeting: Meeting, waves: int, count: int) -> np.ndarray:
    """Waves with one number may run together in every order of the waves: int [count].

    Args:
        meeting: of the program.
        waves: of a workgroup.
        count: waves of the grid.
    """
    number = np.arange(count)
    return number if meeting == "grid" else number % waves if meeting == "workgroup" else np.zeros_like(number)
