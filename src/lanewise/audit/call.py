"""A call: an operator bound to inputs, with the gradients that are asked of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lanewise.errors import InputError, LanewiseError

Layout = Literal["contiguous", "strided", "transposed", "channels_last", "expanded", "ones"]
OUTPUT = "output"  # the outputs' key in `Call.batch`


class ForwardError(LanewiseError, RuntimeError):
    """The operator refuses its inputs: nothing is known about its gradients, and nothing is wrong with them."""


@dataclass(frozen=True)
class Call:
    """An operator bound to inputs.

    An argument is named by its place ("0"), its keyword ("weight"), or, when `fn` is a module, as the module's
    parameter ("layers.0.weight"); a tensor in a list by its place in that ("0.2").

    Attributes:
        fn: the operator, or a module. Its outputs are the floating-point tensors of what it returns.
        args: its positional arguments.
        kwargs: its keyword arguments.
        wrt: the arguments whose gradient is asked for; None for every floating-point tensor and every parameter.
        linear: those in which `fn` is known to be affine.
        batch: the dimension along which `fn` acts independently on each entry, by argument, and under "output" for the
            outputs; None when there is none. Arguments that are not named are shared by all entries.
        reference: a callable of the same arguments that works in float64, where `fn` does not.
        cotangent: how the upstream gradient lies in memory: "strided" has gaps, "transposed" its dimensions in reverse
            order, "channels_last" its second dimension innermost; "expanded" repeats along the first dimension, "ones"
            everywhere (what `sum().backward()` gives).
        accumulation: in what sums may be kept, where an operator is known to do worse than float32 for 16-bit values.
        state: tensors that stand in for the module's parameters of these names.
        seed: the state of torch's random generators in each run, so that dropout drops the same.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    wrt: tuple[str, ...] | None = None
    linear: tuple[str, ...] = ()
    batch: Mapping[str, int] | None = None
    reference: Callable[..., Any] | None = None
    cotangent: Layout = "contiguous"
    accumulation: torch.dtype | None = None
    state: Mapping[str, Tensor] = field(default_factory=dict)
    seed: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments whose gradient is asked for."""
        return self.wrt if self.wrt is not None else tuple(self.tensors())

    def tensors(self) -> dict[str, Tensor]:
        """Every floating-point tensor among the arguments and parameters, by name."""
        found = {name: x for name, x in self._places().items() if x.is_floating_point()}
        if isinstance(self.fn, nn.Module):
            parameters = {**dict(self.fn.named_parameters()), **self.state}
            found.update((name, p) for name, p in parameters.items() if p.is_floating_point())
        return found

    def value(self, name: str) -> Tensor:
        """The tensor of this name.

        Raises:
            InputError: there is no floating-point tensor of this name.
        """
        tensors = self.tensors()
        if name not in tensors:
            raise InputError("argument", got=repr(name), expected=f"one of {', '.join(tensors) or '(none)'}")
        return tensors[name]

    def output(self, values: Mapping[str, Tensor] | None = None) -> tuple[Tensor, ...]:
        """The floating-point outputs, with some arguments replaced; differentiable in `values`.

        Raises:
            ForwardError: the operator raised something (other than that memory ran out).
        """
        values = values or {}
        args, kwargs = _replaced(self.args, values), _replaced(self.kwargs, values)
        try:
            with _random_state(self.seed, [x for _, x in _tensors((args, kwargs))]):
                if not isinstance(self.fn, nn.Module):
                    return _floating(self.fn(*args, **kwargs))
                # Buffers are copied, so that running statistics stay as they are.
                parameters: dict[str, Tensor] = {**dict(self.fn.named_parameters()), **self.state}
                state = {name: values.get(name, p) for name, p in parameters.items()}
                buffers = {name: b.clone() for name, b in self.fn.named_buffers()}
                return _floating(torch.func.functional_call(self.fn, {**state, **buffers}, args, kwargs))
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as error:
            raise ForwardError(f"the forward raised {type(error).__name__}: {error}") from error

    def gradient(
        self,
        cotangents: Sequence[Tensor],
        values: Mapping[str, Tensor] | None = None,
        names: Sequence[str] | None = None,
    ) -> dict[str, Tensor]:
        """One forward and one backward pass: the gradients by name, without those that no output depends on.

        Args:
            cotangents: the upstream gradients, one an output.
            values: arguments to replace.
            names: the arguments whose gradient is wanted; those of the call when None.
        """
        leaves, outputs = self.graph(values, names)
        return pull_back(outputs, leaves, cotangents)

    def graph(
        self, values: Mapping[str, Tensor] | None = None, names: Sequence[str] | None = None
    ) -> tuple[dict[str, Tensor], tuple[Tensor, ...]]:
        """One forward pass: the leaves by name (sharing the arguments' memory) and the outputs that depend on them."""
        values = values or {}
        names = self.names if names is None else names
        leaves = {n: (values[n] if n in values else self.value(n)).detach().requires_grad_() for n in names}
        with torch.enable_grad():
            return leaves, self.output({**values, **leaves})

    def cotangents(self, outputs: Sequence[Tensor], generator: torch.Generator) -> tuple[Tensor, ...]:
        """Random signed upstream gradients of these outputs, in the call's layout.

        They have five bits, so that a multiple by a number of three is exact in every dtype.
        """
        ones = self.cotangent == "ones"
        values = (torch.ones_like(x) if ones else _few_bits(normal(x, generator)) for x in outputs)
        return tuple(lay_out(v, self.cotangent) for v in values)

    def double(self) -> Call:
        """The same call with every floating-point tensor in float64, of the reference where there is one."""
        fn = self.reference or (copy.deepcopy(self.fn).double() if isinstance(self.fn, nn.Module) else self.fn)
        wide = self.replaced({name: x.detach().double() for name, x in self.tensors().items()})
        return replace(wide, fn=fn, reference=None)

    def replaced(self, values: Mapping[str, Tensor]) -> Call:
        """The same call with other tensors under these names."""
        parameters = dict(self.fn.named_parameters()) if isinstance(self.fn, nn.Module) else {}
        state = {**self.state, **{name: values[name] for name in parameters if name in values}}
        args, kwargs = _replaced(self.args, values), _replaced(self.kwargs, values)
        return replace(self, args=args, kwargs=kwargs, state=state)

    def entries(self, start: int, stop: int) -> Call:
        """The same call on the entries [start, stop) of its batch.

        Raises:
            InputError: the call has no batch.
        """
        if self.batch is None:
            raise InputError("batch", got="None", expected="the batch dimension of each argument")
        dims = self.batch
        tensors = {**self._places(), **self.state}
        return self.replaced(
            {name: x.narrow(dims[name], start, stop - start) for name, x in tensors.items() if name in dims}
        )

    def _places(self) -> dict[str, Tensor]:
        return {**dict(_tensors(self.args)), **dict(_tensors(self.kwargs))}


def pull_back(
    outputs: Sequence[Tensor], leaves: Mapping[str, Tensor], cotangents: Sequence[Tensor]
) -> dict[str, Tensor]:
    """The gradients of the leaves, which keeps the graph; without those that no output depends on."""
    pairs = [(y, v) for y, v in zip(outputs, cotangents, strict=True) if y.requires_grad]
    if not pairs:
        return {}
    ys, vs = zip(*pairs, strict=True)
    grads = torch.autograd.grad(ys, tuple(leaves.values()), vs, retain_graph=True, allow_unused=True)
    return {name: g.to_dense() if g.is_sparse else g for name, g in zip(leaves, grads, strict=True) if g is not None}


def normal(like: Tensor, generator: torch.Generator) -> Tensor:
    """Normal numbers of the shape, dtype and device of `like`, drawn on the generator's device."""
    return torch.randn(like.shape, generator=generator, device=generator.device).to(like)


def lay_out(x: Tensor, layout: Layout) -> Tensor:
    """Values of `x` (of its first entry for "expanded", of its first element for "ones") in memory of this layout."""
    if layout == "ones":
        return x[(slice(0, 1),) * x.dim()].clone().expand(x.shape)
    if layout == "expanded":
        return (x[:1] if x.dim() else x).contiguous().expand(x.shape)
    if layout == "transposed":
        order = list(reversed(range(x.dim())))
        return x.permute(order).contiguous().permute(order)
    if layout == "channels_last" and x.dim() > 2:
        return x.movedim(1, -1).contiguous().movedim(-1, 1)
    if layout == "strided":
        return torch.stack([x, torch.full_like(x, torch.nan)], -1)[..., 0]
    return x.contiguous()


def _few_bits(v: Tensor) -> Tensor:
    mantissa, exponent = torch.frexp(v.float())
    return torch.ldexp((mantissa * 32).round() / 32, exponent).to(v)


def _tensors(tree: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors in nested tuples, lists and mappings, with their dotted places."""
    if isinstance(tree, Tensor):
        yield prefix, tree
        return
    items = tree.items() if isinstance(tree, Mapping) else enumerate(tree) if isinstance(tree, tuple | list) else ()
    for key, item in items:
        yield from _tensors(item, f"{prefix}.{key}" if prefix else str(key))


def _floating(tree: Any) -> tuple[Tensor, ...]:
    return tuple(x for _, x in _tensors(tree) if x.is_floating_point())


def _replaced(tree: Any, values: Mapping[str, Tensor], prefix: str = "") -> Any:
    """The same nesting with the tensors of these names replaced."""
    if isinstance(tree, Tensor):
        return values.get(prefix, tree)
    at = f"{prefix}." if prefix else ""
    if isinstance(tree, Mapping):
        return {key: _replaced(item, values, f"{at}{key}") for key, item in tree.items()}
    if isinstance(tree, tuple | list):
        items = [_replaced(item, values, f"{at}{i}") for i, item in enumerate(tree)]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return tree


@contextmanager
def _random_state(seed: int, tensors: Sequence[Tensor]) -> Iterator[None]:
    devices = {x.device for x in tensors if x.device.type == "cuda"}
    with torch.random.fork_rng(devices=[d.index or 0 for d in devices]):
        torch.default_generator.manual_seed(seed)
        for device in devices:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
