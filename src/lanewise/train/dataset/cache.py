"""Photographs as tensors, decoded when they are asked for and kept while there is room."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lanewise.errors import InputError
from lanewise.io.captures import View
from lanewise.io.captures.images import decode_image, decode_mask


@dataclass(frozen=True)
class Photo:
    """A photograph as the trainer sees it.

    Attributes:
        rgb: colours in 0..1, [H, W, 3] float32, with transparency composited over the background.
        mask: which pixels count, [H, W] bool, or None when all do.
    """

    rgb: Tensor
    mask: Tensor | None


class Decoded(NamedTuple):
    """A photograph as it was decoded."""

    pixels: NDArray[np.uint8]  # [H, W, 3], or [H, W, 4] with straight alpha
    mask: NDArray[np.bool_] | None  # [H, W]

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return self.pixels.nbytes + (0 if self.mask is None else self.mask.nbytes)


class ImageCache:
    """Decodes views lazily and keeps the most recently used ones, so that a capture may exceed the memory.

    What it returns depends on the view and the background alone, not on what is kept; every access returns new tensors.
    Threads may share it.

    Args:
        background: colour in 0..1 behind transparent pixels.
        capacity_bytes: most bytes of decoded 8-bit pixels to keep; 0 keeps none.

    Raises:
        InputError: the background is no colour, or the capacity is negative.
    """

    def __init__(self, background: tuple[float, float, float], capacity_bytes: int = 2 << 30) -> None:
        if len(background) != 3 or not all(0 <= channel <= 1 for channel in background):
            raise InputError("background", got=background, expected="three numbers in 0..1")
        if capacity_bytes < 0:
            raise InputError("capacity_bytes", got=capacity_bytes, expected="0 (keep nothing) or more")
        self.background = torch.tensor(background, dtype=torch.float32)
        self.capacity_bytes = capacity_bytes
        self.nbytes = 0  # of what is kept now
        self._kept: OrderedDict[tuple, Decoded] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()

    def __getitem__(self, view: View) -> Photo:
        """The photograph of a view.

        Raises:
            InputError: the image or mask is missing or damaged.
        """
        decoded = self.decoded(view)
        pixels = torch.from_numpy(decoded.pixels.astype(np.float32)).div_(255)
        rgb = pixels[..., :3]
        if pixels.shape[2] == 4:
            alpha = pixels[..., 3:]  # [H, W, 1]
            rgb = rgb * alpha + self.background * (1 - alpha)
        return Photo(rgb.contiguous(), None if decoded.mask is None else torch.from_numpy(decoded.mask.copy()))

    def decoded(self, view: View) -> Decoded:
        """The pixels of a view as they are kept, not to be changed. Raises as `[]`."""
        key = (view.path, view.mask_path, view.width, view.height)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        # Decoding without the lock lets threads decode at once; two that want one view then both decode it.
        decoded = Decoded(
            decode_image(view.path, view.width, view.height),
            None if view.mask_path is None else decode_mask(view.mask_path, view.width, view.height),
        )
        with self._lock:
            if key not in self._kept and decoded.nbytes <= self.capacity_bytes:
                self._kept[key] = decoded
                self.nbytes += decoded.nbytes
                while self.nbytes > self.capacity_bytes:
                    _, oldest = self._kept.popitem(last=False)
                    self.nbytes -= oldest.nbytes
        return decoded
