"""A case: an operator at certain sizes, in a dtype, a layout, on a device, as the lines of a script that make it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lanewise.audit.call import OUTPUT, Call
from lanewise.audit.spec import NORMAL, Input, Spec, execute

LAYOUTS = ("contiguous", "transposed", "channels_last", "strided", "offset", "expanded")
COTANGENTS = ("contiguous", "strided", "transposed", "channels_last", "expanded", "ones")
# What the scale of normal numbers is multiplied by; half precision overflows beyond "large".
VALUES = {
    "normal": "{0}",
    "positive": "{0}.abs()",
    "tiny": "{0} * 1e-4",
    "large": "{0} * 30",
    "logits": "{0} * 8 - 4",
    "example": "{0}",
}
_LAY_OUT = {
    "transposed": "{0} = {0}.transpose(-1, -2).contiguous().transpose(-1, -2)",
    "channels_last": "{0} = {0}.contiguous(memory_format=torch.{1})",
    "strided": "{0} = torch.stack([{0}, {0}], -1)[..., 0]",
    "offset": "{0} = torch.cat([{0}.flatten()[:1], {0}.flatten()])[1:].view({0}.shape)",
    "expanded": "{0} = {0}[:1].expand({0}.shape)",
}
_LEAST_RANK = {"transposed": 2, "channels_last": 4, "strided": 1, "offset": 1, "expanded": 1}


@dataclass(frozen=True)
class Case:
    """One point of what is varied; hashable, picklable, and small.

    Attributes:
        operator: name of its spec.
        sizes: (name, value) of every size.
        options: (name, value) of every option of the spec.
        dtype: name of the floating-point dtype.
        layout: how the inputs lie in memory ("expanded": only the first).
        cotangent: how the upstream gradient does (`Call.cotangent`).
        values: scale of the inputs; "example" are those that the user gave.
        device: "cpu", "cuda", ...
        compiled: by `torch.compile` with its defaults.
        flags: statements in force, such as "torch.backends.cudnn.enabled = False".
        slices: pieces along the batch that are run one after the other.
        alternative: with the spec's `alternative` in place of its source.
        seed: of inputs and probes.
    """

    operator: str
    sizes: tuple[tuple[str, int], ...]
    options: tuple[tuple[str, Any], ...] = ()
    dtype: str = "float32"
    layout: str = "contiguous"
    cotangent: str = "contiguous"
    values: str = "normal"
    device: str = "cpu"
    compiled: bool = False
    flags: tuple[str, ...] = ()
    slices: int = 1
    alternative: bool = False
    seed: int = 0

    @property
    def names(self) -> dict[str, Any]:
        """Sizes and options together: the names that sources use."""
        return dict(self.sizes) | dict(self.options)

    @property
    def setting(self) -> dict[str, Any]:
        """What is not as usual, for reports; the device always."""
        usual = asdict(Case("", ()))
        skip = ("operator", "sizes", "options", "dtype", "seed")
        rest = {k: v for k, v in asdict(self).items() if k not in skip and v != usual[k]}
        return {"device": self.device, **dict(self.options), **rest}

    @property
    def identity(self) -> str:
        """A short name that is the same in every run."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:12]

    def resized(self, **sizes: int) -> Case:
        """The same case with some sizes replaced."""
        return replace(self, sizes=tuple((name, sizes.get(name, value)) for name, value in self.sizes))

    def shapes(self, spec: Spec) -> dict[str, list[int]]:
        """The shape of every tensor input."""
        if self.values == "example" and spec.example is not None:
            return {name: list(tensor.shape) for name, tensor in spec.example.items()}
        return {tensor.name: list(tensor.shape(self.names)) for tensor in spec.inputs}

    def input_lines(self, spec: Spec) -> list[str]:
        """The statements that make the inputs: run by `call`, and printed in a script that reproduces a finding."""
        lines = [f"generator = torch.Generator({self.device!r}).manual_seed({self.seed})"]
        lines += spec.named(" ".join(tensor.draw for tensor in spec.inputs), self.names)
        for tensor in spec.inputs:
            lines += self._lines(tensor, first=tensor is spec.inputs[0])
        return lines

    def _lines(self, tensor: Input, first: bool) -> Iterator[str]:
        shape = tensor.shape(self.names)
        where = f"device={self.device!r}" + ("" if tensor.kind == "other" else f", dtype=torch.{self.dtype}")
        drawn = tensor.draw.format(shape=shape, where=where, on=f"generator=generator, {where}")
        if tensor.draw == NORMAL and tensor.kind == "float":
            drawn = VALUES[self.values].format(drawn)
        yield f"{tensor.variable} = {drawn}"
        if self.layout == "contiguous" or tensor.kind == "other" or (self.layout == "expanded" and not first):
            return
        if len(shape) >= _LEAST_RANK[self.layout] and (self.layout != "channels_last" or len(shape) <= 5):
            yield _LAY_OUT[self.layout].format(
                tensor.variable, "channels_last" if len(shape) == 4 else "channels_last_3d"
            )

    def inputs(self, spec: Spec) -> dict[str, Tensor]:
        """The input tensors by name."""
        if self.values == "example" and spec.example is not None:
            dtype = getattr(torch, self.dtype)
            return {
                name: tensor.to(self.device, dtype if tensor.is_floating_point() else None, copy=True)
                for name, tensor in spec.example.items()
            }
        made = execute("\n".join(self.input_lines(spec)))
        return {tensor.name: made[tensor.variable] for tensor in spec.inputs}

    def call(self, spec: Spec) -> Call:
        """The operator bound to this case's inputs."""
        fn = eager = spec.bind(self.names, spec.alternative if self.alternative else None)
        reference = spec.bind(self.names, spec.reference) if spec.reference else None
        if self.compiled:
            torch._dynamo.reset()
            fn = torch.compile(eager, options={"fallback_random": True})  # the random numbers of eager, to compare with
            reference = reference or eager
        inputs = self.inputs(spec)
        if self.compiled:  # as all are in training; which of them a probe differentiates then compiles nothing anew
            inputs = {name: x.requires_grad_(name in spec.differentiable) for name, x in inputs.items()}
        if self.slices > 1:
            fn, reference = _sliced(fn, spec.batch, self.slices), reference or eager
        return Call(
            fn,
            kwargs=inputs,
            wrt=spec.differentiable,
            linear=spec.linear,
            batch=dict(spec.batch) or None,
            reference=reference,
            cotangent=self.cotangent,  # type: ignore[arg-type]  # one of COTANGENTS
            seed=self.seed,
        )

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Its flags, for a block; what they replace comes back afterwards."""
        before = []
        for statement in self.flags:
            name = statement.split(" = ")[0]
            before.append((name, eval(name, {"torch": torch})))
            exec(statement, {"torch": torch})
        try:
            yield
        finally:
            for name, value in before:
                exec(f"{name} = value", {"torch": torch, "value": value})


def _sliced(fn: Callable[..., Any], batch: Mapping[str, int], slices: int) -> Callable[..., Any]:
    """The operator run on pieces of the batch, whose outputs are put together again."""

    def run(**inputs: Tensor) -> Tensor:
        along = {name: dim for name, dim in batch.items() if name != OUTPUT}
        parts = {name: inputs[name].chunk(slices, dim) for name, dim in along.items()}
        count = min(map(len, parts.values()))
        outputs = [fn(**{**inputs, **{name: part[i] for name, part in parts.items()}}) for i in range(count)]
        return torch.cat(outputs, batch[OUTPUT])

    return run
