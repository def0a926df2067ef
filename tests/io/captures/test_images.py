"""Pixels out of every kind of file that people have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from lanewise.errors import InputError
from lanewise.io.captures.images import decode_image, decode_mask, has_transparency, image_size


def decode_as_is(path: Path) -> np.ndarray:
    return decode_image(path, *image_size(path))


def test_rgb_is_exact(tmp_path, noise, save):
    pixels = noise(0)
    np.testing.assert_array_equal(decode_as_is(save(tmp_path / "a.png", pixels)), pixels)


def test_alpha_is_kept_and_opaque_alpha_dropped(tmp_path, noise, save):
    pixels = noise(0, channels=4)
    path = save(tmp_path / "a.png", pixels)
    np.testing.assert_array_equal(decode_as_is(path), pixels)
    assert has_transparency(path)
    pixels[..., 3] = 255
    np.testing.assert_array_equal(decode_as_is(save(tmp_path / "b.png", pixels)), pixels[..., :3])


def test_grey_and_grey_alpha(tmp_path, noise):
    grey, alpha = noise(0, channels=2)[..., 0], noise(1, channels=2)[..., 0]
    PIL.Image.fromarray(grey).save(tmp_path / "l.png")
    np.testing.assert_array_equal(decode_as_is(tmp_path / "l.png"), np.stack([grey] * 3, -1))
    PIL.Image.merge("LA", [PIL.Image.fromarray(grey), PIL.Image.fromarray(alpha)]).save(tmp_path / "la.png")
    np.testing.assert_array_equal(decode_as_is(tmp_path / "la.png"), np.stack([grey, grey, grey, alpha], -1))


def test_sixteen_bit_grey_is_scaled_not_clipped(tmp_path):
    values = np.array([[0, 256, 257, 32896, 65535]], np.uint16)
    PIL.Image.fromarray(values).save(tmp_path / "a.png")
    np.testing.assert_array_equal(decode_as_is(tmp_path / "a.png")[0, :, 1], [0, 1, 1, 128, 255])


def test_palette_with_a_transparent_colour(tmp_path):
    image = PIL.Image.fromarray(np.array([[0, 1]], np.uint8)).convert("P")
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.save(tmp_path / "a.png", transparency=1)
    np.testing.assert_array_equal(decode_as_is(tmp_path / "a.png"), [[[10, 20, 30, 255], [40, 50, 60, 0]]])
    assert has_transparency(tmp_path / "a.png")


def test_cmyk_jpeg(tmp_path):
    PIL.Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save(tmp_path / "a.jpg")
    red = decode_as_is(tmp_path / "a.jpg").reshape(-1, 3).mean(axis=0)
    np.testing.assert_allclose(red, [255, 0, 0], atol=6)


def test_exif_orientation_is_not_applied(tmp_path):
    image = PIL.Image.new("RGB", (12, 8))
    exif = image.getexif()
    exif[0x0112] = 6  # shown turned by 90 degrees
    image.save(tmp_path / "a.jpg", exif=exif)
    assert image_size(tmp_path / "a.jpg") == (12, 8)
    assert decode_as_is(tmp_path / "a.jpg").shape == (8, 12, 3)


def test_floating_point_pixels_are_refused(tmp_path):
    PIL.Image.fromarray(np.ones((4, 4), np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(InputError, match=r"a\.tif: got floating-point pixels.*Fix: convert"):
        decode_as_is(tmp_path / "a.tif")


def test_reduction_averages_areas(tmp_path, noise, save):
    pixels = noise(0, width=12, height=8)
    expected = pixels.reshape(4, 2, 6, 2, 3).mean(axis=(1, 3))
    found = decode_image(save(tmp_path / "a.png", pixels), 6, 4)
    np.testing.assert_allclose(found, expected, atol=0.5 + 1e-9)


def test_reduction_weighs_colours_with_alpha(tmp_path, save):
    pixels = np.zeros((2, 2, 4), np.uint8)
    pixels[0, 0] = (200, 100, 50, 255)  # the other three are transparent black, which must not darken it
    found = decode_image(save(tmp_path / "a.png", pixels), 1, 1)[0, 0]
    np.testing.assert_allclose(found, [200, 100, 50, 64], atol=2)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".tif", ".bmp"])
def test_truncation_names_the_file(tmp_path, noise, save, suffix):
    path = save(tmp_path / f"a{suffix}", noise(0, width=64, height=64))
    whole = path.read_bytes()
    for size in (0, 5, 40, len(whole) // 2, len(whole) - 100):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=rf"a\{suffix}: got an unreadable image .*Fix: copy the file again"):
            decode_image(path, 64, 64)


def test_missing_file_and_impossible_names(tmp_path):
    for name in ("a.png", "x" * 5000, "zero\0byte", "\ud800"):
        with pytest.raises(InputError, match="no such file"):
            image_size(tmp_path / name)


def test_what_is_no_image(tmp_path):
    (tmp_path / "a.png").write_text("no image")
    with pytest.raises(InputError, match=r"a\.png: got an unreadable image"):
        image_size(tmp_path / "a.png")


@pytest.mark.parametrize("mode", ["L", "1", "RGB", "RGBA", "P", "I;16"])
def test_mask_counts_what_is_not_zero(tmp_path, mode):
    values = np.array([[0, 255], [255, 0]], np.uint8)
    if mode == "I;16":
        PIL.Image.fromarray(np.array([[0, 1], [65535, 0]], np.uint16)).save(tmp_path / "m.png")
    else:
        PIL.Image.fromarray(values).convert(mode).save(tmp_path / "m.png")
    np.testing.assert_array_equal(decode_mask(tmp_path / "m.png", 2, 2), values != 0)


def test_dark_mask_values_count(tmp_path):
    PIL.Image.fromarray(np.array([[0, 1]], np.uint8)).save(tmp_path / "m.png")
    np.testing.assert_array_equal(decode_mask(tmp_path / "m.png", 2, 1), [[False, True]])


def test_reduced_mask_counts_where_all_pixels_count(tmp_path):
    mask = np.full((4, 4), 255, np.uint8)
    mask[0, 0] = 0
    PIL.Image.fromarray(mask).save(tmp_path / "m.png")
    np.testing.assert_array_equal(decode_mask(tmp_path / "m.png", 2, 2), [[False, True], [True, True]])
