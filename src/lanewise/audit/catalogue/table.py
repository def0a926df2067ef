"""A row of the catalogue, written short."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lanewise.audit.call import OUTPUT
from lanewise.audit.spec import NORMAL, Input, Spec

WIDE = ("float32", "float64")  # what has no kernels in half precision, or ties there
MODERATE = ("normal", "positive", "tiny")  # what overflows beyond

POSITIVE = "torch.rand({shape}, {on}) + 0.5"
UNIT = "torch.rand({shape}, {on}) * 0.9 + 0.05"
SIGNED_UNIT = "torch.rand({shape}, {on}) * 1.8 - 0.9"
SIGNS = "(torch.rand({shape}, {on}) < 0.5) * 2.0 - 1.0"
MASK = "torch.rand({shape}, {on}) < 0.5"


def below(size: str) -> str:
    """Whole numbers from 0 to the size (or expression of sizes), that excluded."""
    return f"torch.randint(0, {size}, {{shape}}, {{on}})"


def order(size: str) -> str:
    """The numbers below the size in random order, cut to the shape: indices of which none comes twice."""
    return f"torch.randperm({size}, {{on}})[:{{shape}}[0]]"


def op(
    name: str,
    source: str,
    inputs: str,
    sizes: str,
    *,
    linear: str = "",
    batch: str = "",
    draw: Mapping[str, str] | None = None,
    constant: Mapping[str, str] | None = None,
    other: Mapping[str, str] | None = None,
    **rest: Any,
) -> Spec:
    """A `Spec` from strings.

    Args:
        name: how reports call it.
        source: as in `Spec`.
        inputs: names and dimensions: "x: B C; weight: K C".
        sizes: usual values: "B=24 C=20".
        linear: names of inputs with spaces between, or "*" for all that are differentiated.
        batch: names of the inputs whose first dimension is the batch, which is the first of the output as well.
        draw: how inputs are drawn that are not normal numbers.
        constant: the same, for those that are floating-point and not differentiated.
        other: the same, for those that are not floating-point.
        rest: more of `Spec`.
    """
    draws = {"float": draw or {}, "constant": constant or {}, "other": other or {}}
    tensors = []
    for part in inputs.split("; "):
        argument, dims = part.split(": ") if ": " in part else (part.rstrip(":"), "")
        kind = next((kind for kind in ("constant", "other") if argument in draws[kind]), "float")
        tensors.append(Input(argument, dims, draws[kind].get(argument, NORMAL), kind))  # type: ignore[arg-type]
    differentiated = [tensor for tensor in tensors if tensor.kind == "float"]
    if all(tensor.draw != NORMAL for tensor in differentiated):
        rest.setdefault("values", ("normal",))  # a scale is for normal numbers
    return Spec(
        name,
        source,
        tuple(tensors),
        {size: int(value) for size, value in (part.split("=") for part in sizes.split())},
        linear=tuple(t.name for t in differentiated) if linear == "*" else tuple(linear.split()),
        batch={**dict.fromkeys(batch.split(), 0), OUTPUT: 0} if batch else {},
        **rest,
    )
