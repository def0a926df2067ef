"""What the kernels are given: the size of their records; for the CPU checked lists and contiguous arrays."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lanewise.errors import InputError

RECORD = 6  # numbers that the Triton kernels keep of a Gaussian's shape
CHANNELS = 4  # that one of their forward programs composites; more are further programs over the same lists


def list_bounds(isect_offsets: Tensor, flatten_ids: Tensor) -> Tensor:
    """Where each tile's list begins, and where the last one ends, [tiles + 1]: before the -1 that lists of a given
    capacity are filled up with."""
    end = (flatten_ids >= 0).sum(dtype=isect_offsets.dtype)
    return torch.cat([isect_offsets.flatten(), end[None]])


def check_lists(bounds: Tensor, flatten_ids: Tensor, gaussians: int) -> None:
    """Raise an InputError for lists that point outside: a kernel would read somebody else's memory."""
    n_isects = flatten_ids.numel()
    if n_isects:
        low, high = (int(x) for x in flatten_ids.aminmax())
        if low < 0 or high >= gaussians:
            raise InputError(
                "flatten_ids",
                got=f"entries {'down to ' + str(low) if low < 0 else 'up to ' + str(high)}",
                expected=f"entries in 0..{gaussians - 1} (images * N Gaussians)",
                fix="use the lists that bin_gaussians made from the same Gaussians",
            )
    offsets = bounds[:-1]
    if offsets.numel() and (offsets[0] != 0 or bounds[-1] > n_isects or (bounds.diff() < 0).any()):
        raise InputError(
            "isect_offsets",
            got=f"values in {int(offsets.min())}..{int(offsets.max())}, first {int(offsets[0])}",
            expected=f"values that begin at 0 and rise to at most {n_isects} (entries of flatten_ids)",
            fix="use the lists that bin_gaussians made",
        )


class KernelLists:
    """The arguments that the CPU kernels share, as contiguous numpy arrays."""

    def __init__(
        self,
        means2d: Tensor,
        conics: Tensor,
        opacities: Tensor,
        tile_size: int,
        bounds: Tensor,
        flatten_ids: Tensor,
        masks: Tensor | None,
        tile_width: int,
    ) -> None:
        from lanewise.splat.rasterize import cpu  # numba is loaded when it is first needed

        check_lists(bounds, flatten_ids, conics.shape[0])
        self.means2d, self.opacities, self.flatten_ids = (
            x.detach().contiguous().numpy() for x in (means2d.reshape(-1, 2), opacities, flatten_ids)
        )
        self.offsets = bounds.long()
        self.keep = torch.ones(len(bounds) - 1, dtype=torch.bool, device="cpu") if masks is None else masks.flatten()
        self.tile_size, self.tile_width = tile_size, tile_width
        self.heights = np.empty(conics.shape[0], np.float64)
        self.squares = np.empty((conics.shape[0], 3), np.float32)
        cpu.prepare(self.flatten_ids, conics.detach().contiguous().numpy(), self.opacities, self.heights, self.squares)

    def gaussians(self, colors: Tensor) -> tuple:
        """means2d, exponents as sums of squares, colors, opacities and the half heights of the ellipses."""
        return self.means2d, self.squares, colors.detach().contiguous().numpy(), self.opacities, self.heights

    def tiles(self) -> tuple:
        """offsets, flatten_ids, keep, tile_size and tile_width."""
        return self.offsets.numpy(), self.flatten_ids, self.keep.contiguous().numpy(), self.tile_size, self.tile_width
