from __future__ import annotations

import pytest
import torch

from lanewise.errors import InputError, UnsupportedError
from lanewise.train.photometric import photometric_loss, ssim
from lanewise.train.photometric.op import _custom, _custom_scaled


@pytest.mark.parametrize("masked", [False, True])
def test_opcheck(masked: bool):
    render, target = torch.rand(2, 12, 13, 3, requires_grad=True), torch.rand(2, 12, 13, 3)
    mask = torch.rand(2, 12, 13) > 0.5 if masked else None
    torch.library.opcheck(_custom, (render, target, mask, 0.2, True, "cpu"))
    torch.library.opcheck(_custom, (render.detach(), target, mask, 0.2, False, "cpu"))


def test_opcheck_of_the_backward_operator():
    torch.library.opcheck(_custom_scaled, (torch.rand(1, 12, 13, 3), torch.tensor(2.0), torch.rand(1, 12, 13, 3)))


def test_auto_takes_the_cpu_kernel_for_float32_and_the_reference_for_float64():
    render, target = torch.rand(1, 20, 21, 3), torch.rand(1, 20, 21, 3)
    by_auto = photometric_loss(render, target)
    assert torch.equal(by_auto, photometric_loss(render, target, backend="cpu"))
    assert photometric_loss(render.double(), target.double()).dtype == torch.float64


def test_pictures_need_not_be_contiguous():
    render, target = torch.rand(1, 3, 14, 15), torch.rand(1, 3, 14, 15)
    strided = photometric_loss(render.permute(0, 2, 3, 1), target.permute(0, 2, 3, 1))
    plain = photometric_loss(render.permute(0, 2, 3, 1).contiguous(), target.permute(0, 2, 3, 1).contiguous())
    assert torch.equal(strided, plain)


def test_strided_upstream_gradient_and_reuse():
    """The loss is a part of a larger graph, and the backward pass runs twice."""
    render, target = torch.rand(1, 14, 15, 3, requires_grad=True), torch.rand(1, 14, 15, 3)
    loss = photometric_loss(render * 2, target)
    first = torch.autograd.grad(loss, render, retain_graph=True)[0]
    second = torch.autograd.grad(loss.expand(3).sum(), render)[0]
    torch.testing.assert_close(second, 3 * first)


def test_ssim_of_equal_pictures_is_one():
    picture = torch.rand(1, 16, 16, 3)
    assert ssim(picture, picture).item() == pytest.approx(1, abs=1e-6)
    assert ssim(picture, 1 - picture).item() < 0.2


def test_second_derivative_is_refused():
    render = torch.rand(1, 12, 12, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(photometric_loss(render, torch.rand(1, 12, 12, 3)), render, create_graph=True)
    with pytest.raises(UnsupportedError, match="second derivative"):
        gradient.sum().backward()


def test_second_derivative_of_the_registered_operator_is_refused():
    render = torch.rand(1, 12, 12, 3, requires_grad=True)
    loss, _ = _custom(render, torch.rand(1, 12, 12, 3), None, 0.2, True, "cpu")
    (gradient,) = torch.autograd.grad(loss, render, create_graph=True)
    with pytest.raises(RuntimeError, match="autograd"):
        gradient.sum().backward()


def test_no_gradient_is_kept_where_none_is_asked_for():
    target, mask = torch.rand(1, 12, 13, 3), torch.rand(1, 12, 13) > 0.5
    render = torch.rand(1, 12, 13, 3, requires_grad=True)
    with torch.no_grad():
        loss = photometric_loss(render, target, mask)
    assert not loss.requires_grad
    assert loss == photometric_loss(render, target, mask)
    assert _custom(render.detach(), target, mask, 0.2, False, "cpu")[1].numel() == 0


def test_the_compiler_sees_one_operator():
    target = torch.rand(1, 12, 13, 3)

    def loss(render: torch.Tensor) -> torch.Tensor:
        return photometric_loss(render * 2, target)

    results = []
    for run in (loss, torch.compile(loss, backend="aot_eager", fullgraph=True)):
        render = torch.rand(1, 12, 13, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
        results.append((run(render), *torch.autograd.grad(run(render), render)))
    torch.testing.assert_close(*results, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"render": torch.zeros(12, 12, 3)}, "render"),
        ({"render": torch.zeros(1, 10, 12, 3), "target": torch.zeros(1, 10, 12, 3)}, "render"),
        ({"target": torch.zeros(1, 12, 13, 3)}, "target"),
        ({"target": torch.zeros(1, 12, 12, 3, dtype=torch.float64)}, "target"),
        ({"target": torch.zeros(1, 12, 12, 3, requires_grad=True)}, "target"),
        ({"target": torch.zeros(1, 12, 12, 3, device="meta")}, "target"),
        ({"mask": torch.ones(1, 12, 12)}, "mask"),
        ({"mask": torch.ones(1, 12, 12, dtype=torch.bool, device="meta")}, "mask"),
        ({"mask": torch.ones(1, 12, 13, dtype=torch.bool)}, "mask"),
        ({"ssim_weight": 1.5}, "ssim_weight"),
    ],
)
def test_bad_input_names_the_argument(change: dict, argument: str):
    arguments = {"render": torch.zeros(1, 12, 12, 3), "target": torch.zeros(1, 12, 12, 3), **change}
    with pytest.raises(InputError, match=f"^{argument}: got .*, expected "):
        photometric_loss(**arguments)


def test_pictures_below_the_window_need_no_ssim():
    assert photometric_loss(torch.ones(1, 1, 1, 3), torch.zeros(1, 1, 1, 3), ssim_weight=0).item() == 1


def test_cpu_backend_refuses_float64():
    picture = torch.zeros(1, 12, 12, 3, dtype=torch.float64)
    with pytest.raises(InputError, match=r"^backend: .*float32 tensors on the CPU"):
        photometric_loss(picture, picture, backend="cpu")
