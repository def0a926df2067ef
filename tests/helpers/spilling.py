"""A kernel with more numbers a lane than the registers that it is allowed."""

from __future__ import annotations

import warnings

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

NUMBERS = 8192  # of one wave; it is allowed 64 or 96 registers a lane


@triton.jit
def subtract_sum(x, out, BLOCK: tl.constexpr):
    """out [BLOCK] = x - sum(x): all of x has to be kept until the sum is known."""
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(out + i, v - tl.sum(v, 0))


def spilling(arch: str, wave: int) -> str:
    """Its assembly."""
    source = ASTSource(
        fn=subtract_sum,
        signature={"x": "*fp32", "out": "*fp32", "BLOCK": "constexpr"},
        constexprs={(2,): NUMBERS},
        attrs={(k,): [["tt.divisibility", 16]] for k in (0, 1)},
    )
    options = {"num_warps": 1, "waves_per_eu": 512 // wave}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Triton 3.9 announces the default of 3.10
        return triton.compile(source, target=GPUTarget("hip", arch, wave), options=options).asm["amdgcn"]
