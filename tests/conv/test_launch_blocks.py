from hypothesis import given
from hypothesis import strategies as st

from lanewise.conv.launch_blocks import (
    CHAIN,
    HALF_CHAIN,
    SMALLEST,
    WORKSPACE,
    Blocks,
    correlation,
    duration,
    halves,
    one_tap,
    parts_of_sum,
    pointwise_weight,
    side,
    splits,
    weight_gradient,
)


def is_block_side(n: int) -> bool:
    return n >= SMALLEST and n & (n - 1) == 0


@given(st.integers(1, 5000), st.sampled_from([16, 32, 64, 128]))
def test_a_side_covers_or_is_the_largest(n: int, largest: int):
    assert is_block_side(side(n, largest))
    assert side(n, largest) >= min(n, largest)
    assert side(n, largest) <= max(2 * n, SMALLEST)


@given(st.integers(1, 512))
def test_halves_cover_with_little_to_spare(n: int):
    first, second = halves(n)
    assert is_block_side(first)
    assert second == 0 or is_block_side(second)
    assert n <= first + second <= max(3 * n // 2, SMALLEST * 2)
    assert halves(first + second) == (first, second)


def test_the_incidents_layer_computes_nothing_that_is_not_there():
    assert (halves(96), halves(64)) == ((64, 32), (64, 0))


sizes = st.integers(1, 2**31)


@given(
    st.integers(1, 2**31 - 2**11), st.sampled_from([16, 32, 64]), st.integers(1, 10**5), st.integers(1, 2**24), sizes
)
def test_parts_cover_all_pixels_once(pixels: int, k: int, tiles: int, size: int, processors: int):
    for half, fill in ((False, 0), (True, 6)):
        parts, steps = splits(pixels, Blocks(64, 64, k, 4, 3), tiles, size, processors, half, fill)
        assert (parts - 1) * steps * k < pixels <= parts * steps * k
        assert parts == 1 or parts * size * 4 <= WORKSPACE
        chain = HALF_CHAIN if half else CHAIN
        if 2 * size * 4 * -(-pixels // chain) <= WORKSPACE:
            assert steps * k <= chain + k


@given(sizes, st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 343), st.booleans(), st.sampled_from([1, 132]))
def test_blocks_are_ones_that_matrix_instructions_take(
    rows: int, inputs: int, outputs: int, taps: int, half: bool, processors: int
):
    block, parts = correlation(rows, 1, inputs, outputs, taps, half, processors, rows * outputs)
    assert parts == 1 or parts * rows * outputs * 4 <= WORKSPACE
    assert correlation(rows, 1, inputs, outputs, taps, half, processors, None)[1] == 1
    weights, *_ = weight_gradient(inputs, outputs, taps, 1, rows, half, processors)
    for found in (block, weights, correlation(rows, 1, inputs, outputs, taps, half, processors, None, True)[0]):
        assert all(map(is_block_side, (found.m, found.n, found.k)))
        assert found.m * found.n <= 2**15
    block = pointwise_weight(inputs, outputs)
    assert is_block_side(block.m)
    assert is_block_side(block.k)
    assert all(is_block_side(n) or not n for n in halves(block.n))
    assert one_tap(inputs, 1)


def test_a_gpu_that_would_stand_idle_gets_parts_of_sums():
    """512 channels of 7x7 pixels, batch 32, on an H200: 49 or 200 blocks of the result, sums of 4608 products."""
    block, parts = correlation(1568, 1, 512, 512, 9, True, 132, 1568 * 512)
    assert -(-1568 // block.m) * (512 // block.n) * parts > 100
    assert parts > 1


@given(st.integers(1, 500), st.integers(1, 500), st.integers(1, 10**6), st.integers(1, 200))
def test_the_number_of_parts_is_the_fastest_of_those_that_fill_the_gpu(tiles, steps, size, processors):
    block = Blocks(64, 64, 32, 4, 3, 0.5)
    parts = parts_of_sum(tiles, steps, size, block, processors)
    assert 1 <= parts <= max(steps, 1)
    assert duration(tiles, steps, parts, size, block, processors) <= duration(tiles, steps, 1, size, block, processors)
