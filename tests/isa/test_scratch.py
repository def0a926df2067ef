"""Memory of a lane's own: scratch instructions, and kernels that a compiler made spill."""

from __future__ import annotations

import re

import numpy as np
import pytest
from isa_lab import kernel

from lanewise.isa import MemoryFault, UnsupportedInstruction, WaitError, load

BODY = {
    32: """
        s_load_b128 s[4:7], s[0:1], 0x0
        v_lshlrev_b32_e32 v1, 2, v0
        s_waitcnt lgkmcnt(0)
        global_load_b32 v2, v1, s[4:5]
        s_waitcnt vmcnt(0)
        v_add_nc_u32_e32 v3, 1, v2
        s_mov_b32 s9, 4
        v_mov_b32_e32 v6, 8
        scratch_store_b32 off, v2, off
        scratch_store_b64 off, v[2:3], s9 offset:4
        scratch_load_b32 v4, v6, off
        scratch_load_b32 v5, v6, off offset:4
        s_waitcnt vmcnt(0)
        global_store_b64 v1, v[4:5], s[6:7]
        s_endpgm
    """
}
BODY[64] = (
    BODY[32]
    .replace("s_load_b128", "s_load_dwordx4")
    .replace("v_add_nc_u32", "v_add_u32")
    .replace("_b32 v2, v1, s", "_dword v2, v1, s")
    .replace("_b64 v1", "_dwordx2 v1")
    .replace("scratch_store_b32", "scratch_store_dword")
    .replace("scratch_store_b64", "scratch_store_dwordx2")
    .replace("scratch_load_b32", "scratch_load_dword")
)
BODY = {wave: body.replace("v_lshlrev_b32_e32 v1, 2", "v_lshlrev_b32_e32 v1, 3") for wave, body in BODY.items()}


def run(wave: int, scratch: int, old: str = "", new: str = "", waves: int = 2) -> np.ndarray:
    """What two workgroups of two waves leave: pairs [waves * lanes, 2] of what every lane spilled and loaded again."""
    text = kernel(BODY[wave].replace(old, new) if old else BODY[wave], wave=wave)
    text = text.replace(
        "\t\t.amdhsa_kernarg_size", f"\t\t.amdhsa_private_segment_fixed_size {scratch}\n\t\t.amdhsa_kernarg_size"
    )
    numbers = np.arange(100, 100 + 2 * waves * wave, dtype=np.int32)
    out = np.zeros((waves * wave, 2), np.int32)
    load(text).run((1,), [numbers, out], waves=waves)
    return out


@pytest.mark.parametrize("wave", [32, 64])
def test_every_lane_has_memory_of_its_own(wave: int) -> None:
    out = run(wave, 16)
    own = np.arange(100, 100 + 4 * wave, 2)
    assert out.tolist() == [[x, x + 1] for x in own]


@pytest.mark.parametrize("wave", [32, 64])
def test_what_was_not_stored_is_poison(wave: int) -> None:
    store = next(line.strip() for line in BODY[wave].split("\n") if "v[2:3], s9" in line)
    assert (run(wave, 16, store, "s_nop 0").view(np.uint32) == 0x7FDEAD01).all()


@pytest.mark.parametrize("wave", [32, 64])
def test_past_a_lanes_memory_faults(wave: int) -> None:
    with pytest.raises(MemoryFault, match="scratch access outside a lane's 16 bytes"):
        run(wave, 16, "s9 offset:4", "s9 offset:8")
    with pytest.raises(MemoryFault, match="scratch access outside a lane's 0 bytes"):
        run(wave, 0)


@pytest.mark.parametrize("wave", [32, 64])
def test_a_reload_has_to_be_waited_for(wave: int) -> None:
    with pytest.raises(WaitError, match="v4"):
        run(wave, 16, "s_waitcnt vmcnt(0)\n        global_store", "s_nop 0\n        global_store")


@pytest.mark.parametrize(
    ("arch", "wave", "how"), [("gfx942", 64, "scratch"), ("gfx1100", 32, "scratch"), ("gfx90a", 64, "buffer")]
)
@pytest.mark.parametrize("order", ["lockstep", "reverse"])
def test_a_kernel_that_spills_is_right(arch: str, wave: int, how: str, order: str) -> None:
    pytest.importorskip("triton")
    from spilling import NUMBERS, spilling

    text = spilling(arch, wave)
    program = load(text)
    assert program.spills > 50
    assert f"{how}_load_dword" in text or f"{how}_load_b32" in text
    x = np.arange(NUMBERS, dtype=np.float32) - 1000
    out = np.zeros_like(x)
    program.run((2,), [x, out], order=order)
    assert (out == x - x.sum()).all()


@pytest.mark.parametrize(
    ("right", "wrong", "error", "message"),
    [
        (r"s_add_u32 (s\d+), \1, s15", "s_nop 0", UnsupportedInstruction, "not this wave's own memory"),
        (r"off, (s\[16:19\]), 0 offset:432", r"off, \1, s15 offset:432", UnsupportedInstruction, "not this wave's own"),
        (r"offset:432", "offset:4092", MemoryFault, "scratch access outside a lane's"),
        (r"offset:432", "offset:433", MemoryFault, "scratch access outside a lane's"),
    ],
)
def test_a_lane_spills_to_its_own_words_of_the_buffer(right: str, wrong: str, error: type, message: str) -> None:
    """Of two workgroups; gfx90a hands the buffer over in s[0:3], and where a wave's part of it begins in s15."""
    pytest.importorskip("triton")
    from spilling import NUMBERS, spilling

    text, changes = re.subn(right, wrong, spilling("gfx90a", 64), count=1)
    assert changes
    x = np.zeros(NUMBERS, np.float32)
    with pytest.raises(error, match=message):
        load(text).run((2,), [x, np.zeros_like(x)])
