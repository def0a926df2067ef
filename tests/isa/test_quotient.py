"""A division as compilers write it: what scales and repairs a quotient is right if the quotient is."""

from __future__ import annotations

import numpy as np
import pytest
from opcode_programs import Dialect, run, vector_program

QUOTIENT = """v_div_scale_f32 v12, {unused}, v4, v4, v2
v_div_scale_f32 v14, {mask}, v2, v4, v2
v_rcp_f32_e32 v13, v12
v_fma_f32 v15, -v12, v13, 1.0
v_fma_f32 v13, v15, v13, v13
v_mul_f32_e32 v15, v14, v13
v_fma_f32 v16, -v12, v15, v14
v_fma_f32 v15, v16, v13, v15
v_fma_f32 v12, -v12, v15, v14
v_div_fmas_f32 v12, v12, v13, v15
v_div_fixup_f32 v8, v12, v4, v2"""


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1201"])
def test_a_quotient_is_rounded_correctly(arch: str) -> None:
    dialect, rng = Dialect(arch), np.random.default_rng(0)
    unused = "s[34:35]" if dialect.wave == 64 else "s34"
    text = QUOTIENT.format(mask=dialect.mask, unused=unused).replace("\n", "\n\t")
    program = vector_program(text, dialect)
    for _ in range(20):
        inputs = np.zeros((9, dialect.wave), np.uint32)
        exponents = rng.choice([-148, -126, -100, -30, 0, 30, 100, 126], (2, dialect.wave))
        x, y = np.ldexp(rng.uniform(1, 2, (2, dialect.wave)), exponents).astype(np.float32)
        x[:6], y[:6] = [0, np.inf, 1, -1, np.nan, 0], [1, 2, 0, np.inf, 1, 0]
        with np.errstate(all="ignore"):  # what overflows is not a quotient
            y[np.isfinite(x) & (y != 0) & np.isinf(x / y)] = 1
        inputs[0], inputs[2] = x.view(np.uint32), y.view(np.uint32)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(run(program, inputs, 4)[0].view(np.float32), x / y)
