"""The bounded image cache: right tensors, bounded bytes, the same result for any capacity and from any thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch

from lanewise.errors import InputError
from lanewise.io.captures import View
from lanewise.train.dataset import ImageCache
from lanewise.train.dataset import cache as module

WIDTH, HEIGHT = 12, 8
RGB_BYTES = WIDTH * HEIGHT * 3


@pytest.fixture
def make_view(tmp_path: Path):
    """Writes random pixels (and a mask where one is given) and returns their view and the pixels."""

    def make(index: int, channels: int = 3, mask: np.ndarray | None = None) -> tuple[View, np.ndarray]:
        pixels = np.random.default_rng(index).integers(0, 256, (HEIGHT, WIDTH, channels), dtype=np.uint8)
        path, mask_path = tmp_path / f"{index}.png", None
        PIL.Image.fromarray(pixels).save(path)
        if mask is not None:
            mask_path = tmp_path / f"{index}.mask.png"
            PIL.Image.fromarray(mask).save(mask_path)
        return View(path.name, path, np.eye(4), np.eye(3), WIDTH, HEIGHT, mask_path, None), pixels

    return make


@pytest.fixture
def decodings(monkeypatch) -> list[str]:
    """The names of the images that were decoded, in order."""
    names: list[str] = []

    def decode(path, width, height, real=module.decode_image):
        names.append(path.name)
        return real(path, width, height)

    monkeypatch.setattr(module, "decode_image", decode)
    return names


def test_rgb(make_view):
    view, pixels = make_view(0)
    photo = ImageCache((0, 0, 0))[view]
    assert photo.rgb.dtype == torch.float32
    assert photo.rgb.is_contiguous()
    np.testing.assert_array_equal(photo.rgb.numpy(), pixels.astype(np.float32) / np.float32(255))
    assert photo.mask is None


def test_alpha_over_the_background(make_view):
    view, pixels = make_view(0, channels=4)
    background = (1.0, 0.5, 0.25)
    photo = ImageCache(background)[view]
    alpha = pixels[..., 3:] / 255
    np.testing.assert_allclose(photo.rgb, pixels[..., :3] / 255 * alpha + np.array(background) * (1 - alpha), atol=1e-6)
    assert photo.rgb.is_contiguous()


def test_mask(make_view):
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[2:5] = 255
    view, _ = make_view(0, mask=mask)
    photo = ImageCache((0, 0, 0))[view]
    assert photo.mask is not None
    assert photo.mask.dtype == torch.bool
    np.testing.assert_array_equal(photo.mask, mask > 0)


def test_decodes_once_while_there_is_room(make_view, decodings):
    cache = ImageCache((0, 0, 0))
    view, _ = make_view(0)
    first, second = cache[view], cache[view]
    assert decodings == ["0.png"]
    assert cache.nbytes == RGB_BYTES
    assert torch.equal(first.rgb, second.rgb)


def test_what_is_returned_may_be_changed(make_view):
    mask = np.full((HEIGHT, WIDTH), 255, np.uint8)
    view, pixels = make_view(0, mask=mask)
    cache = ImageCache((0, 0, 0))
    photo = cache[view]
    assert photo.mask is not None
    photo.rgb.zero_()
    photo.mask.zero_()
    again = cache[view]
    np.testing.assert_array_equal(again.rgb.numpy(), pixels.astype(np.float32) / np.float32(255))
    assert again.mask is not None
    assert again.mask.all()


def test_least_recently_used_goes_first(make_view, decodings):
    cache = ImageCache((0, 0, 0), capacity_bytes=2 * RGB_BYTES)
    views = [make_view(i)[0] for i in range(3)]
    for index in (0, 1, 0, 2, 0, 1):  # 2 displaces 1, then 1 displaces 2
        _ = cache[views[index]]
        assert cache.nbytes <= cache.capacity_bytes
    assert decodings == ["0.png", "1.png", "2.png", "1.png"]


def test_mask_and_alpha_count(make_view):
    cache = ImageCache((0, 0, 0))
    _ = cache[make_view(0, channels=4, mask=np.full((HEIGHT, WIDTH), 255, np.uint8))[0]]
    assert cache.nbytes == WIDTH * HEIGHT * 5


@pytest.mark.parametrize("capacity", [0, RGB_BYTES - 1])
def test_too_small_for_one_image(make_view, decodings, capacity):
    cache = ImageCache((0, 0, 0), capacity_bytes=capacity)
    view, _ = make_view(0)
    for _ in range(2):
        assert cache[view].rgb.shape == (HEIGHT, WIDTH, 3)
    assert decodings == ["0.png", "0.png"]
    assert cache.nbytes == 0


def test_threads_get_the_same_for_any_capacity(make_view):
    views = [make_view(i, channels=3 + i % 2)[0] for i in range(6)]
    order = np.random.default_rng(0).integers(0, 6, 300)
    expected = [ImageCache((1, 1, 1))[view].rgb for view in views]
    for capacity in (0, 3 * RGB_BYTES, 1 << 20):
        cache = ImageCache((1, 1, 1), capacity_bytes=capacity)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda i, cache=cache: cache[views[i]].rgb, order))
        assert all(torch.equal(rgb, expected[i]) for i, rgb in zip(order, found, strict=True))
        assert cache.nbytes <= capacity
        assert cache.nbytes == sum(item.nbytes for item in cache._kept.values())


def test_damaged_image_is_named(make_view):
    view, _ = make_view(0)
    view.path.write_bytes(view.path.read_bytes()[:60])
    with pytest.raises(InputError, match=r"0\.png: got an unreadable image"):
        _ = ImageCache((0, 0, 0))[view]


@pytest.mark.parametrize("background", [(0, 0), (0, 0, 2), (0, 0, float("nan"))])
def test_background_is_a_colour(background):
    with pytest.raises(InputError, match=r"background: got .*three numbers in 0\.\.1"):
        ImageCache(background)


def test_capacity_is_not_negative():
    with pytest.raises(InputError, match="capacity_bytes: got -1"):
        ImageCache((0, 0, 0), capacity_bytes=-1)
