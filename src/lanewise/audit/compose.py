"""Programs of several operators, drawn at random: compilers go wrong in combinations that no list has."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from lanewise.audit.spec import Input, Spec

Kind = Literal["image", "rows"]


@dataclass(frozen=True)
class Link:
    """One statement of a chain.

    Attributes:
        expression: of `y`, what came before, [N, C, H, W] ("image") or [N, C] ("rows"), of `z`, an earlier value of the
            same shape, of C, which is kept, and of {p}, a parameter of its own.
        kind: what it takes.
        gives: what it leaves, when that is not the kind that it takes.
        parameter: the dimensions of its parameter, or empty.
        resizes: whether the shape changes.
        weight: how often it is drawn: more often what reads or writes memory out of order and what joins two values,
            because there compilers fuse what they should not.
    """

    expression: str
    kind: Kind
    gives: Kind | None = None
    parameter: str = ""
    resizes: bool = False
    weight: float = 1.0


_HALF = "torch.arange(y.shape[0], device=y.device) // 2"  # every row of the first half twice
_ELEMENTWISE = {
    "F.gelu(y)": 1,
    "F.relu(y)": 1,
    "torch.tanh(y)": 1,
    "y + z": 1,
    "y * z": 3,
    "torch.where(z > 0, z, y)": 3,
}
LINKS: tuple[Link, ...] = (
    Link("F.conv2d(y, {p}, padding=1)", "image", parameter="C C 3 3", weight=3),
    Link("F.conv2d(y, {p})", "image", parameter="C C 1 1", weight=3),
    Link("F.conv2d(y, {p}, padding=1, groups=C)", "image", parameter="C 1 3 3", weight=3),
    Link("F.max_pool2d(y, 3, stride=1, padding=1)", "image", weight=3),
    Link("F.max_pool2d(y, 2)", "image", resizes=True),
    Link("F.avg_pool2d(y, 3, stride=1, padding=1)", "image"),
    Link('F.interpolate(y, scale_factor=(1.5, 1.25), mode="bilinear", align_corners=False)', "image", resizes=True),
    Link('F.interpolate(y, scale_factor=2, mode="nearest")', "image", resizes=True),
    Link("y[:, :, 1:, 1:]", "image", resizes=True),
    Link("y + {p}[:, None, None]", "image", parameter="C"),
    Link("torch.where(z > z.mean(dim=(2, 3), keepdim=True), z, y)", "image", weight=3),
    Link("y.permute(0, 2, 3, 1).reshape(-1, C)", "image", gives="rows", weight=0.5),
    Link("y.mean(dim=(2, 3))", "image", gives="rows", weight=0.5),
    Link("y.amax(dim=(2, 3))", "image", gives="rows", weight=0.5),
    Link("F.linear(y, {p})", "rows", parameter="C C"),
    Link("F.layer_norm(y, (C,), {p})", "rows", parameter="C"),
    Link("y.softmax(-1)", "rows"),
    Link("y.log_softmax(-1)", "rows"),
    Link("y.cumsum(0)", "rows"),
    Link("y.flip(0)", "rows"),
    Link("y.sum(0, keepdim=True).expand(y.shape[0], -1)", "rows", weight=4),
    Link("{p}.expand(y.shape[0], -1)", "rows", parameter="1 C", weight=2),
    Link(f"y.index_add(0, {_HALF}, z)", "rows", weight=3),
    Link(f"y.index_put(({_HALF},), z, accumulate=True)", "rows", weight=3),
    Link(f"y.scatter_add(0, ({_HALF})[:, None].expand_as(z), z)", "rows", weight=3),
    Link(f"y.index_select(0, {_HALF})", "rows"),
    Link("torch.stack([y[..., k] for k in range(C)], -1)", "rows"),
    Link("torch.cat([y, y.flip(0)])", "rows", resizes=True),
    Link("F.scaled_dot_product_attention(y[None], z[None], y[None])[0]", "rows"),
    *(Link(expression, "image", weight=weight) for expression, weight in _ELEMENTWISE.items()),
    *(Link(expression, "rows", weight=weight) for expression, weight in _ELEMENTWISE.items()),
)


def chain(seed: int) -> Spec:
    """A program of four to eight statements; the same for the same seed."""
    choose = random.Random(seed)
    kind: Kind = choose.choice(("image", "rows"))
    inputs, lines = [Input("x", "N C H W" if kind == "image" else "N C")], ["y = z = x"]
    for number in range(choose.randint(4, 8)):
        fitting = [link for link in LINKS if link.kind == kind]
        (link,) = choose.choices(fitting, [link.weight for link in fitting])
        if link.parameter:
            inputs.append(Input(f"w{number}", link.parameter))
        expression = link.expression.format(p=f"w{number}")
        lines.append(f"y = z = {expression}" if link.gives or link.resizes else f"y, z = {expression}, y")
        kind = link.gives or kind
    source = "\n".join((*lines, "return y"))
    return Spec(f"chain-{seed}", source, tuple(inputs), {"N": 4, "C": 4, "H": 7, "W": 6}, chained=True)
