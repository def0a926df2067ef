"""The known targets, one row each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from lanewise.errors import InputError

WINDOW_BYTES = 2**32 - 1  # what an unsigned 32-bit byte offset reaches; a tensor of exactly this size fits


@dataclass(frozen=True)
class Target:
    """A kind of hardware that tensors can live on.

    Attributes:
        name: the architecture as its compiler names it ("sm_90", "gfx942", "cpu").
        vendor: who makes it; "cpu" for the host's processor.
        family: what shares one instruction set: "10.3", "11", "11.5" and "12" are RDNA 2 to 4; all others their own.
        path: what runs there: "triton" for the kernels, "cpu" where they are not supported and tensors have to live on
            the CPU.
        wave: lanes that execute together; 1 on the CPU. Kernels never see it: it is for reports, proofs and launch
            choices.
        window_bytes: largest tensor slice, in bytes, that one launch may address.
        dot_precisions: what `tl.dot` offers for fp32 operands with fp32-class accuracy (relative error <= 1e-6), best
            first; empty where Lanewise has no matrix kernels.
        description: product names.
        async_copies: whether loads of a loop's later steps go to shared memory by themselves, while it computes. On AMD
            they would take registers that the products need, and Triton 3.9 leaves out a wait for gfx11: the stores of
            one step are not waited for before the barrier of the next. `lanewise prove` found that.
    """

    name: str
    vendor: Literal["nvidia", "amd", "intel", "apple", "cpu"]
    wave: int
    window_bytes: int
    dot_precisions: tuple[str, ...]
    description: str
    family: str
    path: Literal["triton", "cpu"] = "triton"
    async_copies: bool = False


def _nvidia(name: str, description: str) -> Target:
    # TF32 matrix units came with sm_80, as did asynchronous copies: three TF32 products make one of fp32 class. Before
    # that there is plain fp32 arithmetic.
    ampere = int(name.removeprefix("sm_")) >= 80
    precisions = ("tf32x3", "ieee") if ampere else ("ieee",)
    return Target(name, "nvidia", 32, WINDOW_BYTES, precisions, description, family=name, async_copies=ampere)


def _amd(name: str, wave: int, family: str, description: str) -> Target:
    # bf16x3 reaches only 4.5e-6, so that six products are needed for fp32 class. RDNA 2 has no matrix units.
    precisions = ("ieee",) if family == "10.3" else ("bf16x6", "ieee")
    return Target(name, "amd", wave, WINDOW_BYTES, precisions, description, family)


def _unsupported(name: str, vendor: Literal["intel", "apple"], description: str) -> Target:
    # Named as torch names the device: nothing is compiled for it. What runs is the CPU's code.
    return Target(name, vendor, 1, WINDOW_BYTES, (), description, family=name, path="cpu")


TARGETS: tuple[Target, ...] = (
    Target("cpu", "cpu", 1, WINDOW_BYTES, (), "the host's processor", "cpu", path="cpu"),
    _nvidia("sm_75", "Turing: T4, RTX 20"),
    _nvidia("sm_80", "Ampere: A100"),
    _nvidia("sm_86", "Ampere: RTX 30, A40"),
    _nvidia("sm_89", "Ada: RTX 40, L40"),
    _nvidia("sm_90", "Hopper: H100, H200"),
    _nvidia("sm_100", "Blackwell: B200"),
    _nvidia("sm_120", "Blackwell: RTX 50"),
    _amd("gfx90a", 64, "gfx90a", "CDNA 2: MI210, MI250"),
    _amd("gfx942", 64, "gfx942", "CDNA 3: MI300X"),
    _amd("gfx950", 64, "gfx950", "CDNA 4: MI350X"),
    _amd("gfx1030", 32, "10.3", "RDNA 2: RX 6800, 6900"),
    _amd("gfx1100", 32, "11", "RDNA 3: RX 7900"),
    _amd("gfx1101", 32, "11", "RDNA 3: RX 7800, 7700"),
    _amd("gfx1102", 32, "11", "RDNA 3: RX 7600"),
    _amd("gfx1103", 32, "11", "RDNA 3: Radeon 780M"),
    _amd("gfx1150", 32, "11.5", "RDNA 3.5: Radeon 890M"),
    _amd("gfx1151", 32, "11.5", "RDNA 3.5: Radeon 8060S"),
    _amd("gfx1200", 32, "12", "RDNA 4: RX 9060"),
    _amd("gfx1201", 32, "12", "RDNA 4: RX 9070"),
    _unsupported("xpu", "intel", "Arc, Data Center GPU Max: not supported, CPU path"),
    _unsupported("mps", "apple", "M1 to M5: not supported, CPU path"),
)


# What a release of Triton compiles no kernel for. Found by compiling the rasterizer's backward kernel for every target
# with 3.4.0, 3.6.0 and 3.9.0 (with 3.4.0 up to the link, which wants ROCm's linker).
COMPILED_WITH = ((3, 4), (3, 6), (3, 9))
NOT_COMPILED: dict[tuple[int, int], tuple[str, ...]] = {(3, 9): ("gfx1030",)}


def compiles(name: str, triton_version: str) -> bool | None:
    """Whether a release of Triton compiles kernels for a target; None when nobody has tried this release.

    Args:
        name: of the architecture, as for `find`.
        triton_version: release, such as "3.9.0".

    Raises:
        InputError: a name that is not in the table.
    """
    target, release = find(name), _release(triton_version)
    if target.path == "cpu":
        return False
    if release not in COMPILED_WITH:
        return None
    return target.name not in NOT_COMPILED.get(release, ())


# AMD's targets for which Triton's JIT compiles an fp32 `tl.atomic_add` to one instruction (global_atomic_add_f32 or
# buffer_atomic_add_f32) on tensors of less than 2 GiB, and the first of the releases 3.4, 3.6 and 3.9 that does. For
# the others it writes a loop around a compare-and-swap, which starts again whenever another program was faster: for
# gfx90a too, although it has the instruction. Found by compiling for each what the JIT knows of such tensors, with
# addresses that are only known when it runs. On tensors of 2 GiB and more RDNA 3 has the loop in 3.9 too; the others
# have the instruction there as well.
FLOAT_ATOMICS_SINCE = {
    **dict.fromkeys(("gfx942", "gfx950", "gfx1200", "gfx1201"), (3, 4)),
    **dict.fromkeys(("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151"), (3, 9)),
}


def float_atomics(name: str, triton_version: str) -> bool:
    """Whether adding to an fp32 number in memory, in a tensor of less than 2 GiB, is one instruction; False for AMD's
    targets that are not known.

    Args:
        name: of the architecture, as for `find`; those of NVIDIA, and the CPU, need not be in the table.
        triton_version: release that compiles the kernel, such as "3.9.0".
    """
    bare = _bare(name)
    if not bare.startswith("gfx"):
        return True
    return bare in FLOAT_ATOMICS_SINCE and _release(triton_version) >= FLOAT_ATOMICS_SINCE[bare]


def find(name: str) -> Target:
    """The row of an architecture; feature suffixes (`gfx942:sramecc+:xnack-`, `sm_90a`) are ignored.

    Raises:
        InputError: a name that is not in the table.
    """
    bare = _bare(name)
    for target in TARGETS:
        if target.name == bare:
            return target
    raise InputError(
        "target",
        got=repr(name),
        expected=f"one of {', '.join(target.name for target in TARGETS)}",
        why="the wave width and the address window of an unknown target cannot be guessed",
        fix="add its row to lanewise/target/table.py",
    )


def _bare(name: str) -> str:
    """The name without feature suffixes."""
    bare = name.split(":")[0]
    return bare.rstrip("af") if bare.startswith("sm_") else bare


def _release(version: str) -> tuple[int, int]:
    """(3, 9) of "3.9.0"."""
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)
