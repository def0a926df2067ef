"""Whether the text that is executed is the binary that would run."""

from __future__ import annotations

from lanewise.prove.compile import Compiled, gpu_target


def reassembled(compiled: Compiled, assembly: str | None = None) -> bool:
    """Whether AMD's assembler makes the binary of `compiled`, byte by byte, of its assembly (or of another text)."""
    return assemble(compiled, compiled.assembly if assembly is None else assembly) == compiled.binary


def assemble(compiled: Compiled, assembly: str) -> bytes:
    """The code object of a text, assembled and linked with the options that `compiled` had."""
    from triton._C.libtriton import llvm
    from triton.compiler import make_backend

    llvm.init_targets()  # Triton does so when it compiles, and not when it finds the kernel in its cache
    backend = make_backend(gpu_target(compiled.target))
    options = backend.parse_options({"num_warps": compiled.warps, "arch": compiled.target.name})
    stages: dict = {}
    try:
        from triton.backends.compiler import Language

        backend.add_stages(stages, options, Language.TRITON)
    except ImportError:
        backend.add_stages(stages, options)  # pyright: ignore[reportCallIssue]
    return stages["hsaco"](assembly, {})
