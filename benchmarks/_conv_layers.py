"""The layers of conv_vs_vendor.py, batch 32 (two for volumes): every distinct one of each network, listed before any
kernel was tuned for them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    """One convolution: input [n, c, *extents], weight [k, c / groups, *kernel], or [c, k / groups, ...] transposed."""

    name: str
    n: int
    c: int
    k: int
    extents: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    groups: int = 1
    transposed: bool = False

    @property
    def x_shape(self) -> tuple[int, ...]:
        return (self.n, self.c, *self.extents)

    @property
    def w_shape(self) -> tuple[int, ...]:
        outer, inner = (self.c, self.k) if self.transposed else (self.k, self.c)
        return (outer, inner // self.groups, *self.kernel)

    @property
    def y_extents(self) -> tuple[int, ...]:
        if self.transposed:
            return tuple(
                (e - 1) * self.stride - 2 * self.padding + t for e, t in zip(self.extents, self.kernel, strict=True)
            )
        return tuple(
            (e + 2 * self.padding - t) // self.stride + 1 for e, t in zip(self.extents, self.kernel, strict=True)
        )

    @property
    def y_shape(self) -> tuple[int, ...]:
        return (self.n, self.k, *self.y_extents)


def _plane(name: str, c: int, k: int, extent: int, kernel: int, stride: int = 1, **more: int | bool) -> Layer:
    padding = int(more.pop("padding", kernel // 2))
    return Layer(name, 32, c, k, (extent, extent), (kernel, kernel), stride, padding, **more)  # type: ignore[arg-type]


def _resnet50() -> list[Layer]:
    layers = [_plane("stem 7x7/2", 3, 64, 224, 7, 2)]
    inside, extent = 64, 56
    for stage, width in enumerate((64, 128, 256, 512), 2):
        out, stride, before = 4 * width, 1 if stage == 2 else 2, extent
        extent //= stride
        layers += [
            _plane(f"conv{stage} first 1x1", inside, width, before, 1),
            _plane(f"conv{stage} first 3x3/{stride}", width, width, before, 3, stride),
            _plane(f"conv{stage} shortcut 1x1/{stride}", inside, out, before, 1, stride),
            _plane(f"conv{stage} 1x1 in", out, width, extent, 1),
            _plane(f"conv{stage} 3x3", width, width, extent, 3),
            _plane(f"conv{stage} 1x1 out", width, out, extent, 1),
        ]
        inside = out
    distinct = {(layer.c, layer.k, layer.extents, layer.kernel, layer.stride): layer for layer in layers}
    return list(distinct.values())


def _convnext_tiny() -> list[Layer]:
    widths, extents = (96, 192, 384, 768), (56, 28, 14, 7)
    layers = [_plane("stem 4x4/4", 3, 96, 224, 4, 4, padding=0)]
    for i, (width, extent) in enumerate(zip(widths, extents, strict=True)):
        if i:
            layers.append(_plane(f"down{i} 2x2/2", widths[i - 1], width, extents[i - 1], 2, 2, padding=0))
        layers += [
            _plane(f"stage{i} 7x7 depthwise", width, width, extent, 7, groups=width),
            _plane(f"stage{i} 1x1 in", width, 4 * width, extent, 1),
            _plane(f"stage{i} 1x1 out", 4 * width, width, extent, 1),
        ]
    return layers


def _unet3d() -> list[Layer]:
    def volume(name: str, c: int, k: int, extent: int, kernel: int = 3, stride: int = 1, up: bool = False) -> Layer:
        padding = 0 if kernel <= 2 else 1
        return Layer(name, 2, c, k, (extent,) * 3, (kernel,) * 3, stride, padding, transposed=up)

    widths, extents = (32, 64, 128, 256), (64, 32, 16, 8)
    layers = [volume("first 3x3x3", 1, 32, 64), volume("last 1x1x1", 32, 4, 64, 1)]
    for i, (width, extent) in enumerate(zip(widths, extents, strict=True)):
        layers.append(volume(f"level{i} 3x3x3", width, width, extent))
        if i:
            layers += [
                volume(f"down{i} 3x3x3/2", widths[i - 1], width, extents[i - 1], 3, 2),
                volume(f"up{i} 2x2x2/2", width, widths[i - 1], extent, 2, 2, up=True),
                volume(f"joined{i} 3x3x3", 2 * widths[i - 1], widths[i - 1], extents[i - 1]),
            ]
    return layers


def _depthwise() -> list[Layer]:
    shapes = ((32, 112, 3, 1), (96, 112, 3, 2), (144, 56, 3, 1), (192, 28, 3, 1), (384, 14, 3, 1), (576, 14, 3, 2))
    shapes += ((960, 7, 3, 1), (144, 56, 5, 2), (240, 28, 5, 1), (672, 14, 5, 1))
    return [_plane(f"{c} of {e}, {t}x{t}/{s}", c, c, e, t, s, groups=c) for c, e, t, s in shapes]


def _transposed() -> list[Layer]:
    shapes = ((512, 256, 8, 4, 2, 1), (256, 128, 16, 4, 2, 1), (128, 64, 32, 4, 2, 1), (64, 3, 64, 4, 2, 1))
    shapes += ((256, 128, 28, 2, 2, 0), (128, 64, 56, 2, 2, 0), (64, 32, 56, 3, 1, 1))
    return [
        _plane(f"{c} to {k} of {e}, {t}x{t}/{s}", c, k, e, t, s, padding=p, transposed=True)
        for c, k, e, t, s, p in shapes
    ]


SETS = {
    "resnet50": _resnet50(),
    "convnext_tiny": _convnext_tiny(),
    "unet3d": _unet3d(),
    "depthwise": _depthwise(),
    "transposed": _transposed(),
}
