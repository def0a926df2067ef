"""Programs of several operators, drawn at random: compilers go wrong in combinations that no list has.

A program is a graph: values are read more than once, and what was made of them meets again. That is where compilers
fuse, keep and overwrite.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lanewise.audit.spec import Input, Spec

Kind = Literal["image", "rows"]

DIAMONDS = (2, 4)  # in a program, at least and at most
_VALUE = re.compile(r"\b(?:x|v\d+)\b")


@dataclass(frozen=True)
class Link:
    """One statement of a program.

    Attributes:
        expression: of {y}, an earlier value, [N, C, H, W] ("image") or [N, C] ("rows"), of {z}, another of the same
            shape, of C, which is kept, and of {p}, a parameter of its own.
        kind: what it takes.
        gives: what it leaves, when that is not the kind that it takes.
        parameter: the dimensions of its parameter, or empty.
        resizes: whether the shape changes.
        weight: how often it is drawn: more often what reads or writes memory out of order, because there compilers fuse
            what they should not.
    """

    expression: str
    kind: Kind
    gives: Kind | None = None
    parameter: str = ""
    resizes: bool = False
    weight: float = 1.0


_HALF = "torch.arange({y}.shape[0], device={y}.device) // 2"  # every row of the first half twice
# For values of any kind.
_ANY = {
    "F.gelu({y})": 1,
    "F.relu({y})": 1,
    "torch.tanh({y})": 1,
    "{y} + {z}": 1,
    "{y} * {z}": 5,
    "torch.where({z} > 0, {z}, {y})": 5,
    "{y}.flip(0)": 1,
    "{y}[:1].expand_as({y})": 2,
    "{y}.sum(0, keepdim=True).expand_as({y})": 6,
    f"{{y}}.index_select(0, {_HALF})": 1,
    f"{{y}}.index_add(0, {_HALF}, {{z}})": 3,
    f"{{y}}.index_put(({_HALF},), {{z}}, accumulate=True)": 3,
}
LINKS: tuple[Link, ...] = (
    Link("F.conv2d({y}, {p}, padding=1)", "image", parameter="C C 3 3", weight=8),
    Link("F.conv2d({y}, {p})", "image", parameter="C C 1 1", weight=3),
    Link("F.conv2d({y}, {p}, padding=1, groups=C)", "image", parameter="C 1 3 3", weight=3),
    Link("F.max_pool2d({y}, 3, stride=1, padding=1)", "image", weight=8),
    Link("F.avg_pool2d({y}, 3, stride=1, padding=1)", "image", weight=2),
    Link("F.max_pool2d({y}, 2)", "image", resizes=True, weight=0.5),
    Link("F.avg_pool2d({y}, 3, stride=2, ceil_mode=True)", "image", resizes=True, weight=0.5),
    Link(
        'F.interpolate({y}, scale_factor=(1.5, 1.25), mode="bilinear", align_corners=False)',
        "image",
        resizes=True,
        weight=0.5,
    ),
    Link('F.interpolate({y}, scale_factor=2, mode="nearest")', "image", resizes=True, weight=0.5),
    Link('F.pad({y}, (1, 0, 1, 0), mode="reflect")', "image", resizes=True, weight=0.5),
    Link("{y}[:, :, 1:, 1:]", "image", resizes=True, weight=0.5),
    Link("{y} + {p}[:, None, None]", "image", parameter="C"),
    Link("torch.where({z} > {z}.mean(dim=(2, 3), keepdim=True), {z}, {y})", "image", weight=5),
    Link("{y}.permute(0, 2, 3, 1).reshape(-1, C)", "image", gives="rows", weight=0.5),
    Link("{y}.mean(dim=(2, 3))", "image", gives="rows", weight=0.5),
    Link("{y}.amax(dim=(2, 3))", "image", gives="rows", weight=0.5),
    Link("F.linear({y}, {p})", "rows", parameter="C C"),
    Link("F.layer_norm({y}, (C,), {p})", "rows", parameter="C"),
    Link("{y}.softmax(-1)", "rows"),
    Link("{y}.log_softmax(-1)", "rows"),
    Link("{y}.cumsum(0)", "rows"),
    Link("{p}.expand({y}.shape[0], -1)", "rows", parameter="1 C", weight=2),
    Link(f"{{y}}.scatter_add(0, ({_HALF})[:, None].expand_as({{z}}), {{z}})", "rows", weight=3),
    Link("torch.stack([{y}[..., k] for k in range(C)], -1)", "rows"),
    Link("torch.cat([{y}, {z}.flip(0)])", "rows", resizes=True),
    Link("F.scaled_dot_product_attention({y}[None], {z}[None], {y}[None])[0]", "rows"),
    *(Link(expression, "image", weight=weight) for expression, weight in _ANY.items()),
    *(Link(expression, "rows", weight=weight) for expression, weight in _ANY.items()),
)


JOINS = tuple(link for link in LINKS if "{z}" in link.expression)


@dataclass(frozen=True)
class _Value:
    """A value of the program: its name, its kind, and a number that values of the same shape share."""

    name: str
    kind: Kind
    shape: int

    def like(self, other: _Value) -> bool:
        """Whether the two have the same shape."""
        return (self.kind, self.shape) == (other.kind, other.shape)


def chain(seed: int) -> Spec:
    """A program of several statements; the same for the same seed.

    It is made of diamonds: a value, what is made from it, and a statement in which the two meet, where they have the
    same shape.
    """
    choose = random.Random(seed)
    kind: Kind = choose.choice(("image", "image", "rows"))
    inputs, lines = [Input("x", "N C H W" if kind == "image" else "N C")], []
    values = [_Value("x", kind, 0)]

    def add(y: _Value, links: Sequence[Link], z: _Value | None = None) -> _Value:
        fitting = [link for link in links if link.kind == y.kind]
        (link,) = choose.choices(fitting, [link.weight for link in fitting])
        z = z or choose.choice([value for value in values if value.like(y)])
        number = len(lines)
        if link.parameter:
            inputs.append(Input(f"w{number}", link.parameter))
        lines.append(f"v{number} = {link.expression.format(y=y.name, z=z.name, p=f'w{number}')}")
        shape = number + 1 if link.gives or link.resizes else y.shape
        values.append(_Value(f"v{number}", link.gives or y.kind, shape))
        return values[-1]

    for _ in range(choose.randint(*DIAMONDS)):
        top = add(choose.choice(values), LINKS)
        side = add(top, LINKS)
        if side.like(top):
            add(*choose.choice(((side, JOINS, top), (top, JOINS, side))))
    unread = [v.name for v in values[1:] if not any(v.name in _names(line.split(" = ", 1)[1]) for line in lines)]
    whole = Spec(f"chain-{seed}", "", tuple(inputs), {"N": 4, "C": 4, "H": 7, "W": 6}, chained=True)
    return program(whole, lines, unread)


def program(spec: Spec, lines: Sequence[str], results: Sequence[str]) -> Spec:
    """The same spec with these statements, as far as the results need them, and with the inputs that those read."""
    needed, kept = set(results), []
    for line in reversed(lines):
        name, expression = line.split(" = ", 1)
        if name in needed:
            kept.insert(0, line)
            needed |= _names(expression)
    source = "\n".join((*kept, f"return {', '.join(results)}"))
    inputs = tuple(t for t in spec.inputs if re.search(rf"\b{t.name}\b", source))
    return replace(spec, source=source, inputs=inputs)


def statements(spec: Spec) -> tuple[list[str], list[str]]:
    """The statements of a program, and the names of its results."""
    *lines, last = spec.source.splitlines()
    return lines, last.removeprefix("return ").split(", ")


def without(lines: Sequence[str], results: Sequence[str], place: int) -> tuple[list[str], list[str]]:
    """Statements and results where whoever read the value of that place reads what it was made from instead."""
    name, expression = lines[place].split(" = ", 1)
    found = _VALUE.search(expression)
    assert found is not None
    rename = lambda text: re.sub(rf"\b{name}\b", found[0], text)  # noqa: E731
    rest = [*lines[:place], *map(rename, lines[place + 1 :])]
    return rest, list(dict.fromkeys(map(rename, results)))


def pattern(line: str) -> str:
    """A statement without the names of its values and parameters: the same wherever the link is drawn."""
    return re.sub(r"\b(?:x|[vw]\d+)\b", "_", line.split(" = ", 1)[-1])


def _names(expression: str) -> set[str]:
    return set(_VALUE.findall(expression))
