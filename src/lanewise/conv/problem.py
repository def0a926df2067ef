"""What one convolution is: sizes, steps, groups, dtype and memory order."""

from __future__ import annotations

from dataclasses import dataclass

import torch

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Problem:
    """One convolution, in 3-D terms: a 2-D problem has depth 1.

    Attributes:
        n: batch.
        c: channels of the input.
        k: channels of the output.
        spatial_in: depth, height and width of the input.
        spatial_out: depth, height and width of the output.
        kernel: extents of the weights.
        stride: distance of neighbouring outputs, in inputs.
        padding: zeros before the first and after the last input.
        dilation: distance of neighbouring weights, in inputs.
        groups: how many independent convolutions the channels are cut into.
        dtype: of input, weights and output.
        channels_last: whether channels, rather than columns, are neighbours in memory.
    """

    n: int
    c: int
    k: int
    spatial_in: Triple
    spatial_out: Triple
    kernel: Triple
    stride: Triple
    padding: Triple
    dilation: Triple
    groups: int
    dtype: torch.dtype
    channels_last: bool
