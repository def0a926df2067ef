"""What an audit finds: the codes, and one wrong gradient, shrunk and explained."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lanewise.audit.call import OUTPUT
from lanewise.errors import InputError

if TYPE_CHECKING:
    from lanewise.audit.repro import Repro


@dataclass(frozen=True)
class Code:
    """A kind of finding.

    Attributes:
        code: stable name, LW1xx wrong values, LW2xx size limits, LW3xx layout and autograd contract, LW4xx training.
        title: one line of fact.
        explanation: what it means, how such faults come about, and what helps.
    """

    code: str
    title: str
    explanation: str


CODES: dict[str, Code] = {
    code.code: code
    for code in (
        Code(
            "LW101",
            "the gradient is all zero",
            "Every element of the gradient is exactly 0 although the output depends on the argument. The parameter "
            "never learns, and nothing is raised. Typical causes: a launch that addresses more than its window and "
            "writes nothing; a reduction whose leading lane does not exist on this wave width; a `detach` inside a "
            "hand-written backward. What helps: smaller slices of the batch, another backend, the fix of the kernel.",
        ),
        Code(
            "LW102",
            "the gradient holds NaN or infinity",
            "The output is finite, the gradient is not. Typical causes: a lane that reads memory nobody wrote, a "
            "division by a difference that rounds to zero, an overflow in half precision. What helps: a wider "
            "dtype, smaller values, another block size.",
        ),
        Code(
            "LW103",
            "part of the gradient is missing",
            "Some rows, or some terms of a sum, were lost: the gradient is right in places and zero or too small in "
            "others. Typical causes: a reduction written for 64 lanes that runs on 32, a last partial tile that is "
            "not launched, one slice of a split reduction dropped, two adders that race. What helps: sizes that are "
            "multiples of the block, another backend.",
        ),
        Code(
            "LW104",
            "the gradient has wrong values in some region",
            "Right values in wrong places, values of something else, or values where the gradient is zero: the stride "
            "of another tensor, an index that is off by one, a loop that runs too far, a stale buffer. What helps: "
            "contiguous inputs and gradients, another backend.",
        ),
        Code(
            "LW105",
            "the gradient is scaled or biased",
            "The gradient points the right way but its size is off by more than rounding allows. Typical causes: a "
            "factor counted twice, an accumulator of too few bits, a mean taken over the wrong count. What helps: "
            "fp32 accumulation flags, another backend.",
        ),
        Code(
            "LW106",
            "the gradient differs from run to run",
            "The same inputs gave different gradients, by more than a changed order of summation can explain. "
            "Typical causes: a race between adders, memory that nobody wrote, a missing synchronization. What helps: "
            "torch.use_deterministic_algorithms(True), another backend.",
        ),
        Code(
            "LW201",
            "wrong past 2^31 elements",
            "The gradient is right below 2^31 elements and wrong above. An index is kept in 32 signed bits. What "
            "helps: cutting the batch into slices that stay below.",
        ),
        Code(
            "LW202",
            "wrong past the byte window",
            "The gradient is right while every tensor of the launch fits into the window of the device's buffer "
            "addresses (usually 2^32 - 1 bytes) and wrong beyond. What helps: cutting the batch into slices that "
            "fit; `lanewise.conv` does that for convolutions.",
        ),
        Code(
            "LW203",
            "wrong past a limit of the launch grid",
            "The gradient is right while a size is at most 65535 (or 2^31 - 1) and wrong beyond: the number of "
            "blocks along one axis of the grid is limited, and a launch that passes it is cut off or wraps around. "
            "What helps: slices, or another order of the dimensions.",
        ),
        Code(
            "LW204",
            "crash, illegal access, or a backward pass that raises",
            "The process of the case died, the device reported an illegal access, or the backward pass raised, with "
            "inputs that the forward accepts. Each case runs in a process of its own, so that the audit goes on. What "
            "helps: smaller slices, another backend, a newer driver or library.",
        ),
        Code(
            "LW301",
            "wrong with this layout of an input or of the incoming gradient",
            "Autograd hands out gradients that are strided, or expanded from one number (`sum().backward()`), and "
            "users pass transposed or offset tensors. This operator is right for contiguous ones and wrong for "
            "these. What helps: `.contiguous()` before the operator, or a hook on its output that makes the "
            "gradient contiguous.",
        ),
        Code(
            "LW302",
            "a second backward pass differs",
            "The same graph, walked twice, gave two gradients: the backward pass changes a saved tensor, or writes "
            "into its input. What helps: `clone()` in the operator's forward, or a fresh forward for each backward.",
        ),
        Code(
            "LW303",
            "an output is not written everywhere",
            "With fresh memory filled with NaN, NaN shows up in the result: some elements are never written, and "
            "usually hold whatever was there before. What helps: zeroed outputs in the kernel's launcher.",
        ),
        Code(
            "LW401",
            "a parameter is dead",
            "Its gradient is exactly or structurally zero while its siblings live, and it is neither frozen, nor "
            "unused, nor behind units that are off.",
        ),
        Code(
            "LW402",
            "an update is lost",
            "The gradient is not zero, the optimizer has stepped, and the parameter has not changed.",
        ),
        Code(
            "LW403",
            "where NaN or infinity begins",
            "The first module whose output or gradient is not finite while everything that went in was.",
        ),
        Code(
            "LW404",
            "a probe failed while training",
            "An adjoint probe on a layer of the running model, with its real inputs, found a gradient that is not "
            "the transpose of the forward pass.",
        ),
        Code(
            "LW405",
            "the gradient's norm jumped",
            "The norm of all gradients together was far above everything in its recent history. Often a bad batch or a "
            "learning rate that is too large; sometimes a kernel that reads memory nobody wrote. What helps: look at "
            "the batch of that step, clip the gradient, run with watch(every=1).",
        ),
    )
}


def find_code(code: str) -> Code:
    """The entry of a code such as "LW103".

    Raises:
        InputError: there is none.
    """
    try:
        return CODES[code.upper()]
    except KeyError:
        raise InputError("code", got=repr(code), expected=f"one of {', '.join(CODES)}") from None


@dataclass(frozen=True)
class Finding:
    """One gradient that is wrong on this machine.

    Attributes:
        code: LWxxx; `lanewise explain CODE` says what it means.
        operator: whose gradient it is.
        argument: the input with respect to which the gradient was taken.
        shapes: shape of every tensor input, in the smallest case that still fails.
        dtype: of the floating-point inputs.
        setting: what else the smallest case needs: layout, cotangent, values, compiled, device, flags.
        evidence: residual, tolerance, probe, region, the confirmation by a second probe: what JSON shows.
        miss_probability: probability that the probes taken miss an error of 1% of the gradient.
        cause: what is suspected, and the library and kernel where they can be told.
        workaround: what was tried and seen to help; None when nothing was.
        repro: a script that shows it with nothing but torch; None when none could be written.
    """

    code: str
    operator: str
    argument: str
    shapes: dict[str, list[int]]
    dtype: str
    setting: dict[str, Any]
    evidence: dict[str, Any] = field(default_factory=dict)
    miss_probability: float | None = None
    cause: str | None = None
    workaround: str | None = None
    repro: Repro | None = None

    @property
    def title(self) -> str:
        """One line of fact."""
        if self.argument == OUTPUT:
            return f"{self.operator}: the output under torch.compile is not that of eager"
        return f"{self.operator}: {CODES[self.code].title}"

    @property
    def fingerprint(self) -> str:
        """The same in every run that finds the same thing: what `--baseline` compares."""
        what = (self.code, self.operator, self.argument, self.setting.get("compiled", False))
        return hashlib.sha256("|".join(map(str, what)).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        shapes = ", ".join(f"{name} {shape}" for name, shape in self.shapes.items())
        return f"{self.code} {self.title} (argument {self.argument}; {shapes}; {self.dtype})"
