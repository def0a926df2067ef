"""Decode every image once before training starts, so that a damaged one is found in the first seconds."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from lanewise.errors import InputError
from lanewise.io.captures.capture import View
from lanewise.io.captures.images import decode_image, decode_mask


def check_images(
    views: Sequence[View], *, workers: int | None = None, progress: Callable[[int, int], None] | None = None
) -> None:
    """Decode all images and masks in parallel (decoding releases the interpreter lock) and keep none.

    Args:
        views: the views to check.
        workers: number of threads, by default the number of processors.
        progress: called with (checked, total) after every view, in order.

    Raises:
        InputError: an image or mask is truncated or unreadable, or a mask leaves no pixel; of several,
            the first view's.
    """
    if workers is not None and workers < 1:
        raise InputError("workers", got=workers, expected="at least 1, or None for the number of processors")
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        for checked, _ in enumerate(pool.map(_check, views), start=1):
            if progress is not None:
                progress(checked, len(views))


def _check(view: View) -> None:
    decode_image(view.path, view.width, view.height)
    if view.mask_path is not None and not decode_mask(view.mask_path, view.width, view.height).any():
        raise InputError(
            str(view.mask_path),
            got=f"a mask without a pixel that counts at {view.width} x {view.height}",
            expected="white where the image counts, black where it does not",
            fix="repair the mask, or remove the image from the capture",
        )
