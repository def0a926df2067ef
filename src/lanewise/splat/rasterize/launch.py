"""Launching the rasterizer's Triton kernels."""

# A kernel is launched as kernel[grid](...), which pyright does not follow.
# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false

from __future__ import annotations

import torch
from torch import Tensor

from lanewise.splat._launch import check_window, contiguous, on_its_device
from lanewise.splat.rasterize import kernels
from lanewise.splat.rasterize.lists import CHANNELS, RECORD

PACK_BLOCK = 64
GROUP = 4  # Gaussians between two looks at whether any pixel is left


class _Lists:
    """Records and lists as the kernels take them."""

    def __init__(
        self,
        means2d: Tensor,
        conics: Tensor,
        colors: Tensor,
        opacities: Tensor,
        tile_size: int,
        isect_offsets: Tensor,
        flatten_ids: Tensor,
    ) -> None:
        self.operands = contiguous(means2d.reshape(-1, 2), conics, colors, opacities)
        self.M, self.D = colors.shape
        self.images, self.tile_height, self.tile_width = isect_offsets.shape
        self.tile_size, self.ids = tile_size, flatten_ids.contiguous()
        self.offsets = isect_offsets.contiguous()
        # Blocks of 16 x 8 pixels make fewer sums over pixels; in smaller tiles they would be half empty.
        self.SX, self.SY = (16, 8) if tile_size >= 16 else (8, 8) if tile_size > 4 else (4, 4)
        self.blocks = -(-tile_size // self.SX) * -(-tile_size // self.SY)
        self.grid = (isect_offsets.numel() * self.blocks,)
        check_window(*self.operands)

    def chunks(self) -> list[tuple[int, int]]:
        """First channel and number of channels of every launch; without channels one launch composites the
        transmittance."""
        step = CHANNELS
        return [(c, min(step, self.D - c)) for c in range(0, self.D, step)] or [(0, 1)]

    def records(self, channel: int) -> Tensor:
        """The packed records [M, RECORD] with the channels from `channel` on."""
        records = self.operands[0].new_empty(self.M, RECORD)
        if self.M:
            grid = (-(-self.M // PACK_BLOCK),)
            kernels.pack[grid](*self.operands, records, self.M, self.D, channel, BLOCK=PACK_BLOCK)
        return records

    def sizes(self, width: int, height: int, channel: int) -> tuple[int, ...]:
        return width, height, self.tile_width, self.tile_width * self.tile_height, self.D, channel

    def blocking(self) -> dict[str, int]:
        return {"TILE": self.tile_size, "SX": self.SX, "SY": self.SY}


@on_its_device
def forward(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
    width: int,
    height: int,
    tile_size: int,
    isect_offsets: Tensor,
    flatten_ids: Tensor,
    masks: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """colors [I, H, W, D], transmittance [I, H, W], last_ids [I, H, W], and the records of the first channels."""
    lists = _Lists(means2d, conics, colors, opacities, tile_size, isect_offsets, flatten_ids)
    shape = (lists.images, height, width)
    out = means2d.new_empty(*shape, lists.D)
    T, last = means2d.new_empty(shape), means2d.new_empty(shape, dtype=torch.int32)
    keep = None if masks is None else masks.contiguous().view(torch.uint8)
    first = lists.records(0)
    target = out if lists.D else T.new_empty(1)  # without channels every program stores its zero in one place
    for channel, C in lists.chunks() if T.numel() else []:
        kernels.forward[lists.grid](
            lists.records(channel) if channel else first, lists.offsets, lists.ids, keep, target, T, last,
            flatten_ids.numel(), isect_offsets.numel(), *lists.sizes(width, height, channel), **lists.blocking(),
            G=GROUP, C=C, MASKED=keep is not None, num_warps=1,
        )  # fmt: skip
    return out, T, last, first


@on_its_device
def backward(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
    tile_size: int,
    isect_offsets: Tensor,
    flatten_ids: Tensor,
    absgrad: bool,
    deterministic: bool,
    transmittance: Tensor,
    last_ids: Tensor,
    first: Tensor,
    v_colors: Tensor,
    v_transmittance: Tensor,
) -> Tensor:
    """Gradients by Gaussian, [M, D + 6 (+ 2)]: colours, opacity, conic (3), mean (2), with absgrad the mean's
    absolute sums (2)."""
    lists = _Lists(means2d, conics, colors, opacities, tile_size, isect_offsets, flatten_ids)
    height, width = last_ids.shape[1:]
    columns = lists.D + (8 if absgrad else 6)
    n_isects = flatten_ids.numel()
    rows = n_isects * lists.blocks if deterministic else lists.M
    v = means2d.new_zeros(rows, columns)
    check_window(v)
    transmittance, last_ids, v_colors, v_transmittance = contiguous(transmittance, last_ids, v_colors, v_transmittance)
    for channel, C in lists.chunks() if n_isects and last_ids.numel() else []:
        kernels.backward[lists.grid](
            lists.records(channel) if channel else first, lists.offsets, lists.ids,
            transmittance, last_ids, v_colors, v_transmittance, v,
            *lists.sizes(width, height, channel), columns, **lists.blocking(), C=C,
            ABSGRAD=absgrad, ORDERED=deterministic, FIRST=channel == 0, num_warps=1,
        )  # fmt: skip
    if not deterministic:
        return v
    return _sum_by_gaussian(v, flatten_ids, lists.M, lists.blocks)


@on_its_device
def pair_sides(
    means2d: Tensor,
    conics: Tensor,
    colors: Tensor,
    opacities: Tensor,
    tile_size: int,
    isect_offsets: Tensor,
    flatten_ids: Tensor,
    last_ids: Tensor,
) -> Tensor:
    """The decisions of `forward`, [n_isects, tile_size^2] int8."""
    lists = _Lists(means2d, conics, colors, opacities, tile_size, isect_offsets, flatten_ids)
    sides = means2d.new_zeros((flatten_ids.numel(), tile_size**2), dtype=torch.int8)
    height, width = last_ids.shape[1:]
    if sides.numel() and last_ids.numel():
        kernels.pair_sides[lists.grid](
            lists.records(0), lists.offsets, lists.ids, last_ids, sides,
            *lists.sizes(width, height, 0)[:4], **lists.blocking(), num_warps=1,
        )  # fmt: skip
    return sides


def _sum_by_gaussian(v: Tensor, flatten_ids: Tensor, M: int, blocks: int) -> Tensor:
    """[M, columns] from records [n_isects * blocks, columns], every Gaussian's in the order of the lists."""
    out = v.new_zeros(M, v.shape[-1])
    if M and flatten_ids.numel():
        sorted_ids, by_gaussian = flatten_ids.sort(stable=True)
        bounds = torch.searchsorted(sorted_ids, torch.arange(M + 1, device=v.device, dtype=torch.int32))
        block = 32
        kernels.sum_records[(-(-M // block), v.shape[-1])](
            v, by_gaussian, bounds, out, M, v.shape[-1], blocks, BLOCK=block
        )
    return out
