"""The evaluator of definitions, on definitions made up here."""

from __future__ import annotations

import numpy as np
import pytest
from pseudocode import Machine, NotCoveredError, bits_of, fma


def left(text: str, **registers: int) -> dict[str, int]:
    Machine({"I": text}, registers, lane=3).run("I")
    return registers


@pytest.mark.parametrize(
    ("text", "registers", "expected"),
    [
        ("D0.u32 = S0.u32 + S1.u32", {"S0": 0xFFFFFFFF, "S1": 2}, 1),
        ("D0.i32 = S0.i32 >> S1[4 : 0].u32", {"S0": 0x80000000, "S1": 0x21}, 0xC0000000),
        ("D0.u64 = 64'U(S0.u32) * 64'U(S1.u32)", {"S0": 1 << 31, "S1": 6}, 6 << 31),
        ("D0.f32 = S0.f32 * 2.0F", {"S0": bits_of(1.5, 32)}, bits_of(3.0, 32)),
        ("D0.u32[31 : 0] = S0.u32[0 : 31]", {"S0": 1}, 1 << 31),
        ("D0.u32 = S0.i32 < 0 ? 1U : 2U", {"S0": 1 << 31}, 1),
        ("if S0.u32 == 1U then D0.u32 = 5U elsif S0.u32 == 2U then D0.u32 = 6U else D0.u32 = 7U endif", {"S0": 2}, 6),
        ("D0.i32 = -1; for i in 0 : 31 do if S0.u32[i] == 1'1U then D0.i32 = i; break endif endfor", {"S0": 40}, 3),
        ("F = lambda(a, b) ((a > b)); D0.u32 = F(S0.u32, S1.u32) ? 9U : 8U", {"S0": 2, "S1": 1}, 9),
        ("declare t : 8'B[4]; t[1] = S0[7 : 0].b8; D0.u32 = t[1][0].b8 + 4U", {"S0": 3}, 5),
        ("VCC.u64[laneId] = 1'1U; D0.u32 = VCC.u32", {"VCC": 1}, 9),
        ("D0.u32 = VGPR[laneId + 1][SRC0.u32]", {"SRC0": 7, "VGPR7": 0x11 << 128}, 0x11),
    ],
)
def test_what_a_definition_leaves(text: str, registers: dict[str, int], expected: int) -> None:
    assert left(text, **{"D0": 0, **registers})["D0"] == expected


def test_a_fused_product_is_rounded_once() -> None:
    # 2^-24 less 2^-64, onto a number of odd last bit: in double precision 2^-64 is lost, and a tie goes up.
    a, b, c = 2.0**-12 * (1 + 2.0**-20), 2.0**-12 * (1 - 2.0**-20), 1 + 2.0**-23
    assert bits_of(fma(a, b, c), 32) == bits_of(c, 32)
    assert float(np.float32(a * b + c)) == 1 + 2.0**-22


def test_prose_is_not_guessed() -> None:
    with pytest.raises(NotCoveredError):
        left("D = A (16x16) * B (16x16) + C (16x16)", D0=0)
