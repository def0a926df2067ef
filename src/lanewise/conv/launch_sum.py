"""Adding the parts of a sum, in order."""

from __future__ import annotations

import math

from torch import Tensor

from lanewise.conv import kernels_weight
from lanewise.conv.launch_blocks import ceil_div
from lanewise.conv.launch_operands import NUMBERS, VECTOR, check, grid
from lanewise.splat._launch import launch

SHARE = 1024  # parts that are added in one round


def empty_parts(out: Tensor, count: int) -> Tensor:
    """Memory for the parts of `out`, which is `out` itself for one."""
    check(out.numel() < NUMBERS, f"{out.numel()} numbers of a part")
    return out if count == 1 else out.new_empty(count, out.numel())


def add_parts(parts: Tensor, out: Tensor, count: int) -> None:
    """out = the sum of `count` parts, fp32 and in out's memory order; many are added in two or more rounds.

    Nothing where the only part is out itself.
    """
    if parts is out:
        return
    while count > SHARE:
        fewer = parts.new_empty(ceil_div(count, SHARE), out.numel())
        _add(parts, fewer, count, out.numel())
        parts, count = fewer, len(fewer)
    _add(parts, out, count, out.numel())


def _add(parts: Tensor, out: Tensor, count: int, size: int) -> None:
    BLOCK, ROWS = (32, 128) if size < 2**16 else (256, 8)
    launch(
        kernels_weight.add_parts,
        grid(ceil_div(count, SHARE) * ceil_div(size, BLOCK)),
        *(parts, out, count, SHARE, size),
        ALIGN=math.gcd(size, VECTOR // parts.element_size()),
        BLOCK=BLOCK,
        ROWS=ROWS,
        options={"num_warps": 4},
    )
