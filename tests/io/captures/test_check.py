"""Every image is decoded once, and the first bad one is named."""

from __future__ import annotations

import numpy as np
import pytest

from lanewise.errors import InputError
from lanewise.io.captures import check_images, load_capture


def test_good_capture_passes_and_counts(tmp_path, write_colmap):
    seen = []
    views = load_capture(write_colmap(tmp_path, 5)).views
    check_images(views, workers=3, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i, 5) for i in range(1, 6)]


def test_first_damaged_image_is_named(tmp_path, write_colmap):
    views = load_capture(write_colmap(tmp_path, 6)).views
    for name in ("04.png", "02.png"):
        path = tmp_path / "images" / name
        path.write_bytes(path.read_bytes()[:-30])  # the header is whole, the pixels are not
    assert len(load_capture(tmp_path).views) == 6
    with pytest.raises(InputError, match=r"02\.png: got an unreadable image"):
        check_images(views)


def test_image_that_vanished(tmp_path, write_colmap):
    views = load_capture(write_colmap(tmp_path)).views
    views[1].path.unlink()
    with pytest.raises(InputError, match=r"01\.png: got no such file"):
        check_images(views)


def test_damaged_and_empty_masks(tmp_path, write_colmap, save):
    write_colmap(tmp_path)
    mask = save(tmp_path / "masks/01.png", np.full((8, 12), 255, np.uint8))
    views = load_capture(tmp_path).views
    check_images(views)
    save(mask, np.zeros((8, 12), np.uint8))
    with pytest.raises(InputError, match=r"masks.01\.png: got a mask without a pixel that counts"):
        check_images(views)
    mask.write_bytes(mask.read_bytes()[:-24])
    with pytest.raises(InputError, match=r"masks.01\.png: got an unreadable image"):
        check_images(views)


def test_workers_must_be_positive():
    with pytest.raises(InputError, match="workers: got 0"):
        check_images((), workers=0)
