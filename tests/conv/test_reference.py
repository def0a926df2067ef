import torch
from conv_shapes import incident, problems
from conv_tensors import operands
from hypothesis import given, settings
from torch.nn import functional as F

from lanewise.audit.gate import gate, require
from lanewise.conv import reference


def by_torch(problem, x, w):
    first = 3 - problem.dims
    convolve = F.conv2d if problem.dims == 2 else F.conv3d
    geometry = (problem.stride[first:], problem.padding[first:], problem.dilation[first:], problem.groups)
    return convolve(x, w, None, *geometry)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_the_reference_is_torchs_convolution_in_fp64(problem):
    x, w, dy = operands(problem, dtype=torch.float64)
    x.requires_grad_()
    w.requires_grad_()
    y = by_torch(problem, x, w)
    dx, dw = torch.autograd.grad(y, (x, w), dy)
    require(
        gate("y", reference.forward(x, w, None, problem).detach(), y, floor=1e-14),
        gate("dx", reference.input_grad(dy, w, problem), dx, floor=1e-14),
        gate("dw", reference.weight_grad(x, dy, problem), dw, floor=1e-14),
    )


def test_few_images_at_a_time_give_the_same(monkeypatch):
    problem = incident(5, 3, 4, 6)
    x, w, dy = operands(problem)

    def results():
        return (
            reference.forward(x, w, None, problem),
            reference.input_grad(dy, w, problem),
            reference.weight_grad(x, dy, problem),
        )

    whole = results()
    monkeypatch.setattr(reference, "SLICE_BYTES", 1)
    assert len(list(reference._images(problem))) == problem.n
    for name, got, want in zip(("y", "dx", "dw"), results(), whole, strict=True):
        require(gate(name, got, want, floor=1e-14))
