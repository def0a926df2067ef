"""Where the photographs of a step come from: the host on the CPU, the device's own memory on a GPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from lanewise.io.captures import View
from lanewise.io.captures.images import has_transparency
from lanewise.train.data import Batch, TrainingData, load_batch

Size = tuple[int, int]  # height, width


class Photos(Protocol):
    """Gives a step its photographs.

    A flight is a few steps that are launched together; its host part is `reserve` once, then `load` before each step.
    `batch` runs inside the step, on the device alone, and may be captured into a graph.
    """

    how: str
    """In a word, for the summary."""

    def reserve(self, flight: Sequence[Sequence[int]]) -> list[list[int]]:
        """Say in which slots the photographs of a flight's steps (numbers of training views) will be."""
        ...

    def load(self, views: Sequence[int], slots: Sequence[int]) -> None:
        """See to it that they are there when the next step runs."""
        ...

    def batch(self, size: Size, views: Tensor, slots: Tensor) -> Batch:
        """The photographs and cameras of a step; `views` and `slots` are [B] int32 on the device."""
        ...


class HostPhotos:
    """Photographs that are decoded when they are asked for, and copied to the device."""

    how = "host"

    def __init__(self, data: TrainingData, device: torch.device) -> None:
        self.data, self.device = data, device
        self._next: Batch | None = None

    def reserve(self, flight: Sequence[Sequence[int]]) -> list[list[int]]:
        """There is only one place."""
        return [[0] * len(views) for views in flight]

    def load(self, views: Sequence[int], slots: Sequence[int]) -> None:
        """Decode them."""
        self._next = load_batch(self.data, [self.data.train[i] for i in views], self.device)

    def batch(self, size: Size, views: Tensor, slots: Tensor) -> Batch:
        """What was loaded last."""
        assert self._next is not None
        return self._next


@dataclass(frozen=True)
class _Shelf:
    """Photographs of one size on the device: pixels uint8 [S, H, W, 3 or 4], masks bool [S, H, W] or None."""

    pixels: Tensor
    masks: Tensor | None

    @classmethod
    def empty(cls, slots: int, size: Size, channels: int, masked: bool, device: torch.device, pinned: bool) -> _Shelf:
        def room(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=device, pin_memory=pinned)

        pixels = room(slots, *size, channels, dtype=torch.uint8)
        return cls(pixels, room(slots, *size, dtype=torch.bool) if masked else None)

    def put(self, slot: int, other: _Shelf, from_slot: int) -> None:
        """Copy a photograph here, without waiting for it where `other` is pinned."""
        self.pixels[slot].copy_(other.pixels[from_slot], non_blocking=True)
        if self.masks is not None and other.masks is not None:
            self.masks[slot].copy_(other.masks[from_slot], non_blocking=True)


