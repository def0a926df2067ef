from hypothesis import given
from hypothesis import strategies as st

from lanewise.conv.launch_blocks import (
    CHAIN,
    SMALLEST,
    WORKSPACE,
    Blocks,
    correlation,
    halves,
    one_tap,
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
def test_parts_cover_all_pixels_once(pixels: int, block: int, tiles: int, size: int, wanted: int):
    parts, steps = splits(pixels, block, tiles, size, wanted)
    assert (parts - 1) * steps * block < pixels <= parts * steps * block
    assert parts == 1 or parts * size * 4 <= WORKSPACE
    if 2 * size * 4 * -(-pixels // CHAIN) <= WORKSPACE:
        assert steps * block <= CHAIN + block


@given(sizes, st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 343), st.booleans())
def test_blocks_are_ones_that_matrix_instructions_take(rows: int, inputs: int, outputs: int, taps: int, half: bool):
    found = [correlation(rows, inputs, outputs, half, 132), weight_gradient(inputs, outputs, taps, half)]
    for block in found:
        assert all(map(is_block_side, (block.m, block.n, block.k)))
        assert block.m * block.n <= 2**15
    block = pointwise_weight(inputs, outputs)
    assert is_block_side(block.m)
    assert is_block_side(block.k)
    assert all(is_block_side(n) or not n for n in halves(block.n))
    assert isinstance(block, Blocks)
    assert one_tap(inputs, 1)
