"""Run by tests/target/test_table.py: what Triton compiles an fp32 atomic addition to, for a target that need not be
here.

usage: python compiled_atomics.py TARGET WAVE; prints Triton's version and "native" or "loop"
"""

import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def add(out, rows, n, BLOCK: tl.constexpr):
    """To rows that are only known when it runs, as the rasterizer does."""
    i = tl.arange(0, BLOCK)
    row = tl.load(rows + i, i < n, 0).to(tl.int64)
    tl.atomic_add(out + row * 9, i.to(tl.float32), i < n, sem="relaxed")


def main() -> None:
    name, wave = sys.argv[1], int(sys.argv[2])
    backend, arch = ("hip", name) if name.startswith("gfx") else ("cuda", int(name.removeprefix("sm_")))
    signature = {"out": "*fp32", "rows": "*i32", "n": "i32", "BLOCK": "constexpr"}
    # What the JIT knows of tensors of less than 2 GiB; only AMD's backend knows ranges of pointers.
    known = [["tt.divisibility", 16], *([["tt.pointer_range", 32]] if backend == "hip" else [])]
    source = ASTSource(fn=add, signature=signature, constexprs={"BLOCK": 256}, attrs={(0,): known, (1,): known})
    compiled = triton.compile(source, target=GPUTarget(backend, arch, wave))
    text = compiled.asm["amdgcn" if backend == "hip" else "ptx"]
    loop = "cmpswap" in text or ".cas." in text
    assert loop or "atomic_add_f32" in text or ".add.f32" in text, text
    print(triton.__version__, "loop" if loop else "native")


if __name__ == "__main__":
    main()