class DevicePhotos:
    """Photographs as 8-bit pixels in the device's memory: all of them where they fit, else those of the next steps.

    Where they do not fit, threads decode the photographs of a flight into pinned memory, and a stream of its own copies
    them while the steps before are computed. Two flights are in the air at most, so each has its own half of the slots.

    Args:
        data: the capture.
        device: where to keep them.
        budget: most bytes of the device's memory for photographs.
        flight: most photographs of a flight.
    """

    def __init__(self, data: TrainingData, device: torch.device, budget: int, flight: int) -> None:
        self.data, self.device = data, device
        views = data.train
        self.viewmats = torch.from_numpy(np.stack([view.viewmat for view in views]).astype(np.float32)).to(device)
        self.Ks = torch.from_numpy(np.stack([view.K for view in views]).astype(np.float32)).to(device)
        self._white = torch.tensor(255.0, device=device)
        self._background = data.photos.background.to(device)
        self._layout = _layouts(views)
        self._slot = _places(views)
        self.resident = sum(_bytes(view, self._layout) for view in views) <= budget
        self.how = "resident" if self.resident else "streamed"
        self._flight, self._half = flight, 0
        self._shelves: dict[Size, _Shelf] = {}
        self._pinned: dict[Size, _Shelf] = {}
        self._coming: dict[int, Future[None]] = {}  # by slot
        self._decoders = ThreadPoolExecutor(min(8, os.cpu_count() or 1))
        self._copies = torch.cuda.Stream(device) if device.type == "cuda" else None
        if self.resident:
            self._fill()

    def reserve(self, flight: Sequence[Sequence[int]]) -> list[list[int]]:
        """The places of resident photographs; else the slots of this flight, which begin to be decoded."""
        if self.resident:
            return [[self._slot[i] for i in views] for views in flight]
        self._half = 1 - self._half
        free = iter(range(self._half * self._flight, (self._half + 1) * self._flight))
        slots = [[next(free) for _ in views] for views in flight]
        for views, places in zip(flight, slots, strict=True):
            for view, slot in zip(views, places, strict=True):
                self._shelf(self._shelves, view, self.device)  # room is made here, in the thread that trains
                pinned = self._shelf(self._pinned, view, torch.device("cpu"))
                self._coming[slot] = self._decoders.submit(self._decode, self.data.train[view], pinned, slot)
        return slots

    def load(self, views: Sequence[int], slots: Sequence[int]) -> None:
        """Copy what was decoded, beside the steps that are running; the next step waits for it on the device."""
        if self.resident:
            return
        for view, slot in zip(views, slots, strict=True):
            self._coming.pop(slot).result()
            size = _size(self.data.train[view])
            with torch.cuda.stream(self._copies):  # without effect where it is None
                self._shelves[size].put(slot, self._pinned[size], slot)
        if self._copies is not None:
            torch.cuda.current_stream(self.device).wait_stream(self._copies)

    def batch(self, size: Size, views: Tensor, slots: Tensor) -> Batch:
        """Photographs and cameras, picked on the device; 8 bits become 0..1, composited where there is alpha."""
        shelf = self._shelves[size]
        pixels = shelf.pixels.index_select(0, slots)  # [B, H, W, 3 or 4]
        rgb = pixels[..., :3] / self._white
        if pixels.shape[-1] == 4:
            rgb = torch.lerp(self._background, rgb, pixels[..., 3:] / self._white)
        mask = None if shelf.masks is None else shelf.masks.index_select(0, slots)
        return Batch(rgb, mask, self.viewmats.index_select(0, views), self.Ks.index_select(0, views))

    def _fill(self) -> None:
        """Decode every photograph once, in parallel, and copy it to its place."""
        counts: dict[Size, int] = {}
        for view in self.data.train:
            counts[_size(view)] = counts.get(_size(view), 0) + 1
        for size, count in counts.items():
            self._shelves[size] = _Shelf.empty(count, size, *self._layout[size], self.device, pinned=False)

        def decode(view: View) -> _Shelf:
            one = _Shelf.empty(1, _size(view), *self._layout[_size(view)], torch.device("cpu"), pinned=False)
            self._decode(view, one, 0)
            return one

        for number, (view, one) in enumerate(
            zip(self.data.train, self._decoders.map(decode, self.data.train), strict=True)
        ):
            self._shelves[_size(view)].put(self._slot[number], one, 0)

    def _decode(self, view: View, shelf: _Shelf, slot: int) -> None:
        """Write a photograph to a shelf on the host; where it is opaque, so is its alpha."""
        decoded = self.data.photos.decoded(view)
        pixels = shelf.pixels.numpy()[slot]
        pixels[..., : decoded.pixels.shape[2]] = decoded.pixels
        pixels[..., decoded.pixels.shape[2] :] = 255
        if shelf.masks is not None:
            shelf.masks.numpy()[slot] = True if decoded.mask is None else decoded.mask

    def _shelf(self, shelves: dict[Size, _Shelf], view: int, device: torch.device) -> _Shelf:
        size = _size(self.data.train[view])
        if size not in shelves:
            pinned = device.type == "cpu" and self._copies is not None
            shelves[size] = _Shelf.empty(2 * self._flight, size, *self._layout[size], device, pinned)
            if device.type == "cuda":  # the memory may be in use still, by steps that the copies do not wait for
                torch.cuda.current_stream(device).synchronize()
        return shelves[size]


def _size(view: View) -> Size:
    return view.height, view.width


def _layouts(views: Sequence[View]) -> dict[Size, tuple[int, bool]]:
    """By size: how many channels to keep, and whether there are masks."""
    layouts: dict[Size, tuple[int, bool]] = {}
    for view in views:
        channels, masked = layouts.get(_size(view), (3, False))
        channels = 4 if channels == 4 or has_transparency(view.path) else 3
        layouts[_size(view)] = (channels, masked or view.mask_path is not None)
    return layouts


def _places(views: Sequence[View]) -> list[int]:
    """The number of each view among those of its size."""
    seen: dict[Size, int] = {}
    places = []
    for view in views:
        places.append(seen.get(_size(view), 0))
        seen[_size(view)] = places[-1] + 1
    return places


def _bytes(view: View, layouts: dict[Size, tuple[int, bool]]) -> int:
    channels, masked = layouts[_size(view)]
    return view.height * view.width * (channels + masked)
