"""Convolution whose gradients are right at every size."""

from lanewise.conv.functional import conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d
from lanewise.conv.module import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from lanewise.conv.plan import Slice, plan
from lanewise.conv.problem import Problem
from lanewise.conv.protect import Protection, protect

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Problem",
    "Protection",
    "Slice",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "plan",
    "protect",
]
