"""One instruction, or a few lines of assembly as a kernel, on the emulator."""

from __future__ import annotations

import numpy as np

from lanewise.isa import decode, parse
from lanewise.isa.state import Layout, Waves

ARCH = {32: "gfx1100", 64: "gfx942"}


def execute(
    text: str,
    vectors: dict[int, np.ndarray] | None = None,
    scalars: dict[int, int] | None = None,
    *,
    wave: int = 32,
    active: np.ndarray | None = None,
    arch: str | None = None,
    accumulators: int = 8,
) -> Waves:
    """The state after one instruction. vectors: [lanes] of any 32-bit type, by register; others hold 0."""
    ins = parse.instruction(1, text)
    layout = Layout(24, accumulators, wave, arch or ARCH[wave])
    function = decode.decode(ins, layout)
    waves = Waves(layout, 1)
    waves.vectors[...] = 0
    waves.scalars[...] = 0
    for row, values in (vectors or {}).items():
        waves.u[row][0] = np.ascontiguousarray(values).view(np.uint32)
    for number, value in (scalars or {}).items():
        waves.scalars[0, number] = value & 0xFFFFFFFF
    lanes = np.ones(wave, bool) if active is None else active
    packed = np.packbits(lanes, bitorder="little").view(np.uint32)
    waves.scalars[0, parse.EXEC : parse.EXEC + len(packed)] = packed
    waves.exec_changed()
    assert function is not None
    with np.errstate(all="ignore"):
        function(waves)
    return waves


def kernel(body: str, *, wave: int = 32, arguments: int = 2, lds: int = 0, arch: str | None = None) -> str:
    """A kernel's text. s[0:1] point to its arguments, all of them pointers; s2 is the workgroup, v0 the thread."""
    stripped = [line.strip() for line in body.strip().split("\n")]
    lines = "\n".join(line if line.endswith(":") else "\t" + line for line in stripped)
    entries = "\n".join(
        f"      - .address_space:  global\n        .offset:         {8 * k}\n        .size:           8\n"
        "        .value_kind:     global_buffer"
        for k in range(arguments)
    )
    return f"""\t.amdgcn_target "amdgcn-amd-amdhsa--{arch or ARCH[wave]}"
\t.text
k:
{lines}
\t.section\t.rodata
\t.amdhsa_kernel k
\t\t.amdhsa_group_segment_fixed_size {lds}
\t\t.amdhsa_kernarg_size {8 * arguments}
\t\t.amdhsa_user_sgpr_count 2
\t\t.amdhsa_user_sgpr_kernarg_segment_ptr 1
\t\t.amdhsa_wavefront_size32 {int(wave == 32)}
\t\t.amdhsa_float_denorm_mode_32 3
\t.end_amdhsa_kernel
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .args:
{entries}
    .group_segment_fixed_size: {lds}
    .name:           k
    .vgpr_count:     8
    .sgpr_count:     16
    .vgpr_spill_count: 0
\t.end_amdgpu_metadata
"""
