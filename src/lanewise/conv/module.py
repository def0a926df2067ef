"""torch.nn's convolution modules, with gradients that are right at every size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from lanewise.conv import functional

FORWARD: dict[int, Callable[..., Tensor]] = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
TRANSPOSED: dict[int, Callable[..., Tensor]] = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}


class _Options:
    """What these modules have besides torch's: how precise, and how large a window. Neither is a part of the state."""

    precision: str | None = None
    window_bytes: int | None = None

    def __init__(
        self, *args: Any, precision: str | None = None, window_bytes: int | None = None, **kwargs: Any
    ) -> None:
        functional.check_options(precision, window_bytes)
        super().__init__(*args, **kwargs)
        self.precision, self.window_bytes = precision, window_bytes

    def _asked(self) -> dict[str, Any]:
        return {"precision": self.precision, "window_bytes": self.window_bytes}


class _Convolution(_Options):
    """Torch's modules call `_conv_forward` and nothing else."""

    def _conv_forward(self: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        convolve = FORWARD[len(self.kernel_size)]
        return convolve(input, weight, bias, self.stride, padding, self.dilation, self.groups, **_Options._asked(self))


class _Transposed(_Options):
    """Torch's modules do all in `forward`."""

    def forward(self: Any, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """As of torch's module.

        Args:
            input: [N, K, ...] or [K, ...].
            output_size: the extents that are wanted of those that are possible; the smallest by default.
        """
        dims = len(self.kernel_size)
        extra = self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, dims, self.dilation
        )
        geometry = (self.stride, self.padding, extra, self.groups, self.dilation)
        return TRANSPOSED[dims](input, self.weight, self.bias, *geometry, **_Options._asked(self))


class Conv1d(_Convolution, nn.Conv1d):
    """As `Conv2d`, in one dimension."""


class Conv2d(_Convolution, nn.Conv2d):
    """`torch.nn.Conv2d` by `lanewise.conv.conv2d`; state dicts are the same.

    Args:
        args: torch's, as are further keywords.
        precision: "fp32", "tf32" or None, as of `conv2d`.
        window_bytes: as of `conv2d`.
    """


class Conv3d(_Convolution, nn.Conv3d):
    """As `Conv2d`, in three dimensions."""


class ConvTranspose1d(_Transposed, nn.ConvTranspose1d):
    """As `ConvTranspose2d`, in one dimension."""


class ConvTranspose2d(_Transposed, nn.ConvTranspose2d):
    """`torch.nn.ConvTranspose2d` by `lanewise.conv.conv_transpose2d`; state dicts are the same.

    Args:
        args: torch's, as are further keywords.
        precision: "fp32", "tf32" or None, as of `conv2d`.
        window_bytes: as of `conv2d`.
    """


class ConvTranspose3d(_Transposed, nn.ConvTranspose3d):
    """As `ConvTranspose2d`, in three dimensions."""
