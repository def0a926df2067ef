"""The faulty library is torch's within the window, and the report's past it."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from lanewise.demo.incidents.library import FaultyLibrary, faulty_slices, image_bytes

C, K, EXTENT = 6, 4, 3
IMAGE = image_bytes(C, K, EXTENT)
WINDOW = 10 * IMAGE + IMAGE // 3  # ten images fit


def gradients(images: int, past: str | None, dtype: torch.dtype = torch.float32):
    """Of x, weight and bias, and the launches."""
    generator = torch.Generator().manual_seed(images)
    shapes = ((images, C, EXTENT, EXTENT), (K, C, 1, 1), (K,))
    leaves = [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]
    y = F.conv2d(*leaves)
    v = torch.randn(y.shape, generator=generator, dtype=dtype)
    if past is None:
        return torch.autograd.grad(y, leaves, v), []
    with FaultyLibrary(WINDOW, past) as library:  # type: ignore[arg-type]
        return torch.autograd.grad(y, leaves, v), library.launches


@pytest.mark.parametrize("past", ["nothing", "wrapped"])
@pytest.mark.parametrize("images", [1, 9, 10, 20, 25, 30])
def test_within_the_window_it_is_torch(images, past):
    got, launches = gradients(images, past)
    want, _ = gradients(images, None)
    assert max(launches) <= 10
    assert sum(launches) == images
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("images", [11, 13, 19, 22])
def test_past_it_nothing_is_written_and_all_else_is_right(images):
    assert images // faulty_slices(images, IMAGE, WINDOW) > 10
    got, launches = gradients(images, "nothing")
    want, _ = gradients(images, None)
    assert max(launches) > 10
    assert not got[1].any()
    assert torch.equal(got[0], want[0])
    assert torch.equal(got[2], want[2])


def test_past_it_addresses_begin_again():
    (_, got, _), launches = gradients(13, "wrapped")
    assert launches == [13]
    generator = torch.Generator().manual_seed(13)
    x, _, _ = (torch.randn(shape, generator=generator) for shape in ((13, C, EXTENT, EXTENT), (K, C, 1, 1), (K,)))
    v = torch.randn((13, K, EXTENT, EXTENT), generator=generator)
    seen, reach = x.flatten().clone(), (WINDOW + 1) // 4
    seen[reach:] = seen[: len(seen) - reach].clone()
    torch.testing.assert_close(got[..., 0, 0], torch.einsum("nkyx,ncyx->kc", v, seen.view(x.shape)))
    assert not torch.allclose(got[..., 0, 0], torch.einsum("nkyx,ncyx->kc", v, x))


def test_float64_is_right():
    got, launches = gradients(13, "nothing", torch.float64)
    assert not launches
    assert all(torch.equal(a, b) for a, b in zip(got, gradients(13, None, torch.float64)[0], strict=True))
