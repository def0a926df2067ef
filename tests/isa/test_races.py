"""The race detector, in every order."""

import numpy as np
import pytest
from isa_lab import kernel

from lanewise.isa import RaceError, load
from lanewise.isa.schedule import ORDERS

EXCHANGE = """
    s_load_b128 s[4:7], s[0:1], 0x0
    v_lshlrev_b32_e32 v1, 2, v0
    v_xor_b32_e32 v2, 0x80, v1
    ds_store_b32 v1, v0
    s_waitcnt lgkmcnt(0)
    {barrier}
    ds_load_b32 v3, v2
    s_waitcnt lgkmcnt(0)
    global_store_b32 v1, v3, s[4:5]
    s_endpgm
"""


@pytest.mark.parametrize("order", ORDERS)
def test_a_missing_barrier_is_found_in_every_order(order):
    out = np.zeros(64, np.int32)
    load(kernel(EXCHANGE.format(barrier="s_barrier"), lds=256)).run((1,), [out, None], waves=2, order=order)
    assert out.tolist() == [k ^ 32 for k in range(64)]
    with pytest.raises(RaceError, match="LDS, byte"):
        load(kernel(EXCHANGE.format(barrier="s_nop 0"), lds=256)).run((1,), [out, None], waves=2, order=order)


STORE = """
    s_load_b128 s[4:7], s[0:1], 0x0
    v_mov_b32_e32 v1, 0
    v_mov_b32_e32 v2, {value}
    s_waitcnt lgkmcnt(0)
    global_store_b32 v1, v2, s[4:5]
    s_endpgm
"""


@pytest.mark.parametrize("order", ORDERS)
def test_workgroups_that_store_different_values_race(order):
    out = np.zeros(1, np.int32)
    load(kernel(STORE.format(value="7"))).run((2,), [out, None], order=order)  # the same value: no race
    assert out[0] == 7
    with pytest.raises(RaceError, match="global memory"):
        load(kernel(STORE.format(value="s2"))).run((2,), [out, None], order=order)


@pytest.mark.parametrize("order", ORDERS)
def test_a_barrier_does_not_order_workgroups(order):
    body = STORE.format(value="7").replace("s_endpgm", "s_barrier\n global_load_b32 v3, v1, s[4:5]\n s_endpgm")
    load(kernel(body)).run((1,), [np.zeros(1, np.int32), None], waves=2, order=order)
    with pytest.raises(RaceError):
        load(kernel(body)).run((2,), [np.zeros(1, np.int32), None], order=order)


def test_a_plain_read_of_a_word_that_is_added_to_races():
    body = STORE.format(value="7").replace("global_store_b32", "global_atomic_add_u32")
    load(kernel(body)).run((2,), [np.zeros(1, np.int32), None])
    body = body.replace("s_endpgm", "global_load_b32 v3, v1, s[4:5]\n s_endpgm")
    with pytest.raises(RaceError, match="an atomic and a read"):
        load(kernel(body)).run((2,), [np.zeros(1, np.int32), None])


# Thread k of the grid stores v0 to part k of an array, after its first; v3 is 0, v4 the workgroup.
PARTS = """
    s_load_b128 s[4:7], s[0:1], 0x0
    s_lshl_b32 s8, s2, 5
    v_add_nc_u32_e32 v1, s8, v0
    v_mul_u32_u24_e32 v1, {size}, v1
    v_mov_b32_e32 v3, 0
    v_mov_b32_e32 v4, s2
    s_waitcnt lgkmcnt(0)
    global_store_b{bits} v1, v0, s[4:5] offset:{size}
    {more}
    s_endpgm
"""


def run_parts(size: int, more: str, order: str = "lockstep") -> np.ndarray:
    """What two workgroups of one wave leave."""
    out = np.zeros(72 * size, np.uint8)
    body = PARTS.format(size=size, bits=8 * size, more=more)
    load(kernel(body)).run((2,), [out, None], order=order)
    return out.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[size])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [1, 2])
def test_parts_of_one_word_may_be_of_two_waves(size: int, order: str):
    left = run_parts(size, f"global_load_u{8 * size} v2, v1, s[4:5] offset:{size}", order)
    assert left[1:65].tolist() == [*range(32)] * 2


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("size", "more"),
    [
        (1, "global_store_b8 v3, v4, s[4:5] offset:70"),
        (2, "global_store_b16 v3, v4, s[4:5] offset:140"),
        (2, "global_store_b32 v3, v4, s[4:5] offset:134"),  # not aligned
        (1, "global_load_u8 v2, v3, s[4:5] offset:1"),
        (2, "global_load_u16 v2, v3, s[4:5] offset:2"),
        (2, "global_load_b32 v2, v3, s[4:5] offset:4"),  # a word of two parts
        (4, "global_load_b32 v2, v3, s[4:5] offset:130"),  # of words of both waves
        (4, "global_load_u16 v2, v3, s[4:5] offset:6"),
        (4, "global_store_b8 v3, v4, s[4:5] offset:7"),
    ],
)
def test_two_waves_at_one_byte_race(size: int, more: str, order: str):
    with pytest.raises(RaceError, match="global memory, byte"):
        run_parts(size, more, order)


def test_the_second_word_of_a_wide_atomic_counts():
    body = """
        s_load_b128 s[4:7], s[0:1], 0x0
        v_mov_b32_e32 v1, 0
        v_mov_b32_e32 v2, 1
        v_mov_b32_e32 v3, 0
        s_waitcnt lgkmcnt(0)
        global_atomic_add_u64 v1, v[2:3], s[4:5]
        s_endpgm
    """
    out = np.zeros(1, np.int64)
    load(kernel(body)).run((2,), [out, None])
    assert out[0] == 2 * 32
    program = load(kernel(body.replace("s_endpgm", "global_load_b32 v4, v1, s[4:5] offset:4\ns_endpgm")))
    with pytest.raises(RaceError, match="byte 4: an atomic and a read"):
        program.run((2,), [out, None])
