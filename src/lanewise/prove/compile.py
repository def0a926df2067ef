"""A configuration to machine code for a target, and what its numbers are. Needs no GPU and no driver."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import struct
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lanewise.errors import LanewiseError
from lanewise.prove.coalesced import coalesced_once
from lanewise.prove.launches import BEST, Configuration
from lanewise.target import Target, find

ALLOCATED, EXECUTABLE = 2, 4  # flags of an ELF file's sections


class CompileError(LanewiseError):
    """Triton did not compile a kernel for a target."""

    exit_code = 1


@dataclass(frozen=True)
class Compiled:
    """Machine code of one configuration for one target.

    Attributes:
        assembly: text; PTX for NVIDIA.
        binary: the code object that a driver would load.
        function: the kernel's name in both.
        warps: waves of a program.
        metadata: Triton's own, for `reassembled`.
        vgprs, agprs, sgprs: registers of a lane (NVIDIA's in vgprs) and of a wave (None for NVIDIA).
        lds: bytes of memory that a program's lanes share.
        spills: registers that a lane keeps in memory (NVIDIA: bytes).
        instructions: of the whole text.
        cas_loops: compare-and-swap instructions, each of which stands in a loop.
        ir: Triton's GPU IR (TTGIR), which the text was made of.
        ir_of: the target that it was made for, where it is another one's (`SAME_IR`).
        compile_seconds: of the processor.
    """

    target: Target
    assembly: str = field(repr=False)
    binary: bytes = field(repr=False)
    function: str
    warps: int
    metadata: Any = field(repr=False)
    vgprs: int
    agprs: int
    sgprs: int | None
    lds: int
    spills: int
    instructions: int
    cas_loops: int
    ir: str = field(default="", repr=False)
    ir_of: str = ""
    compile_seconds: float = 0.0

    @functools.cached_property
    def machine_code(self) -> bytes:
        """What is loaded of the binary, instructions and constants (AMD's descriptor of the kernel is one), without
        names and source lines: two targets of a family with the same one run the same program."""
        return b"".join(self.binary[start : start + size] for start, size in _loaded(self.binary, ALLOCATED))


def triton_version() -> str:
    """The installed Triton, which every verdict names."""
    import triton

    return triton.__version__


# Targets for which Triton makes the very GPU IR (TTGIR) that it makes for another one, but for the name in it: up to
# there AMD's backend asks for the family of the ISA (RDNA 3 and 3.5 are one to it), NVIDIA's for the generation (8 and
# 9 are one, and 10 and 12, but for matrix products). Made once, it serves all; most of the time is spent before it.
# Found in Triton's sources, and by compiling a sample of the product's configurations both ways: the machine code was
# the same, byte by byte.
SAME_IR = {
    **dict.fromkeys(("gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151"), "gfx1100"),
    "gfx1200": "gfx1201",
    **dict.fromkeys(("sm_86", "sm_89"), "sm_80"),
}
SAME_IR_WITHOUT_DOTS = {"sm_80": "sm_90", "sm_120": "sm_100"}
SAME_IR_WITH = ("3.9",)  # releases of Triton


@functools.lru_cache(maxsize=4096)
def compile_for(configuration: Configuration, target: Target) -> Compiled:
    """Compile with the installed Triton, as its JIT would on a machine with this target.

    Raises:
        CompileError: Triton refuses.
    """
    return _compile(configuration, target, _with_same_ir(configuration, target))


def _with_same_ir(configuration: Configuration, target: Target) -> Compiled | None:
    """What another target has of a configuration, where its GPU IR is the same."""
    name = (SAME_IR | SAME_IR_WITHOUT_DOTS).get(target.name)
    if name is None or not triton_version().startswith(SAME_IR_WITH):
        return None
    try:
        other = compile_for(as_launched(configuration, find(name)), find(name))
    except CompileError:
        return None
    return (
        other
        if name == SAME_IR.get(target.name) or not re.search(r"\btt\.dot|\bttng\.(?!two-ctas)", other.ir)
        else None
    )


def _compile(configuration: Configuration, target: Target, same: Compiled | None = None) -> Compiled:
    """From the kernel's source, or from the GPU IR of a target with the same one."""
    import triton

    begin = _processor_seconds()
    once = coalesced_once() if triton_version().startswith(SAME_IR_WITH) else contextlib.nullcontext()
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder, once:
        warnings.simplefilter("ignore")  # Triton 3.9 announces the default of 3.10
        try:
            source = _source(configuration, target) if same is None else str(_renamed(same, target, Path(folder)))
            done = triton.compile(source, target=gpu_target(target), options=dict(configuration.options))
        except Exception as error:
            first = str(error).strip().splitlines() or [""]
            raise CompileError(f"{configuration.name} for {target.name}: {type(error).__name__}: {first[0]}") from error
    metadata = done.metadata
    if target.vendor == "amd":
        text, binary = done.asm["amdgcn"], done.asm["hsaco"]
        numbers: dict[str, Any] = dict(amd_numbers(text))
    else:
        text, binary = done.asm["ptx"], done.asm["cubin"]
        numbers = nvidia_numbers(binary, text)
    numbers["lds"] = metadata.shared  # asked for at the launch
    numbers["ir"], numbers["ir_of"] = done.asm["ttgir"], same.target.name if same else ""
    numbers["compile_seconds"] = _processor_seconds() - begin
    return Compiled(target, text, binary, metadata.name, metadata.num_warps, metadata, **numbers)


def _source(configuration: Configuration, target: Target) -> Any:
    """The kernel as Triton's JIT hands it to the compiler."""
    from triton.compiler import ASTSource

    signature = dict(configuration.signature)
    places = {name: place for place, name in enumerate(signature)}
    return ASTSource(
        fn=configuration.function(),
        signature=signature,
        constexprs={(places[name],): value for name, value in configuration.constants},
        attrs={(place,): _pairs(pairs, target) for place, pairs in configuration.attributes} or None,
    )


def _renamed(same: Compiled, target: Target, folder: Path) -> Path:
    """A file with the GPU IR of another target in which this one's name stands."""
    mine, other = (f'"{gpu.backend}:{gpu.arch}"' for gpu in map(gpu_target, (target, same.target)))
    if same.ir.count(other) != 1:
        raise ValueError(f"the GPU IR names its target {same.ir.count(other)} times")
    path = folder / "kernel.ttgir"
    path.write_text(same.ir.replace(other, mine))
    return path


def _processor_seconds() -> float:
    """Of this process and those that it waited for: assemblers and linkers."""
    return time.process_time() + sum(os.times()[2:4])


def as_launched(configuration: Configuration, target: Target) -> Configuration:
    """As it is launched on a target: fp32 is multiplied by the best that `tl.dot` offers there, and loads are under way
    for as many steps as `lanewise.conv` wants where they go to shared memory by themselves. (Launches are recorded with
    `BEST` and with all that is wanted.)"""
    if target.path != "triton":
        return configuration
    there: dict[str, Any] = dict(configuration.constants)
    if there.get("PRECISION") == BEST:
        there["PRECISION"] = _best_precision(target)
    if "STAGES" in there and not target.async_copies:
        there["STAGES"] = 1
    return replace(configuration, constants=tuple(there.items()))


@functools.cache
def _best_precision(target: Target) -> str:
    from triton.compiler import make_backend

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Triton 3.9 announces the default of 3.10
        options: Any = make_backend(gpu_target(target)).parse_options({})
    return next(p for p in target.dot_precisions if p in options.allowed_dot_input_precisions)


def gpu_target(target: Target) -> Any:
    """The target in Triton's words."""
    from triton.backends.compiler import GPUTarget

    if target.vendor == "amd":
        return GPUTarget("hip", target.name, target.wave)
    return GPUTarget("cuda", int(target.name.removeprefix("sm_")), target.wave)


def amd_numbers(assembly: str) -> dict[str, int]:
    """Registers, spills, instructions and compare-and-swaps of AMD's assembly with one kernel."""

    def metadata(name: str) -> int:
        found = re.search(rf"^\s*-?\s*\.{name}:\s*(\d+)", assembly, re.MULTILINE)
        return int(found.group(1)) if found else 0

    opcodes = [line.split()[0] for line in instructions(assembly)]
    agprs = metadata("agpr_count")
    return {
        # Where both kinds share one file, .vgpr_count is their sum.
        "vgprs": metadata("vgpr_count") - agprs if agprs else metadata("vgpr_count"),
        "agprs": agprs,
        "sgprs": metadata("sgpr_count"),
        "spills": metadata("vgpr_spill_count") + metadata("sgpr_spill_count"),
        "instructions": len(opcodes),
        "cas_loops": sum("cmpswap" in opcode for opcode in opcodes),
    }


def instructions(assembly: str) -> list[str]:
    """The instructions of AMD's assembly, without comments, labels and directives."""
    lines = (line.split(";")[0].split("//")[0].strip() for line in assembly.splitlines())
    return [line for line in lines if re.match(r"[a-z]\w*(\s|$)", line) and not line.endswith(":")]


def nvidia_numbers(binary: bytes, ptx: str) -> dict[str, Any]:
    """Registers, spilled bytes and instructions of a cubin. (Only a disassembly, which takes as long as compiling,
    would tell its uniform registers.)"""
    usage = _resource_usage(binary)
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    if not found:
        raise CompileError(f"cuobjdump says nothing about registers: {usage[:200]}")
    return {
        "vgprs": int(found.group(1)),
        "agprs": 0,
        "sgprs": None,
        "spills": int(found.group(2)),
        "instructions": code_bytes(binary) // 16,
        "cas_loops": len(re.findall(r"\batom\S*\.cas\b", ptx)),
    }


def _resource_usage(binary: bytes) -> str:
    import triton

    tool = Path(str(triton.__file__)).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(binary)
        cubin.flush()
        command = [tool, "--dump-resource-usage", cubin.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def code_bytes(elf: bytes) -> int:
    """Bytes of the executable sections of a 64-bit ELF file."""
    return sum(size for _, size in _loaded(elf, EXECUTABLE))


def _loaded(elf: bytes, flag: int) -> Iterator[tuple[int, int]]:
    """Beginnings and sizes of an ELF file's sections of a program's own bytes that have a flag."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    entry, count = struct.unpack_from("<HH", elf, 58)
    for k in range(count):
        _, kind, flags, _, start, size = struct.unpack_from("<IIQQQQ", elf, table + k * entry)
        if kind == 1 and flags & flag:  # PROGBITS
            yield start, size


def _pairs(pairs: tuple[tuple[str, int], ...], target: Target) -> list[list[Any]]:
    """Attributes as Triton takes them; only AMD's backend knows ranges of pointers."""
    return [[name, value] for name, value in pairs if target.vendor == "amd" or name != "tt.pointer_range"]
