"""Matrix instructions against numpy, with the layouts of the ISA documents written out."""

import numpy as np
import pytest
from isa_lab import execute

from lanewise.isa import UnsupportedInstruction

RNG = np.random.default_rng(2)


def test_mfma_16x16x4_of_floats():
    A, B, C = (RNG.standard_normal(shape).astype(np.float32) for shape in ((16, 4), (4, 16), (16, 16)))
    lane = np.arange(64)
    vectors = {1: A[lane % 16, lane // 16], 2: B[lane // 16, lane % 16]}
    vectors |= {4 + r: C[4 * (lane // 16) + r, lane % 16] for r in range(4)}
    waves = execute("v_mfma_f32_16x16x4_f32 v[8:11], v1, v2, v[4:7]", vectors, wave=64)
    want = (A.astype(float) @ B.astype(float) + C).astype(np.float32)
    for r in range(4):
        np.testing.assert_allclose(waves.f[8 + r][0], want[4 * (lane // 16) + r, lane % 16], rtol=1e-6, atol=1e-6)


def test_mfma_32x32x8_of_halves():
    A, B = (RNG.standard_normal(shape).astype(np.float16) for shape in ((32, 8), (8, 32)))
    lane, vectors = np.arange(64), {}
    for j in range(2):
        a = [A[lane % 32, 4 * (lane // 32) + 2 * j + k] for k in range(2)]
        b = [B[4 * (lane // 32) + 2 * j + k, lane % 32] for k in range(2)]
        vectors[1 + j], vectors[3 + j] = (np.stack(x, 1).copy().view(np.uint32)[:, 0] for x in (a, b))
    waves = execute("v_mfma_f32_32x32x8_f16 a[0:15], v[1:2], v[3:4], 0", vectors, wave=64, accumulators=16)
    want = A.astype(float) @ B.astype(float)
    first = waves.layout.vectors
    for r in range(16):
        rows = 8 * (r // 4) + 4 * (lane // 32) + r % 4
        np.testing.assert_allclose(waves.f[first + r][0], want[rows, lane % 32], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_wmma_of_halves(arch):
    A, B = (RNG.standard_normal((16, 16)).astype(np.float16) for _ in range(2))
    lane, n = np.arange(32), 16 if arch == "gfx1100" else 8
    start = 0 * lane if n == 16 else 8 * (lane // 16)
    vectors = {}
    for j in range(n // 2):
        a = [A[lane % 16, start + 2 * j + k] for k in range(2)]
        b = [B[start + 2 * j + k, lane % 16] for k in range(2)]
        vectors[j], vectors[8 + j] = (np.stack(x, 1).copy().view(np.uint32)[:, 0] for x in (a, b))
    text = f"v_wmma_f32_16x16x16_f16 v[16:23], v[0:{n // 2 - 1}], v[8:{8 + n // 2 - 1}], 0"
    waves = execute(text, vectors, arch=arch)
    want = A.astype(float) @ B.astype(float)
    for r in range(8):
        rows = 2 * r + lane // 16 if n == 16 else 8 * (lane // 16) + r
        np.testing.assert_allclose(waves.f[16 + r][0], want[rows, lane % 16], rtol=1e-6, atol=1e-6)


def test_a_matrix_instruction_wants_all_lanes():
    with pytest.raises(UnsupportedInstruction, match="not active"):
        execute("v_mfma_f32_16x16x4_f32 v[8:11], v1, v2, 0", wave=64, active=np.arange(64) < 63)
