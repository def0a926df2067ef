"""What rounding alone may make of a gradient: the tolerance of a residual, from its dtype, flags, signs and length.

The error of a right gradient is a sum of many small roundings, so its size is known as a root mean square, sigma, and a
residual <error, u> in a normal direction u is normal with deviation sigma. Two estimates of sigma are taken:

- `sequential`: a bound from the arithmetic. An accumulator rounds each partial sum S_k by a relative error of variance
  u^2 / 3, together u^2 / 3 sum S_k^2. Over n terms of random signs sum S_k^2 is n/2 times the square of the result,
  over terms of one sign n/3 times: in both cases the error is at most u sqrt(n / 6) times the result. (Higham & Mary
  2019 and Ipsen & Zhou 2020 treat the random-sign case.) It is loose where a kernel sums in blocks, as good ones do.
- `measured`: the gradient is linear in the cotangent v, so grad(c v) / c - grad(v) is rounding and nothing else, drawn
  twice. A fault that is linear in v cancels in it.

The smaller one serves. So a kernel that sums better than it must is held to what it can do, and one that sums worse
than its precision explains (a bf16 accumulator behind fp32 results, a race) cannot excuse itself.
"""

from __future__ import annotations

import math
from typing import Literal

import torch

from lanewise.audit.call import Call
from lanewise.audit.verdict import Context

Operands = torch.dtype | Literal["tf32"]

LAMBDA = 6.0  # standard deviations of rounding that a healthy residual may have
SAFETY = 2.0  # of a measured rounding error over the mean of its few draws
FEW = 32  # a measured error of fewer elements than this says little: the bound serves
ELEMENTARY = 4.0  # units by which exp, erf, rsqrt and their like may be off, the same way each time
INTERMEDIATE = 4.0  # roundings to the storage dtype on the way to a gradient in 16 bits
EXCESS = 32.0  # times what arithmetic explains, beyond which a measured error is no excuse


_SHORT: dict[str, Operands] = {
    "tf32": "tf32",
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}  # what the flags say of operands, the shortest last


def unit(dtype: Operands) -> float:
    """Unit roundoff: half the distance from 1 to the next number."""
    return 2.0**-11 if dtype == "tf32" else torch.finfo(dtype).eps / 2


def context(call: Call, tensor: torch.Tensor, *, one_sided: bool = False, reduction: int = 1) -> Context:
    """The arithmetic that a gradient of `tensor` may have been computed with, under the flags now in force.

    Args:
        call: whose `accumulation` overrides what is assumed: float32 for 16-bit results, the own dtype otherwise.
        tensor: the gradient, or the argument.
        one_sided: whether the summed terms have one sign.
        reduction: how many terms an element of the gradient sums.
    """
    flags = _flags(tensor.device.type, tensor.dtype)
    operands: Operands = tensor.dtype
    for name, short in _SHORT.items():
        operands = short if any(name in flag for flag in flags) else operands
    accumulation = torch.promote_types(tensor.dtype, torch.float32)
    if "reduced_precision_reduction" in flags or "fp16_accumulation" in flags:
        accumulation = tensor.dtype
    accumulation = call.accumulation or accumulation
    return Context(str(tensor.device), tensor.dtype, operands, accumulation, flags, one_sided, max(1, reduction))


def least(where: Context, norm: float, gain: float, numel: int) -> float:
    """Root mean square of the rounding error that no kernel avoids.

    Args:
        where: the arithmetic.
        norm: ||gradient||.
        gain: ||gradient|| for a random signed cotangent of the same size: the root of the sum of the squared terms.
        numel: elements of the gradient.
    """
    store = unit(where.dtype) * norm / math.sqrt(3)
    products = unit(where.operands) if where.operands != where.dtype else 0.0
    tree = unit(where.accumulation) * math.sqrt((1 + math.log2(where.reduction)) / 3)
    terms = math.hypot(products * math.sqrt(2 / 3), tree) * max(norm, gain)
    return math.hypot(store, terms, spacing(where.dtype) * math.sqrt(numel))


