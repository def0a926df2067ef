"""What makes pictures smaller, larger or otherwise arranged: pooling, interpolation, sampling, padding, shuffling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lanewise.audit.catalogue.table import UNIT, WIDE, op
from lanewise.audit.spec import Spec

_SPACE = {1: ("W", "W=19", "OW"), 2: ("H W", "H=11 W=10", "OH, OW"), 3: ("D H W", "D=6 H=7 W=8", "OD, OH, OW")}
_OUT = {1: "OW=5", 2: "OH=4 OW=5", 3: "OD=3 OH=4 OW=5"}


def _pooling(dims: int) -> Iterator[Spec]:
    space, sizes, out = _SPACE[dims]
    x, image = f"x: B C {space}", f"B=2 C=4 {sizes}"
    yield op(f"max_pool{dims}d", f"F.max_pool{dims}d(x, kernel, stride, padding, dilation, ceil_mode)", x, image,
             batch="x", options={"kernel": (3, 2), "stride": (2, 1, 3), "padding": (0, 1), "dilation": (1, 2),
                                 "ceil_mode": (False, True)})  # fmt: skip
    yield op(f"avg_pool{dims}d", f"F.avg_pool{dims}d(x, kernel, stride, padding, ceil_mode, count_include_pad)",
             x, image, linear="*", batch="x",
             options={"kernel": (3, 2), "stride": (2, 1, 3), "padding": (0, 1), "ceil_mode": (False, True),
                      "count_include_pad": (True, False)})  # fmt: skip
    yield op(f"lp_pool{dims}d", f"F.lp_pool{dims}d(x, 2, 3, stride=2)", x, image, batch="x")
    size = f"({out},)" if dims == 1 else f"({out})"
    yield op(f"adaptive_avg_pool{dims}d", f"F.adaptive_avg_pool{dims}d(x, {size})", x, f"{image} {_OUT[dims]}",
             linear="*", batch="x")  # fmt: skip
    yield op(f"adaptive_max_pool{dims}d", f"F.adaptive_max_pool{dims}d(x, {size})", x, f"{image} {_OUT[dims]}",
             batch="x")  # fmt: skip
    yield op(f"max_unpool{dims}d", f"y, where = F.max_pool{dims}d(x, 2, return_indices=True)\n"
             f"return F.max_unpool{dims}d(y, where, 2, output_size=x.shape[2:])", x, image, batch="x")  # fmt: skip


def _interpolation(dims: int) -> Iterator[Spec]:
    space, sizes, out = _SPACE[dims]
    x, image = f"x: B C {space}", f"B=2 C=3 {sizes}"
    common: dict[str, Any] = {"linear": "*", "batch": "x"}
    smooth = {1: ("linear",), 2: ("bilinear", "bicubic"), 3: ("trilinear",)}[dims]
    size = f"({out},)" if dims == 1 else f"({out})"
    yield op(f"interpolate{dims}d_nearest", "F.interpolate(x, scale_factor=2, mode=mode)", x, image,
             options={"mode": ("nearest", "nearest-exact")}, **common)  # fmt: skip
    yield op(f"interpolate{dims}d_area", f'F.interpolate(x, size={size}, mode="area")', x, f"{image} {_OUT[dims]}",
             **common)  # fmt: skip
    for mode in smooth:
        yield op(f"interpolate{dims}d_{mode}", f'F.interpolate(x, scale_factor=scale, mode="{mode}", '
                 "align_corners=align)", x, image, options={"scale": (2, 0.5, 1.5), "align": (False, True)},
                 **common)  # fmt: skip
        yield op(f"interpolate{dims}d_{mode}_size", f'F.interpolate(x, size={size}, mode="{mode}")', x,
                 f"{image} {_OUT[dims]}", **common)  # fmt: skip


SPECS: tuple[Spec, ...] = (
    *(spec for dims in _SPACE for spec in (*_pooling(dims), *_interpolation(dims))),
    op("interpolate2d_antialias", "F.interpolate(x, size=(OH, OW), mode=mode, antialias=True)", "x: B C H W",
       "B=2 C=3 H=11 W=10 OH=4 OW=5", linear="*", batch="x", options={"mode": ("bilinear", "bicubic")}, dtypes=WIDE),
    op("fractional_max_pool2d", "F.fractional_max_pool2d(x, 2, output_size=(OH, OW), _random_samples=samples)",
       "x: B C H W; samples: B C 2", "B=2 C=4 H=11 W=10 OH=5 OW=4", batch="x samples",
       constant={"samples": UNIT}, dtypes=WIDE),
    op("fractional_max_pool3d", "F.fractional_max_pool3d(x, 2, output_size=(3, OH, OW), _random_samples=samples)",
       "x: B C D H W; samples: B C 3", "B=2 C=4 D=6 H=9 W=8 OH=4 OW=3", batch="x samples",
       constant={"samples": UNIT}, dtypes=WIDE),
    op("grid_sample2d", "F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=align)",
       "x: B C H W; grid: B OH OW 2", "B=2 C=3 H=8 W=7 OH=5 OW=6", linear="x", batch="x grid",
       draw={"grid": "torch.rand({shape}, {on}) * 2.4 - 1.2"}, dtypes=WIDE,
       options={"mode": ("bilinear", "bicubic"), "padding": ("zeros", "border", "reflection"),
                "align": (False, True)}),
    op("grid_sample2d_nearest", 'F.grid_sample(x, grid, mode="nearest", padding_mode=padding, align_corners=False)',
       "x: B C H W; grid: B OH OW 2", "B=2 C=3 H=8 W=7 OH=5 OW=6", linear="x", batch="x grid",
       constant={"grid": "torch.rand({shape}, {on}) * 2.4 - 1.2"}, dtypes=WIDE,
       options={"padding": ("zeros", "border", "reflection")}),
    op("grid_sample3d", "F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=align)",
       "x: B C D H W; grid: B OD OH OW 3", "B=2 C=3 D=5 H=6 W=7 OD=3 OH=4 OW=5", linear="x", batch="x grid",
       draw={"grid": "torch.rand({shape}, {on}) * 2.4 - 1.2"}, dtypes=WIDE,
       options={"mode": ("bilinear",), "padding": ("zeros", "border", "reflection"), "align": (False, True)}),
    op("affine_grid", "F.affine_grid(theta, (B, 1, H, W), align_corners=align)", "theta: B 2 3", "B=2 H=9 W=7",
       linear="*", options={"align": (False, True)}),
    op("pixel_shuffle", "F.pixel_shuffle(x, r)", "x: B r*r*C H W", "B=2 C=3 H=6 W=5", linear="*", batch="x",
       options={"r": (2, 3)}),
    op("pixel_unshuffle", "F.pixel_unshuffle(x, r)", "x: B C r*H r*W", "B=2 C=3 H=4 W=5", linear="*", batch="x",
       options={"r": (2, 3)}),
    op("channel_shuffle", "F.channel_shuffle(x, 3)", "x: B 3*C H W", "B=2 C=2 H=6 W=5", linear="*", batch="x"),
    op("pad_constant", "F.pad(x, (1, 2, 3, 0), value=value)", "x: B C H W", "B=2 C=3 H=6 W=5", linear="*",
       batch="x", options={"value": (0.0, 1.5)}),
    op("pad_crop", "F.pad(x, (-1, 2, 1, -2))", "x: B C H W", "B=2 C=3 H=6 W=5", linear="*", batch="x"),
    *(op(f"pad{dims}d", "F.pad(x, pad, mode=mode)", f"x: B C {_SPACE[dims][0]}", f"B=2 C=3 {_SPACE[dims][1]}",
         linear="*", batch="x", options={"mode": ("reflect", "replicate", "circular"), "pad": ((1, 2) * dims,)})
      for dims in _SPACE),
)  # fmt: skip
