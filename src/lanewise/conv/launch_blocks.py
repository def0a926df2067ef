"""Block sizes of the convolution kernels: a small table and a model of what a launch takes, no search at run time.

Steps of programs that share a multiprocessor take as long as all of them one after the other, so a launch takes as many
steps as the multiprocessor with the most programs has. Within 10% that is what `benchmarks/conv_tune.py` measured for
forward and input gradient on an H200, whose figures these are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

SMALLEST = 16  # side of the smallest block that matrix instructions take
CHAIN = 2**15  # pixels that one program may add up: what follows is added in pairs
HALF_CHAIN = 2**13  # the same for 16-bit numbers, whose sums Hopper's matrix instructions do not round but cut off
NARROW = 128  # channels up to which a program of a 1x1 layer holds them all
FEW = 16  # channels below which those of a kernel's row make one run
WORKSPACE = 2**27  # bytes that the parts of a sum may take

# Microseconds on an H200, which has 132 multiprocessors; elsewhere they are other microseconds in much the same ratio.
STEP = 0.4  # one step of a sum takes at least this, however few programs a multiprocessor has
START = 2  # steps that a program's beginning and end take
SUM = 3.0  # adding parts
NUMBER = 4e-6  # writing and adding one number of a part


@dataclass(frozen=True)
class Blocks:
    """A program's block of the result, m by n, the step k of its sum, its warps and the stages of its loads.

    `cost` is what a step takes where a multiprocessor has several programs, in microseconds.
    """

    m: int
    n: int
    k: int
    num_warps: int
    stages: int
    cost: float = 1.0


CORRELATION = {
    False: (Blocks(128, 64, 32, 4, 3, 1.0), Blocks(64, 64, 32, 4, 4, 0.54)),
    True: (
        Blocks(128, 128, 64, 8, 3, 0.5),
        Blocks(64, 128, 64, 4, 4, 0.32),
        Blocks(128, 64, 64, 4, 3, 0.375),
        Blocks(64, 64, 64, 4, 3, 0.215),
    ),
}
WEIGHT = {
    False: (Blocks(128, 64, 32, 4, 3, 0.95), Blocks(64, 64, 32, 4, 3, 0.5)),
    True: (
        Blocks(128, 128, 64, 8, 3, 0.5),
        Blocks(64, 128, 64, 4, 3, 0.32),
        Blocks(64, 64, 64, 4, 3, 0.22),
    ),
}


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


def correlation(
    rows: int,
    phases: int,
    inputs: int,
    outputs: int,
    taps: int,
    half: bool,
    processors: int,
    size: int | None,
    scattered: bool = False,
) -> tuple[Blocks, int]:
    """The blocks for forward and input gradient, and how many parts the sum is cut into.

    Args:
        rows: pixels of one phase and group.
        phases: of all groups.
        inputs: channels of a group that are summed.
        outputs: channels of a group that are made.
        taps: weights that a pixel meets.
        half: 16-bit numbers.
        processors: of the GPU.
        size: numbers of the result; None where it cannot be made in parts.
        scattered: the input is read number by number, which needs registers: the smallest block.
    """
    found = []
    for block in CORRELATION[half][-1:] if scattered else CORRELATION[half]:
        k, n = side(inputs, block.k), side(outputs, block.n)
        steps = taps * ceil_div(inputs, k)
        tiles = ceil_div(rows, block.m) * ceil_div(outputs, n) * phases
        parts = 1 if size is None else parts_of_sum(tiles, steps, size, block, processors, most=max(steps // 8, 1))
        found.append((duration(tiles, steps, parts, size or 0, block, processors), replace(block, n=n, k=k), parts))
    _, block, parts = min(found, key=lambda choice: choice[0])
    return block, parts


def weight_gradient(
    inputs: int, outputs: int, taps: int, groups: int, pixels: int, half: bool, processors: int
) -> tuple[Blocks, int, int]:
    """The blocks for the weight gradient, where n counts pairs of tap and input channel; parts of the sum over pixels
    and blocks of pixels of each."""
    single = one_tap(inputs, taps)
    columns, size, found = inputs if single else inputs * taps, inputs * outputs * taps * groups, []
    for block in WEIGHT[half]:
        m, n = side(outputs, block.m), side(columns, block.n)
        tiles = ceil_div(columns, n) * (taps if single else 1) * ceil_div(outputs, m) * groups
        parts, steps = splits(pixels, replace(block, m=m, n=n), tiles, size, processors, half)
        time = duration(tiles, parts * steps, parts, size, block, processors)
        found.append((time, replace(block, m=m, n=n), parts, steps))
    return min(found, key=lambda choice: choice[0])[1:]


def one_tap(inputs: int, taps: int) -> bool:
    """Whether a block of the weight gradient stays within a tap: unless few input channels would leave it empty."""
    return taps == 1 or inputs >= 32


def narrow() -> Blocks:
    """For 1x1 layers of few channels, m pixels at a time."""
    return Blocks(m=64, n=0, k=0, num_warps=4, stages=1)


def pointwise_weight(inputs: int, outputs: int) -> Blocks:
    """For the weight gradient of 1x1 layers, k pixels at a time."""
    m, n = side(outputs, 128), sum(halves(inputs)) if inputs <= NARROW else NARROW
    return Blocks(m, n, 32, 8 if m * n >= 128 * 128 else 4, 3, cost=m * n / 8192)


def windows_weight(columns: int, outputs: int) -> Blocks:
    """For the weight gradient with both operands' pixels as neighbours, n counting pairs of tap and input channel."""
    m, n = side(outputs, 128), side(columns, 128)
    return Blocks(m, n, 32, 8 if m * n >= 128 * 128 else 4, 3, cost=m * n / 8192)


def duration(tiles: int, steps: int, parts: int, size: int, block: Blocks, processors: int) -> float:
    """Microseconds of a launch: so many blocks of the result, each a sum of so many steps, cut into parts."""
    programs = ceil_div(tiles * parts, processors)
    time = max(programs * block.cost, STEP) * (ceil_div(steps, parts) + START)
    return time if parts == 1 else time + SUM + parts * size * NUMBER


def parts_of_sum(
    tiles: int, steps: int, size: int, block: Blocks, processors: int, least: int = 1, most: int = 2**31
) -> int:
    """How many parts a sum is cut into: what takes the least time among those that fill the GPU a few times."""
    most = max(min(most, steps, WORKSPACE // max(4 * size, 1)), 1)
    counts = {least, *(times * processors // max(tiles, 1) for times in range(1, 9))}
    counts = sorted({min(max(count, least), most) for count in counts})
    return min(counts, key=lambda parts: duration(tiles, steps, parts, size, block, processors))


def splits(
    pixels: int, block: Blocks, tiles: int, size: int, processors: int, half: bool, fill: int = 0
) -> tuple[int, int]:
    """How many parts the sum over pixels is cut into, and how many blocks of pixels each adds.

    More than what is fastest where a chain of additions would be too long, fewer where the parts, of `size` numbers
    each, would not fit the workspace. Kernels bound by memory want `fill` programs a multiprocessor, if that leaves
    each enough to do.
    """
    blocks = ceil_div(pixels, block.k)
    chain = ceil_div(pixels, HALF_CHAIN if half else CHAIN)
    least = max(chain, min(fill * processors // max(tiles, 1), blocks // 16), 1)
    parts = parts_of_sum(tiles, blocks, size, block, processors, least)
    steps = ceil_div(blocks, parts)
    return ceil_div(blocks, max(steps, 1)), steps
