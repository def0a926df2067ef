"""The public functions on our own kernels in Triton's interpreter; started by tests/conv/test_interpreted.py."""

import os

os.environ["TRITON_INTERPRET"] = "1"
os.environ["LANEWISE_CONV"] = "ours"

import torch
from conv_shapes import incident
from torch import Tensor
from torch.nn import functional as F

from lanewise.audit.faults import FAULTS
from lanewise.audit.gate import gate, require
from lanewise.conv import chooser, conv2d, conv3d, conv_transpose2d, launch

CASES = {
    "conv2d in slices of the batch": (conv2d, F.conv2d, (4, 3, 5, 5), (4, 3, 3, 3), {"padding": 1}, 900),
    "conv2d in slices of rows": (conv2d, F.conv2d, (1, 3, 9, 5), (4, 3, 3, 3), {"padding": 1, "stride": 2}, 450),
    "conv3d": (conv3d, F.conv3d, (1, 2, 3, 4, 3), (3, 2, 2, 2, 2), {}, None),
    "conv_transpose2d": (conv_transpose2d, F.conv_transpose2d, (2, 4, 3, 3), (4, 2, 3, 3), {"groups": 2}, 600),
}


def results(function, tensors: list[Tensor], v: Tensor | None, options: dict) -> tuple[Tensor, ...]:
    """The output, the first gradients, and the gradient of their squares."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    y = function(*leaves, **options)
    v = torch.ones_like(y) if v is None else v.to(y.dtype)
    first = torch.autograd.grad(y, leaves, v * y.detach(), create_graph=True)
    return y, *first, *torch.autograd.grad(sum(g.square().sum() for g in first), leaves[:2])


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for name, (ours, torchs, x_shape, w_shape, options, window) in CASES.items():
        tensors = [torch.randn(x_shape), torch.randn(w_shape)]
        got = results(ours, tensors, None, {**options, "window_bytes": window, "precision": "fp32"})
        want = results(torchs, [t.double() for t in tensors], None, options)
        require(*(gate(f"{name}, {i}", a, b) for i, (a, b) in enumerate(zip(got, want, strict=True))))
        print("ok", name)
    for direction in ("forward", "input_grad", "weight_grad"):
        problem = incident(3, 4, 5, 5, direction)
        choice = chooser.measure(problem, torch.device("cpu"), "fp32", ("vendor", "ours"))
        assert set(choice.ms) == {"vendor", "ours"}, choice
        right = getattr(launch, direction)
        for fault in FAULTS:
            setattr(launch, direction, lambda *arguments, right=right, fault=fault: fault.apply(right(*arguments)))
            assert not chooser.probe("ours", problem, torch.device("cpu"), "fp32").ok, fault.name
        setattr(launch, direction, right)
        print("ok probe", direction)


if __name__ == "__main__":
    main()