def composed(where: Context, norm: float, gain: float, numel: int) -> float:
    """Root mean square of the error of functions besides sums and products; as for `least`.

    They go through elementary functions and through statistics that were kept in the dtype of the values. Where the
    gradient cancels (its norm is below that for a random cotangent) those errors do not.
    """
    kept = unit(where.dtype) * math.sqrt(INTERMEDIATE / 3)
    return math.hypot(kept, ELEMENTARY * unit(where.accumulation)) * max(norm, gain)


def sequential(where: Context, norm: float, gain: float, numel: int) -> float:
    """Root mean square of the rounding error of one accumulator that takes the terms in turn; as for `least`.

    With a one-sided cotangent the terms may first grow and then cancel: their partial sums are at most sqrt(n) `gain`.
    """
    largest = max(norm, gain * math.sqrt(where.reduction)) if where.one_sided else max(norm, gain)
    sums = unit(where.accumulation) * math.sqrt(where.reduction / 6) * largest
    stored = unit(where.operands) * math.sqrt(INTERMEDIATE / 3) * max(norm, gain)
    return math.hypot(sums, stored, least(where, norm, gain, numel))


def sigma(least: float, sequential: float, measured: float, numel: int) -> float:
    """The deviation of a healthy residual where all arithmetic is sums of products (see the module's text)."""
    return sequential if numel < FEW else min(sequential, max(least, SAFETY * measured))


def spacing(dtype: torch.dtype) -> float:
    """What may be lost of a number near zero: the subnormal numbers, which only half precision always has."""
    info = torch.finfo(dtype)
    return info.smallest_normal * (info.eps if dtype == torch.float16 else 1.0)


def subnormal(norm: float, numel: int, dtype: torch.dtype) -> bool:
    """Whether `numel` numbers of this norm are typically below the smallest number with all digits.

    What they are computed from is as small or smaller then, step by step, and how much each step loses of it, down to
    everything, is a matter of the order in which an operator multiplies and divides: no error bound follows from a unit
    roundoff.
    """
    return norm < torch.finfo(dtype).smallest_normal * math.sqrt(numel)


def _flags(device: str, dtype: torch.dtype) -> tuple[str, ...]:
    """The flags in force that make sums of this dtype less exact."""
    flags = []
    if torch.is_autocast_enabled(device):
        flags.append(f"autocast.{str(torch.get_autocast_dtype(device)).removeprefix('torch.')}")
    matmul = torch.backends.cuda.matmul
    if dtype == torch.float32 and device == "cuda":
        flags += ["matmul.tf32"] * _allows(matmul) + ["conv.tf32"] * _allows(torch.backends.cudnn)
    if dtype == torch.float32 and device == "cpu":
        precision = torch.get_float32_matmul_precision() if _settable() else "highest"
        flags += {"medium": ["mkldnn.bfloat16"], "high": ["mkldnn.tf32"]}.get(precision, [])
    if device == "cuda" and dtype in (torch.float16, torch.bfloat16):
        short = "fp16" if dtype == torch.float16 else "bf16"
        if getattr(matmul, f"allow_{short}_reduced_precision_reduction") not in (False, (False, False)):
            flags.append("reduced_precision_reduction")
        if dtype == torch.float16 and getattr(matmul, "allow_fp16_accumulation", False):
            flags.append("fp16_accumulation")
    return tuple(flags)


def _settable() -> bool:
    """Whether this processor has instructions for short fp32 products, so that the setting has an effect."""
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def _allows(backend: object) -> bool:
    """Whether a backend may use TF32; the older of torch's two settings refuses to be read after the newer is set."""
    try:
        return bool(backend.allow_tf32)  # pyright: ignore[reportAttributeAccessIssue]
    except RuntimeError:
        return getattr(backend, "fp32_precision", "tf32") != "ieee"
