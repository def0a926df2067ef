"""Memory: addresses, buffers, widths, atomics, LDS."""

import numpy as np
import pytest
from isa_lab import kernel

from lanewise.isa import Buffer, MemoryFault, UnsupportedInstruction, load

COPY = """
    s_load_b128 s[4:7], s[0:1], 0x0
    v_lshlrev_b32_e32 v1, 2, v0
    s_waitcnt lgkmcnt(0)
    global_load_b32 v2, v1, s[4:5]{offset}
    s_waitcnt vmcnt(0)
    global_store_b32 v1, v2, s[6:7]
    s_endpgm
"""


def numbers(n=32):
    return np.arange(100, 100 + n, dtype=np.int32)


@pytest.mark.parametrize("address", [None, 2**31 - 64, 2**32 - 64, 2**40 + 2**31])
def test_addresses_have_64_bits(address):
    x, out = numbers(), np.zeros(32, np.int32)
    load(kernel(COPY.format(offset=""))).run((1,), [Buffer(x, address=address), out])
    assert (out == x).all()


def test_a_dropped_high_half_faults():
    dropped = COPY.format(offset="").replace("s_waitcnt lgkmcnt(0)", "s_waitcnt lgkmcnt(0)\n s_mov_b32 s5, 0")
    with pytest.raises(MemoryFault):
        load(kernel(dropped)).run((1,), [Buffer(numbers(), address=2**32), numbers()])


@pytest.mark.parametrize("offset", [" offset:4", " offset:-4"])
def test_one_past_a_buffer_faults(offset):
    with pytest.raises(MemoryFault, match="every buffer"):
        load(kernel(COPY.format(offset=offset))).run((1,), [numbers(), np.zeros(32, np.int32)])


def test_an_argument_may_point_into_an_array():
    x, out = numbers(40), np.zeros(32, np.int32)
    load(kernel(COPY.format(offset=""))).run((1,), [Buffer(x, start=8), out])
    assert (out == x[8:]).all()


BUFFER = """
    s_load_b128 s[4:7], s[0:1], 0x0
    v_lshlrev_b32_e32 v1, 2, v0
    v_mov_b32_e32 v2, -1
    s_waitcnt lgkmcnt(0)
    s_mov_b32 s8, s4
    s_mov_b32 s9, s5
    s_mov_b32 s10, {records}
    s_mov_b32 s11, 0x31027000
    buffer_load_b32 v2, v1, s[8:11], 0 offen{offset}
    s_waitcnt vmcnt(0)
    global_store_b32 v1, v2, s[6:7]
    s_endpgm
"""


@pytest.mark.parametrize(
    ("records", "offset", "want"), [(128, "", 32), (64, "", 16), (66, "", 16), (64, " offset:4", 15)]
)
def test_a_buffer_load_past_its_records_gives_zero(records, offset, want):
    x, out = numbers(33), np.full(32, -5, np.int32)
    load(kernel(BUFFER.format(records=records, offset=offset))).run((1,), [x, out])
    shift = 1 if offset else 0
    assert out.tolist() == [int(x[k + shift]) if k < want else 0 for k in range(32)]


def test_records_do_not_hide_a_read_outside_of_the_array():
    with pytest.raises(MemoryFault):
        load(kernel(BUFFER.format(records=4096, offset=" offset:8"))).run((1,), [numbers(), numbers()])


@pytest.mark.parametrize(
    ("name", "want"),
    [("global_load_u8", 0x80), ("global_load_i8", -128), ("global_load_u16", 0xFF80), ("global_load_i16", -128)],
)
def test_bytes_and_halves(name, want):
    body = COPY.format(offset="").replace("global_load_b32 v2, v1", f"{name} v2, v1")
    out = np.zeros(32, np.int32)
    load(kernel(body)).run((1,), [np.full(32, -128, np.int32), out])
    assert (out == want).all()


def test_loads_need_no_alignment():
    body = COPY.format(offset="").replace(
        "v_lshlrev_b32_e32 v1, 2, v0", "v_lshlrev_b32_e32 v1, 2, v0\n v_mov_b32_e32 v3, 1"
    )
    body = body.replace("global_load_b32 v2, v1, s[4:5]", "global_load_b32 v2, v3, s[4:5]")
    x, out = np.arange(8, dtype=np.uint8), np.zeros(32, np.int32)
    load(kernel(body)).run((1,), [x, out])
    assert (out == 0x04030201).all()


