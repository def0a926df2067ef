"""Public reports of convolutions that were silently wrong at some size, as problems."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from lanewise.conv.problem import Problem

WINDOW = 2**32 - 1


@dataclass(frozen=True)
class Report:
    """One report.

    Attributes:
        name: where it stands.
        story: what went wrong.
        problem: the convolution, at the size at which it went wrong.
        small: channels and extents of a replay on a CPU; None for a problem that is small already.
        slices: how many the planner makes of it.
    """

    name: str
    story: str
    problem: Problem
    small: dict[str, object] | None
    slices: int

    @property
    def shrunken(self) -> tuple[Problem, int]:
        """The replay, and a window that cuts it where the real one cuts the real problem."""
        if self.small is None:
            return self.problem, WINDOW
        small = replace(self.problem, **self.small)
        sizes = (max(p.tensor_bytes.values()) for p in (small, self.problem))
        return small, WINDOW * next(sizes) // next(sizes)


def _space(*extents: int) -> tuple[int, ...]:
    return (1,) * (3 - len(extents)) + extents


def _same(n, c, k, extents, kernel, direction, dtype, *, groups=1, channels_last=False, dims=2):
    """A convolution whose output has its input's extents."""
    padding = tuple(t // 2 for t in _space(*kernel))
    layout = {"groups": groups, "dtype": dtype, "channels_last": channels_last, "direction": direction, "dims": dims}
    space = _space(*extents)
    return Problem(
        n=n, c=c, k=k, spatial_in=space, spatial_out=space, kernel=_space(*kernel), padding=padding, **layout
    )


HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32

REPORTS = (
    Report(
        "ROCm/rocm-libraries 11188",
        "fp32 1x1, 6 GiB: every element of the weight's gradient is zero",
        _same(64, 96, 64, (512, 512), (1, 1), "weight_grad", SINGLE),
        {"c": 6, "k": 4, "spatial_in": (1, 16, 16), "spatial_out": (1, 16, 16)},
        2,
    ),
    Report(
        "ROCm/rocm-libraries 10043",
        "fp16 NHWC 3x3, 7 GiB: wrong gradient of the weight",
        _same(240, 1024, 1024, (162, 92), (3, 3), "weight_grad", HALF, channels_last=True),
        {"c": 8, "k": 8, "spatial_in": (1, 9, 6), "spatial_out": (1, 9, 6)},
        2,
    ),
    Report(
        "ROCm/rocm-libraries 10627",
        "fp16 NHWC 3x3 grouped: the gradient of the input is zero in all parts of the batch but the first",
        _same(240, 1024, 1024, (162, 92), (3, 3), "input_grad", HALF, groups=4, channels_last=True),
        {"c": 8, "k": 8, "spatial_in": (1, 9, 6), "spatial_out": (1, 9, 6)},
        2,
    ),
    Report(
        "ROCm/rocm-libraries 8025, 8029",
        "bf16 NDHWC 1x1x1: partial sums of the weight's gradient kept in bf16, 1.5 to 2 times off, intermittent",
        _same(8, 16, 16, (16, 16, 16), (1, 1, 1), "weight_grad", BRAIN, channels_last=True, dims=3),
        None,
        1,
    ),
    Report(
        "pytorch/pytorch 163539",
        "bf16 Conv3d (1, 3, 3) on fewer than 2^31 elements: wrong output",
        Problem(
            n=1,
            c=16,
            k=16,
            spatial_in=(124, 1282, 722),
            spatial_out=(124, 1280, 720),
            kernel=(1, 3, 3),
            dtype=BRAIN,
            dims=3,
        ),
        {"c": 3, "k": 3, "spatial_in": (31, 22, 12), "spatial_out": (31, 20, 10)},
        1,
    ),
    Report(
        "pytorch/pytorch 87354",
        "fp32 Conv3d 1x1x1 of one image of 8 GiB: the output is zero",
        _same(1, 32, 1, (512, 512, 256), (1, 1, 1), "forward", SINGLE, dims=3),
        {"c": 4, "spatial_in": (16, 16, 8), "spatial_out": (16, 16, 8)},
        3,
    ),
    Report(
        "pytorch/pytorch 59515",
        "fp16 Conv1d of a batch of 1251: NaN",
        Problem(n=1251, c=8, k=8, spatial_in=(1, 1, 8), spatial_out=(1, 1, 6), kernel=(1, 1, 3), dtype=HALF),
        None,
        1,
    ),
    Report(
        "pytorch/pytorch 96225",
        "a batch of 65536: the gradient of the weight misses all that a 16-bit counter does not reach",
        _same(65536, 2, 3, (1, 4), (1, 3), "weight_grad", SINGLE),
        None,
        1,
    ),
)
