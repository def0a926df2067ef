"""Launching the rasterizer's Triton kernels."""

# A kernel is launched as kernel[grid](...), which pyright does not follow.
# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from lanewise.splat._launch import ROWS, check_rows, check_window, contiguous, launch, on_its_device
from lanewise.splat.rasterize import kernels, kernels_backward
from lanewise.splat.rasterize.lists import CHANNELS, RECORD
from lanewise.target import float_atomics
from lanewise.target.detect import architecture

PACK_BLOCK = 128
ONE_WARP = {"num_warps": 1}  # what a block of 64 pixels is enough work for; no kernel knows
LOOK = 8  # Gaussians between two looks at whether any pixel is left


class Lists(NamedTuple):
    """What a launch walks: pictures of width x height pixels in tiles, bounds [I * tiles + 1] and ids of their lists,
    and masks, bool [I * tiles] or None."""

    width: int
    height: int
    tile_size: int
    bounds: Tensor
    ids: Tensor
    masks: Tensor | None

    @property
    def tile_width(self) -> int:
        """Tiles in a row."""
        return -(-self.width // self.tile_size)

    @property
    def tiles(self) -> int:
        """Tiles of an image."""
        return self.tile_width * -(-self.height // self.tile_size)

    @property
    def side(self) -> int:
        """Edge of the square of pixels that one program takes."""
        return 8 if self.tile_size > 4 else 4

    @property
    def squares(self) -> int:
        """Such squares in a tile."""
        return (-(-self.tile_size // self.side)) ** 2

    @property
    def grid(self) -> tuple[int]:
        """One program a square of pixels."""
        return ((self.bounds.numel() - 1) * self.squares,)


@on_its_device
def records_of(means2d: Tensor, conics: Tensor, opacities: Tensor) -> Tensor:
    """Packed records [M, RECORD] of means2d, conics [..., cameras, N, 3] and opacities [..., cameras or 1, N]."""
    means2d, conics, opacities = contiguous(means2d, conics, opacities)
    cameras, N = conics.shape[-3:-1]
    images = conics.shape[:-2].numel()
    records = means2d.new_empty(images * N, RECORD)
    check_window(records)
    if records.numel():
        launch(
            kernels.pack, (images * -(-N // PACK_BLOCK),),
            means2d, conics, opacities, records, N, cameras, SHARED=opacities.shape[-2] != cameras, BLOCK=PACK_BLOCK,
        )  # fmt: skip
    return records


@on_its_device
def forward(
    records: Tensor, colors: Tensor, backgrounds: Tensor | None, lists: Lists, pairs: torch.Size
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """colors [I, H, W, D], alphas, transmittance and last [I, H, W], of records [M, RECORD], colors [..., C or 1, N, D]
    and backgrounds [I, D]; pairs = (..., C, N)."""
    colors, backgrounds = contiguous(colors, backgrounds)
    (cameras, N), D = pairs[-2:], colors.shape[-1]
    shape = (pairs[:-1].numel(), lists.height, lists.width)
    out = records.new_empty(*shape, D)
    alphas, T = records.new_empty(shape), records.new_empty(shape)
    last = records.new_empty(shape, dtype=torch.int32)
    keep = None if lists.masks is None else lists.masks.contiguous().view(torch.uint8)
    for channel in range(0, max(D, 1), CHANNELS) if T.numel() else []:
        launch(
            kernels.composite, lists.grid,
            records, colors, lists.bounds, lists.ids, keep, backgrounds, out, alphas, T, last,
            lists.width, lists.height, lists.tile_width, lists.tiles, N, cameras, D, channel,
            TILE=lists.tile_size, SIDE=lists.side, LOOK=LOOK, C=min(CHANNELS, D - channel),
            ALL=D <= CHANNELS,
            SHARED_COLORS=colors.shape[-3] != cameras, MASKED=keep is not None, BACKGROUND=backgrounds is not None,
            options=ONE_WARP,
        )  # fmt: skip
    return out, alphas, T, last


@on_its_device
def backward(
    records: Tensor,
    colors: Tensor,
    backgrounds: Tensor | None,
    lists: Lists,
    cameras: int,
    transmittance: Tensor,
    last: Tensor,
    v_colors: Tensor,
    v_alphas: Tensor | None,
    absgrad: bool,
    deterministic: bool | None,
) -> Tensor:
    """Gradients by Gaussian, [M, D + 6 (+ 2)]: colours, opacity, conic (3), mean (2), with absgrad the mean's
    absolute sums (2); from `forward`'s records and pictures, and colors [..., cameras or 1, N, D].

    They are added in order when `deterministic`, atomically when it is False; None: whatever is faster there."""
    N, D = colors.shape[-2:]
    M, columns = records.shape[0], D + (8 if absgrad else 6)
    n_isects = lists.ids.numel()
    pairs = n_isects * lists.squares
    ordered = not _adds_atomically(records.device) and pairs < ROWS if deterministic is None else deterministic
    if ordered:
        check_rows(pairs, fix="deterministic=False, fewer cameras at a time, or larger tiles (tile_size=16)")
    v = records.new_zeros(pairs if ordered else M, columns)
    colors, backgrounds, v_colors, v_alphas = contiguous(colors, backgrounds, v_colors, v_alphas)
    if n_isects and last.numel():
        launch(
            kernels_backward.composite_backward, lists.grid,
            records, colors, lists.bounds, lists.ids, backgrounds, transmittance, last, v_colors, v_alphas, v,
            lists.width, lists.height, lists.tile_width, lists.tiles, N, cameras, D, columns,
            TILE=lists.tile_size, SIDE=lists.side, C=0 if D > CHANNELS else D,
            SHARED_COLORS=colors.shape[-3] != cameras, BACKGROUND=backgrounds is not None,
            ALPHAS=v_alphas is not None, ABSGRAD=absgrad, ORDERED=ordered, options=ONE_WARP,
        )  # fmt: skip
    return _sum_by_gaussian(v, lists, M) if ordered else v


@functools.cache
def _adds_atomically(device: torch.device) -> bool:
    """Whether atomic additions of floats are instructions there; also where nothing is known to the contrary."""
    if device.type != "cuda":  # Triton's interpreter
        return True
    return float_atomics(architecture(torch.cuda.get_device_properties(device)), triton.__version__)


@on_its_device
def pair_sides(means2d: Tensor, conics: Tensor, opacities: Tensor, lists: Lists, last: Tensor) -> Tensor:
    """The decisions of `forward`, [n_isects, tile_size^2] int8; operands without colours."""
    records = records_of(means2d, conics, opacities)
    sides = means2d.new_zeros((lists.ids.numel(), lists.tile_size**2), dtype=torch.int8)
    if sides.numel() and last.numel():
        launch(
            kernels.pair_sides, lists.grid,
            records, lists.bounds, lists.ids, last, sides, lists.width, lists.height, lists.tile_width, lists.tiles,
            TILE=lists.tile_size, SIDE=lists.side, options=ONE_WARP,
        )  # fmt: skip
    return sides


def _sum_by_gaussian(v: Tensor, lists: Lists, M: int) -> Tensor:
    """[M, columns] from records [n_isects * squares, columns], every Gaussian's in the order of the lists."""
    out = v.new_zeros(M, v.shape[-1])
    if M and lists.ids.numel():
        sorted_ids, by_gaussian = lists.ids.sort(stable=True)
        bounds = torch.searchsorted(sorted_ids, torch.arange(M + 1, device=v.device, dtype=torch.int32))
        block = 32
        launch(
            kernels_backward.sum_records, (-(-M // block), v.shape[-1]),
            v, by_gaussian, bounds, out, M, v.shape[-1], SQUARES=lists.squares, BLOCK=block,
        )  # fmt: skip
    return out
