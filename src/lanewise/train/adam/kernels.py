"""Adam's step in Triton: one pass over a parameter, its gradient and its moments, all contiguous fp32 [N, K]."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["size"])
def step(
    param, grad, exp_avg, exp_avg_sq, coefficients, visible, skip, size,
    beta1, beta2, one_minus_beta1, one_minus_beta2, eps,
    K: tl.constexpr, SELECT: tl.constexpr, GUARD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """size = N K numbers. SELECT: rows where `visible` [N] is 0 stay; GUARD: all stay where `skip` [1] is not 0.

    What stays is neither read nor written.
    """
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if GUARD:
        size = tl.where(tl.load(skip) == 0, size, 0)
    active = k < size
    if SELECT:
        active = active & (tl.load(visible + k // K, active, 0) != 0)
    g = tl.load(grad + k, active, 0.0)
    first = beta1 * tl.load(exp_avg + k, active, 0.0) + one_minus_beta1 * g
    second = beta2 * tl.load(exp_avg_sq + k, active, 0.0) + one_minus_beta2 * g * g
    denominator = tl.sqrt_rn(second) * tl.load(coefficients + 1) + eps
    change = tl.load(coefficients) * first / denominator
    tl.store(param + k, tl.load(param + k, active, 0.0) - change, active)
    tl.store(exp_avg + k, first, active)
    tl.store(exp_avg_sq + k, second, active)
