"""Who can run one launch of a convolution: our kernels, the vendor's through torch, and the reference."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from lanewise.conv import reference, vendor
from lanewise.conv.precision import Precision
from lanewise.conv.problem import Problem
from lanewise.conv.sliced import column, is_channels_last, memory_format
from lanewise.splat._backend import has_triton

Backend = Literal["ours", "vendor", "reference"]
Launch = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # of both operands and a bias


def call(
    backend: Backend,
    problem: Problem,
    first: Tensor,
    second: Tensor,
    bias: Tensor | None,
    precision: Precision,
    out: Tensor | None = None,
) -> Tensor:
    """The result of one launch; that of a weight's gradient may be fp32 where the operands are not.

    Args:
        backend: who runs it.
        problem: the launch.
        first: x, or dy for the gradient of x; packed, as `problem` says.
        second: w, or dy for the gradient of w.
        bias: [k] for a forward problem, [c] for the gradient of x (a transposed convolution's), or None.
        precision: of fp32.
        out: written and returned where it is given; for other directions than "weight_grad".
    """
    if backend == "ours":
        from lanewise.conv import launch

        if problem.direction == "forward":
            return launch.forward(first, second, bias, problem, precision, out)
        if problem.direction == "input_grad":
            return launch.input_grad(first, second, bias, problem, precision, out)
        return launch.weight_grad(first, second, problem, precision)
    result = _by_torch(backend, problem, first, second, bias, precision)
    return result if out is None else out.copy_(result)


def _by_torch(
    backend: Backend, problem: Problem, first: Tensor, second: Tensor, bias: Tensor | None, precision: Precision
) -> Tensor:
    if backend == "vendor":
        if problem.direction == "forward":
            return vendor.forward(first, second, bias, problem, precision)
        result = getattr(vendor, problem.direction)(first, second, problem, precision)
    elif problem.direction == "forward":
        return reference.forward(first, second, bias, problem).to(first.dtype)
    else:
        result = getattr(reference, problem.direction)(first, second, problem).to(first.dtype)
    return result if bias is None else result.add_(column(bias, problem))


def prepared(backend: Backend, problem: Problem, precision: Precision) -> Launch:
    """`call` for one problem and one backend, without what that asks every time: a small convolution takes no longer
    than its questions."""
    if backend == "vendor" and problem.direction == "forward":
        return lambda x, w, bias: vendor.forward(x, w, bias, problem, precision)
    if backend == "vendor" and problem.direction == "weight_grad":
        return lambda x, dy, bias: vendor.weight_grad(x, dy, problem, precision)
    return lambda first, second, bias: call(backend, problem, first, second, bias, precision)


def bias_grad(dy: Tensor, window_bytes: int) -> Tensor:
    """The gradient of a bias [k] from that of the output [n, k, ...]: by our kernel where there is one, in parts of the
    batch that fit the window."""
    image = dy[:1].numel() * dy.element_size()
    if without_kernels(dy.device) or dy.dtype == torch.float64 or not 0 < image <= window_bytes:
        return vendor.bias_grad(dy)
    from lanewise.conv import launch

    format = memory_format(dy.dim() - 2, is_channels_last(dy))
    parts = (launch.bias_grad(part.contiguous(memory_format=format)) for part in dy.split(window_bytes // image))
    return torch.stack([part.double() for part in parts]).sum(0).to(dy.dtype)


def refusal(problem: Problem, device: torch.device) -> str | None:
    """Why our kernels cannot run a launch; None when they can."""
    if reason := without_kernels(device):
        return reason
    from lanewise.conv import launch

    return launch.supports(problem)


def without_kernels(device: torch.device) -> str | None:
    """Why no Triton kernel runs on a device; None when they do."""
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"Triton's kernels do not run on {device.type}"
    return None if has_triton() else "triton is not installed"


def versions(device: torch.device) -> dict[str, str]:
    """What decides how fast, and how right, a launch is: the device, its driver and the libraries."""
    import lanewise

    found = {"torch": torch.__version__, "lanewise": lanewise.__version__, "device": device.type}
    if has_triton():
        import triton

        found["triton"] = triton.__version__
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found["device"] = f"{properties.name}, {properties.multi_processor_count} multiprocessors"
        found["driver"] = str(getattr(torch._C, "_cuda_getDriverVersion", lambda: "unknown")())
        library = "MIOpen" if torch.version.hip else "cuDNN"
        found[library] = f"{torch.backends.cudnn.version()} ({torch.version.hip or torch.version.cuda})"
    return found
