"""Convolutions: in one to three dimensions, transposed, grouped, dilated, and what unfolds and folds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lanewise.audit.catalogue.table import op
from lanewise.audit.spec import Spec

_SPACE = {1: ("W", "W=19"), 2: ("H W", "H=11 W=10"), 3: ("D H W", "D=5 H=6 W=7")}


class Convolution(NamedTuple):
    """One convolution, in torch's library or in ours: "F.conv2d(x, weight)" or "conv2d(x, weight)"."""

    name: str
    function: str
    arguments: str
    inputs: str
    sizes: str
    work: str
    options: Mapping[str, tuple[Any, ...]] = {}

    @property
    def call(self) -> str:
        """The function and its arguments."""
        return f"{self.function}({self.arguments})"

    def spec(self, name: str, source: str, **rest: Any) -> Spec:
        """A spec of this convolution."""
        common: dict[str, Any] = {"linear": "*", "batch": "x", "work": self.work, "options": self.options}
        return op(name, source, self.inputs, self.sizes, **common, **rest)


def _of(dims: int) -> Iterator[Convolution]:
    """Those of so many dimensions."""
    space, sizes = _SPACE[dims]
    volume, taps = "*".join(space.split()), 3**dims
    kernel, ones = " ".join("3" * dims), " ".join("1" * dims)
    conv, transposed = f"conv{dims}d", f"conv_transpose{dims}d"
    work = f"B*C*K*{taps}*{volume}"
    yield Convolution(conv, conv, "x, weight, bias, stride=stride, padding=padding",
                      f"x: B C {space}; weight: K C {kernel}; bias: K", f"B=3 C=6 K=8 {sizes}", work,
                      options={"stride": (1, 2), "padding": (1, 0, 2)})  # fmt: skip
    yield Convolution(f"{conv}_pointwise", conv, "x, weight", f"x: B C {space}; weight: K C {ones}",
                      f"B=3 C=6 K=8 {sizes}", work)  # fmt: skip
    yield Convolution(f"{conv}_grouped", conv, "x, weight, bias, padding=1, groups=G",
                      f"x: B G*C {space}; weight: G*K C {kernel}; bias: G*K", f"B=3 G=2 C=3 K=4 {sizes}",
                      f"G*{work}")  # fmt: skip
    yield Convolution(f"{conv}_depthwise", conv, "x, weight, padding=1, groups=C",
                      f"x: B C {space}; weight: C 1 {kernel}", f"B=3 C=6 {sizes}", f"B*C*{taps}*{volume}")  # fmt: skip
    yield Convolution(f"{conv}_dilated", conv, "x, weight, padding=dilation, dilation=dilation",
                      f"x: B C {space}; weight: K C {kernel}", f"B=3 C=6 K=8 {sizes}", work,
                      options={"dilation": (2, 3)})  # fmt: skip
    yield Convolution(transposed, transposed, "x, weight, bias, stride=stride, padding=padding",
                      f"x: B C {space}; weight: C K {kernel}; bias: K", f"B=3 C=6 K=5 {sizes}", work,
                      options={"stride": (2, 1), "padding": (0, 1)})  # fmt: skip
    yield Convolution(f"{transposed}_grouped", transposed, "x, weight, stride=2, padding=1, output_padding=1, groups=G",
                      f"x: B G*C {space}; weight: G*C K {kernel}", f"B=3 G=2 C=3 K=4 {sizes}", f"G*{work}")  # fmt: skip


CONVOLUTIONS: tuple[Convolution, ...] = tuple(conv for dims in _SPACE for conv in _of(dims))

SPECS: tuple[Spec, ...] = (
    *(conv.spec(conv.name, f"F.{conv.call}",
                alternative=f"from lanewise.conv import {conv.function}\nreturn {conv.call}") for conv in CONVOLUTIONS),
    op("conv2d_reflect", 'F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), weight)',
       "x: B C H W; weight: K C 3 3", "B=3 C=6 K=8 H=11 W=10", linear="*", batch="x", work="9*B*C*K*H*W"),
    op("conv_tbc", "torch.conv_tbc(x, weight, bias, 1)", "x: T B C; weight: 3 C K; bias: K", "T=11 B=3 C=6 K=8",
       linear="*", work="3*T*B*C*K"),
    op("unfold", "F.unfold(x, 3, padding=1, stride=stride)", "x: B C H W", "B=2 C=3 H=8 W=7",
       linear="*", batch="x", options={"stride": (1, 2)}),
    op("fold", "F.fold(x, (H, W), 3, padding=1)", "x: B 9*C H*W", "B=2 C=3 H=6 W=7", linear="*", batch="x"),
)  # fmt: skip