ATOMIC = """
    s_load_b128 s[4:7], s[0:1], 0x0
    v_mov_b32_e32 v1, 0
    v_mov_b32_e32 v2, {value}
    v_lshlrev_b32_e32 v4, 2, v0
    s_waitcnt lgkmcnt(0)
    {atomic}
    s_endpgm
"""


@pytest.mark.parametrize("order", ["lockstep", "reverse"])
def test_lanes_and_waves_add_into_one_word(order):
    total = np.zeros(1, np.float32)
    text = kernel(ATOMIC.format(value="1.0", atomic="global_atomic_add_f32 v1, v2, s[4:5]"))
    load(text).run((3,), [total, None], waves=2, order=order)
    assert total[0] == 3 * 2 * 32


def test_an_atomic_returns_the_old_value():
    count, old = np.zeros(1, np.int32), np.zeros(32, np.int32)
    atomic = "global_atomic_add_u32 v3, v1, v2, s[4:5] glc\n s_waitcnt vmcnt(0)\n global_store_b32 v4, v3, s[6:7]"
    load(kernel(ATOMIC.format(value="2", atomic=atomic))).run((1,), [count, old])
    assert count[0] == 64
    assert old.tolist() == list(range(0, 64, 2))


def test_lds_holds_nan_until_it_is_written_and_has_an_end():
    body = """
        s_load_b128 s[4:7], s[0:1], 0x0
        v_lshlrev_b32_e32 v1, 2, v0
        ds_load_b32 v2, v1{offset}
        s_waitcnt lgkmcnt(0)
        global_store_b32 v1, v2, s[6:7]
        s_endpgm
    """
    out = np.zeros(32, np.float32)
    load(kernel(body.format(offset=""), lds=128)).run((1,), [None, out])
    assert np.isnan(out).all()
    with pytest.raises(MemoryFault, match="LDS"):
        load(kernel(body.format(offset=" offset:4"), lds=128)).run((1,), [None, out])


@pytest.mark.parametrize(
    ("opcode", "offset", "want"),
    [("u8", 1, 0x82), ("i8", 1, 0xFFFFFF82), ("u16", 2, 0xF384), ("i16", 2, 0xFFFFF384), ("u8", 3, 0xF3)],
)
def test_scalar_loads_of_bytes_and_halves(opcode: str, offset: int, want: int):
    """Since generation 12, from any byte and any half."""
    text = f"""
        s_load_b128 s[4:7], s[0:1], 0x0
        v_lshlrev_b32_e32 v1, 2, v0
        s_wait_kmcnt 0x0
        s_load_{opcode} s8, s[4:5], {offset:#x}
        s_wait_kmcnt 0x0
        v_mov_b32_e32 v2, s8
        global_store_b32 v1, v2, s[6:7]
        s_endpgm
    """
    x, out = np.array([0xF3848201, 0], np.uint32), np.zeros(32, np.uint32)
    load(kernel(text, arch="gfx1201")).run((1,), [x, out])
    assert (out == want).all()
    with pytest.raises(UnsupportedInstruction, match="opcode"):
        load(kernel(text.replace("s_wait_kmcnt 0x0", "s_waitcnt lgkmcnt(0)"), arch="gfx1151"))


def test_a_transposing_read_gives_columns_of_four_rows_of_sixteen():
    """Each sixteen lanes for themselves; numbers of 16 bits."""
    text = kernel(
        """
        s_load_dwordx4 s[4:7], s[0:1], 0x0
        s_waitcnt lgkmcnt(0)
        v_lshlrev_b32_e32 v1, 3, v0
        global_load_dwordx2 v[2:3], v1, s[4:5]
        s_waitcnt vmcnt(0)
        ds_write_b64 v1, v[2:3]
        s_waitcnt lgkmcnt(0)
        ds_read_b64_tr_b16 v[4:5], v1
        s_waitcnt lgkmcnt(0)
        global_store_dwordx2 v1, v[4:5], s[6:7]
        s_endpgm
        """,
        wave=64,
        lds=512,
        arch="gfx950",
    )
    given, out = np.arange(256, dtype=np.uint16), np.zeros((64, 4), np.uint16)
    load(text).run((1,), [given, out])
    rows = given.reshape(4, 4, 16)  # [sixteen lanes, row, column]
    np.testing.assert_array_equal(out, rows.transpose(0, 2, 1).reshape(64, 4))
