"""Block sizes of the convolution kernels by class of problem: a small table, no search at run time.

The figures come from `benchmarks/conv_tune.py` on an H200.
"""

from __future__ import annotations

from dataclasses import dataclass

SMALLEST = 16  # side of the smallest block that matrix instructions take
CHAIN = 2**15  # pixels that one program may add up: what follows is added in pairs
NARROW = 128  # channels up to which a program of a 1x1 layer holds them all
WORKSPACE = 2**27  # bytes that the parts of a weight gradient may take


@dataclass(frozen=True)
class Blocks:
    """A program's block of the result, m by n, the step k of its sum, its warps and the stages of its loads.

    `resident` is how many programs a multiprocessor is given where their number can be chosen.
    """

    m: int
    n: int
    k: int
    num_warps: int
    stages: int
    resident: int = 2


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


def side(n: int, largest: int) -> int:
    """A block's side for n rows or columns: a power of two, as small as covers n and as large as allowed."""
    return max(min(power_of_two(n), largest), SMALLEST)


def halves(n: int) -> tuple[int, int]:
    """n channels as one or two blocks of powers of two, the second 0 or at least SMALLEST: 96 is 64 + 32."""
    whole = max(power_of_two(n), SMALLEST)
    if whole < 4 * SMALLEST or n > whole * 3 // 4:
        return whole, 0
    return whole // 2, side(n - whole // 2, whole // 4)


def correlation(rows: int, inputs: int, outputs: int, half: bool, enough: int) -> Blocks:
    """For forward and input gradient: `rows` pixels, channels of a group, 16-bit numbers or not, programs wanted."""
    k, n = side(inputs, 64 if half else 32), side(outputs, 128 if half else 64)
    if ceil_div(rows, 128) * ceil_div(outputs, n) >= enough:
        return Blocks(128, n, k, 8 if n >= 128 else 4, 3)
    return Blocks(64, min(n, 64), k, 4, 3)


def weight_gradient(inputs: int, outputs: int, taps: int, half: bool) -> Blocks:
    """For the weight gradient: n counts pairs of tap and input channel."""
    largest = 128 if half else 64
    m, n = side(outputs, largest), side(inputs if one_tap(inputs, taps) else inputs * taps, largest)
    return Blocks(m, n, 64 if half else 32, 8 if m * n >= 128 * 128 else 4, 3)


def one_tap(inputs: int, taps: int) -> bool:
    """Whether a block of the weight gradient stays within a tap: unless few input channels would leave it empty."""
    return taps == 1 or inputs >= 32


def narrow() -> Blocks:
    """For 1x1 layers of few channels, m pixels at a time."""
    return Blocks(m=64, n=0, k=0, num_warps=4, stages=1, resident=2)


def pointwise_weight(inputs: int, outputs: int) -> Blocks:
    """For the weight gradient of 1x1 layers, k pixels at a time."""
    m, n = side(outputs, 128), sum(halves(inputs)) if inputs <= NARROW else NARROW
    return Blocks(m, n, 32, 8 if m * n >= 128 * 128 else 4, 3, resident=3)


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
