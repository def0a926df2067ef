"""What an operator is to the audit: an expression, and how its inputs are drawn at any size."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

NORMAL = "torch.randn({shape}, {on})"
PREAMBLE = "import math\n\nimport torch\nimport torch.nn.functional as F\n"


@dataclass(frozen=True)
class Input:
    """One tensor that an operator takes.

    Attributes:
        name: of the argument.
        dims: its shape: names of sizes, numbers, or expressions of them, with spaces between ("B C 2*H").
        draw: the expression that makes it; {shape}, {where} (device and, unless "other", dtype) and {on} (with the
            generator) are filled in, sizes are names.
        kind: "float" is differentiated and takes the case's dtype; "other" (indices, masks) does neither; "constant" is
            floating and takes the dtype, but is not differentiated (targets, running statistics).
    """

    name: str
    dims: str
    draw: str = NORMAL
    kind: Literal["float", "constant", "other"] = "float"

    @property
    def variable(self) -> str:
        """The name as an identifier of a script ("layers.0.weight" becomes layers_0_weight)."""
        name = re.sub(r"\W", "_", self.name)
        return name if name.isidentifier() else f"_{name}"

    def shape(self, names: Mapping[str, Any]) -> tuple[int, ...]:
        """The shape where sizes and options have these values."""
        return tuple(int(eval(part, {}, dict(names))) for part in self.dims.split())


@dataclass(frozen=True)
class Spec:
    """An operator of the catalogue, or a user's.

    Attributes:
        name: how reports call it.
        source: an expression of its inputs, sizes and options ("F.linear(x, weight, bias)"), or statements that end in
            `return`.
        inputs: the tensors.
        sizes: a usual value of every named size, small enough to run anywhere.
        options: other names in `source` and their choices, the usual one first.
        linear: inputs in each of which the operator is known to be affine.
        batch: for an input, and under "output" for the outputs, the dimension along which the operator acts
            independently; empty when there is none.
        reference: a statement like `source` that says the truth where the operator's own fp64 arithmetic cannot (a
            kernel that has only fp32); None when it is the operator itself.
        setup: lines that a script needs before `source` beyond those of `PREAMBLE` (imports).
        fixed: sizes that are not varied.
        dtypes: those that it takes; the usual one first.
        values: scales of the inputs that it is meant for.
        function: a user's own function, called with the inputs by name in place of `source`.
        example: inputs as the user gave them, by name.
        constants: a user's arguments that are no tensors, by name.
        alternative: like `source`, and computes the same another way: a workaround to try.
        compiles: its first call may take long, because a compiler runs.
        chained: drawn by the generator of compositions, not written down.
        work: multiply-adds of one forward, an expression of the sizes, where they grow faster than the tensors.
    """

    name: str
    source: str
    inputs: tuple[Input, ...]
    sizes: Mapping[str, int]
    options: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    linear: tuple[str, ...] = ()
    batch: Mapping[str, int] = field(default_factory=dict)
    reference: str | None = None
    setup: str = ""
    fixed: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16", "float64")
    values: tuple[str, ...] = ("normal", "positive", "tiny", "large", "logits")
    function: Callable[..., Any] | None = None
    example: Mapping[str, torch.Tensor] | None = None
    constants: Mapping[str, Any] = field(default_factory=dict)
    alternative: str | None = None
    compiles: bool = False
    chained: bool = False
    work: str = "0"

    @property
    def differentiable(self) -> tuple[str, ...]:
        """Names of the inputs that are differentiated."""
        return tuple(tensor.name for tensor in self.inputs if tensor.kind == "float")

    def named(self, source: str, names: Mapping[str, Any]) -> list[str]:
        """Assignments of the sizes and options that a piece of source uses, one a line."""
        return [f"{name} = {value!r}" for name, value in names.items() if re.search(rf"\b{name}\b", source)]

    def definition(self, names: Mapping[str, Any], source: str | None = None, called: str = "operator") -> str:
        """`def operator(x, weight): ...` with sizes and options filled in, as scripts show it and cases run it."""
        source = self.source if source is None else source
        body = source.splitlines() if re.search(r"^ *return\b", source, re.MULTILINE) else [f"return {source}"]
        arguments = ", ".join(tensor.name for tensor in self.inputs)
        lines = [f"def {called}({arguments}):", *(f"    {line}" for line in (*self.named(source, names), *body))]
        return "\n".join(lines) + "\n"

    def bind(self, names: Mapping[str, Any], source: str | None = None) -> Callable[..., Any]:
        """The operator as a function of its inputs by name."""
        if self.function is not None and source is None:
            return functools.partial(self.function, **self.constants)
        return execute(f"{self.setup}\n{self.definition(names, source)}")["operator"]


def execute(source: str, **names: Any) -> dict[str, Any]:
    """The names that a piece of a script leaves behind, `PREAMBLE` included."""
    namespace: dict[str, Any] = dict(names)
    exec(compile(f"{PREAMBLE}\n{source}", "<lanewise.audit>", "exec"), namespace)
    return namespace
