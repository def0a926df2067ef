"""Block sizes of the convolution kernels by class of problem: a small table, no search at run time.

The figures come from `benchmarks/conv_tune.py` on an H200.
"""

from __future__ import annotations

from dataclasses import dataclass

SMALLEST = 16  # side of the smallest block that matrix instructions take
CHAIN = 2**15  # pixels that one program may add up: what follows is added in pairs
WORKSPACE = 2**27  # bytes that the parts of a weight gradient may take


@dataclass(frozen=True)
class Blocks:
    """A program's block of the result, m by n, the step k of its sum, its warps and the stages of its loads."""

    m: int
    n: int
    k: int
    num_warps: int
    stages: int


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


def side(n: int, largest: int) -> int:
    """A block's side for n rows or columns: a power of two, as small as covers n and as large as allowed."""
    return min(max(power_of_two(n), SMALLEST), largest)


def halves(n: int) -> tuple[int, int]:
    """n channels as two powers of two, the second 0 or at least SMALLEST: 96 is 64 + 32."""
    whole = side(n, 1 << 30)
    if whole > SMALLEST and n <= whole * 3 // 4:
        return whole // 2, side(n - whole // 2, whole // 4) if n > whole // 2 else 0
    return whole, 0


def correlation(rows: int, inputs: int, outputs: int, half: bool, enough: int) -> Blocks:
    """For forward and input gradient: `rows` pixels, channels of a group, 16-bit numbers or not, programs wanted."""
    k = side(inputs, 64 if half else 32)
    n = side(outputs, 128 if half else 64)
    m = 128
    if ceil_div(rows, m) * ceil_div(outputs, n) < enough:
        m, n = 64, min(n, 64)
    return Blocks(m, n, k, 8 if m * n >= 128 * 128 else 4, 3)


def weight_gradient(inputs: int, outputs: int, taps: int, half: bool) -> tuple[Blocks, bool]:
    """For the weight gradient, and whether a block of (tap, input channel) pairs stays within a tap."""
    one_tap = taps == 1 or inputs >= 32
    m, n = side(outputs, 128), side(inputs if one_tap else inputs * taps, 128)
    return Blocks(m, n, 64 if half else 32, 8 if m * n >= 128 * 128 else 4, 3), one_tap


def splits(pixels: int, block: int, tiles: int, size: int, wanted: int) -> tuple[int, int]:
    """How many parts the sum over pixels is cut into, and how many blocks of pixels each adds.

    As many as make `wanted` programs of `tiles` each; more where a chain of additions would be too long, fewer where
    the parts, of `size` numbers each, would not fit the workspace.
    """
    blocks = ceil_div(pixels, block)
    parts = max(wanted // max(tiles, 1), ceil_div(pixels, CHAIN), 1)
    parts = max(min(parts, blocks, WORKSPACE // max(4 * size, 1)), 1)
    steps = ceil_div(blocks, parts)
    return ceil_div(blocks, max(steps, 1)), steps
