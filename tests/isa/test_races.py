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
