"""What a layer was given in a step of the run, and the call that a probe makes of it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from lanewise.audit.call import OUTPUT, Call, Layout, lay_out
from lanewise.audit.watching.layers import Kind
from lanewise.audit.watching.parameters import local
from lanewise.audit.watching.references import Site

WORK = {"cuda": 2**28, "cpu": 2**25}  # multiplications in float64 that one forward pass of a truth should take
LEAST_PARTS = 16  # times as many it may take where it cannot be cut smaller


class TooLargeError(RuntimeError):
    """A truth beside this layer would take too long."""


@dataclass
class Capture:
    """The arguments of one call, shared with the run and detached.

    Attributes:
        names: of each leaf of the arguments that is a tensor; one name for a tensor that is given several times.
        leaves: the flattened arguments.
        shape: how they nest.
        learned: names of the tensors that required a gradient.
        autocast: device, dtype and whether it was on.
        layout: of the gradient that arrived, once it has.
    """

    names: list[str | None]
    leaves: list[Any]
    shape: Any
    learned: frozenset[str]
    autocast: tuple[str, torch.dtype, bool]
    layout: Layout | None = None
    _versions: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Capture:
        """Keep the arguments of a call of `forward`."""
        leaves, shape = tree_flatten((args, dict(kwargs)))
        names: list[str | None] = []
        seen: dict[int, str] = {}
        called = _argument_names(forward, args, kwargs)
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                names.append(seen.setdefault(id(leaf), called.get(id(leaf), f"argument{i}")))
            else:
                names.append(None)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        kind = tensors[0].device.type if tensors else "cpu"
        pairs = zip(names, leaves, strict=True)
        return cls(
            names,
            [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves],
            shape,
            frozenset(n for n, leaf in pairs if n is not None and leaf.requires_grad),
            (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)),
            _versions=[leaf._version for leaf in tensors],
        )

    def await_gradient(self, output: Any) -> None:
        """Note how the gradient of the first differentiable output lies in memory, when it comes."""
        found = [y for y in tree_flatten(output)[0] if isinstance(y, Tensor) and y.requires_grad]
        if found and self.layout is None:
            handle: Any = None

            def note(gradient: Tensor) -> None:
                self.layout = layout_of(gradient)
                handle.remove()

            handle = found[0].register_hook(note)

    @property
    def intact(self) -> bool:
        """Whether nobody has written into the arguments since."""
        return self._versions == [leaf._version for leaf in self.leaves if isinstance(leaf, Tensor)]

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name."""
        return {name: leaf for name, leaf in zip(self.names, self.leaves, strict=True) if name is not None}

    def arguments(self, tensors: Mapping[str, Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with other tensors in their places."""
        pairs = zip(self.names, self.leaves, strict=True)
        return tree_unflatten([leaf if name is None else tensors[name] for name, leaf in pairs], self.shape)

    @contextlib.contextmanager
    def as_it_was(self) -> Iterator[None]:
        """Inside the block autocast is what it was in the run."""
        kind, dtype, enabled = self.autocast
        short: AbstractContextManager[Any] = torch.autocast(kind, dtype, enabled=enabled, cache_enabled=False)
        with short if enabled else contextlib.nullcontext():
            yield


def module_call(module: nn.Module, kind: Kind, capture: Capture, argument: str, seed: int) -> Call:
    """A layer as it ran, with its truth on a part of it; differentiated in one argument.

    Raises:
        TooLargeError: even the smallest part would take too long.
    """
    bare = _Bare(module)
    parameters = {name: local(p) for name, p in module.named_parameters()}
    inputs = capture.tensors
    named = {**inputs, **parameters}

    def run(**tensors: Tensor) -> Any:
        args, kwargs = capture.arguments(tensors)
        wide = tensors[argument].dtype == torch.float64
        buffers = {n: b.double() if wide and b.is_floating_point() else b.clone() for n, b in module.named_buffers()}
        state = {**{name: tensors[name] for name in parameters}, **buffers}
        return torch.func.functional_call(bare, {f"layer.{n}": t for n, t in state.items()}, args, kwargs)

    if kind.reference is None or len(inputs) != 1:
        return _call(run, named, argument, capture, seed, work=16 * sum(x.numel() for x in named.values()))
    ((given, x),) = inputs.items()
    linear = tuple(given if name == "input" else name for name in kind.linear)
    along = kind.batch(module, x)
    along = along and {given if name == "input" else name: dim for name, dim in along.items()}
    reference = _truth(kind.reference, module, given)
    work = x.numel() * kind.work(module)
    return _call(run, named, argument, capture, seed, reference=reference, linear=linear, along=along, work=work)


def function_call(site: Site, capture: Capture, argument: str, seed: int) -> Call:
    """A function as it ran, beside its reference; differentiated in one argument.

    Raises:
        TooLargeError: even the smallest part would take too long.
    """

    def bound(called: Callable[..., Any]) -> Callable[..., Any]:
        def run(**tensors: Tensor) -> Any:
            args, kwargs = capture.arguments(tensors)
            return called(*args, **kwargs)

        return run

    named = capture.tensors
    along = site.batch if site.batch is not None and set(site.batch) - {OUTPUT} == set(named) else None
    run, reference = bound(getattr(site.owner, site.attribute)), bound(site.reference)
    return _call(run, named, argument, capture, seed, reference=reference, along=along, work=site.work(named))


def _call(
    run: Callable[..., Any],
    named: Mapping[str, Tensor],
    argument: str,
    capture: Capture,
    seed: int,
    *,
    work: int,
    reference: Callable[..., Any] | None = None,
    linear: tuple[str, ...] = (),
    along: Mapping[str, int] | None = None,
) -> Call:
    """`run` on all of the tensors `named`, its outputs and its truth cut down to a part of what lies along `along`."""
    reference = reference and _untuned(reference)
    run = _as_a_whole(run, argument, capture.learned | set(named) - set(capture.tensors))
    layout = capture.layout or "contiguous"
    most = WORK.get(named[argument].device.type, WORK["cpu"])
    if along is None or layout in ("expanded", "ones"):
        if work > LEAST_PARTS * most:
            raise TooLargeError(f"it takes {work:.2g} multiplications in float64, and cannot be cut")
        return Call(run, kwargs=named, wrt=(argument,), linear=linear, reference=reference, cotangent=layout, seed=seed)
    first = next(name for name in along if name != OUTPUT)
    entries = named[first].shape[along[first]]
    each = max(1, work // max(1, entries))
    if each > LEAST_PARTS * most:
        raise TooLargeError(f"one entry takes {each:.2g} multiplications in float64")
    length = max(1, min(entries, most // each))
    start = int(torch.randint(entries - length + 1, (), generator=torch.Generator().manual_seed(seed)))

    def in_part(**tensors: Tensor) -> Tensor:
        full = {
            name: torch.slice_scatter(named[name], part, along[name], start, start + length) if name in along else part
            for name, part in tensors.items()
        }
        return _relaid(run(**full), layout).narrow(along[OUTPUT], start, length)

    parts = {name: t.narrow(along[name], start, length) if name in along else t for name, t in named.items()}
    return Call(in_part, kwargs=parts, wrt=(argument,), linear=linear, reference=reference, seed=seed)


def layout_of(gradient: Tensor) -> Layout:
    """Which of the audit's layouts a gradient has."""
    sizes = [(n, s) for n, s in zip(gradient.shape, gradient.stride(), strict=True) if n > 1]
    if sizes and all(stride == 0 for _, stride in sizes):
        return "ones"
    if any(stride == 0 for _, stride in sizes):
        return "expanded" if gradient.shape[0] > 1 and gradient.stride(0) == 0 else "strided"
    if gradient.is_contiguous():
        return "contiguous"
    if gradient.dim() in (3, 4, 5) and gradient.movedim(1, -1).is_contiguous():
        return "channels_last"
    if gradient.permute(*reversed(range(gradient.dim()))).is_contiguous():
        return "transposed"
    return "strided"


class _Bare(nn.Module):
    """A layer without its hooks: neither the watch's nor the user's are to run in a probe."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.layer.forward(*args, **kwargs)


class _Tied(torch.autograd.Function):
    """A tensor whose gradient is asked for whenever that of another one is, and goes nowhere."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, other: Tensor) -> Tensor:
        ctx.save_for_backward(other)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, torch.zeros_like(ctx.saved_tensors[0])


class _Relaid(torch.autograd.Function):
    """The same values, whose gradient is handed on in another layout."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layout: Layout) -> Tensor:
        ctx.layout = layout
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return lay_out(gradient, ctx.layout), None


def _untuned(reference: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, for whose sizes cuDNN tries out no algorithms: they are not seen again soon."""

    def run(**tensors: Tensor) -> Any:
        tuned = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = False
        try:
            return reference(**tensors)
        finally:
            torch.backends.cudnn.benchmark = tuned

    return run


def _as_a_whole(run: Callable[..., Any], argument: str, learned: Set[str]) -> Callable[..., Any]:
    """The same function, whose backward pass computes the gradients of all `learned` tensors, as it does in the run.

    Kernels may be others where less is asked for (torch's group norm on a CPU dies when only the bias is).
    """

    def together(**tensors: Tensor) -> Any:
        one = tensors[argument]
        if not one.requires_grad or one.dtype == torch.float64:
            return run(**tensors)
        tied = {name: _Tied.apply(x, one) for name, x in tensors.items() if name in learned and name != argument}
        return run(**{**tensors, **tied})

    return together


def _relaid(x: Tensor, layout: Layout) -> Tensor:
    return x if layout == "contiguous" else _Relaid.apply(x, layout)


def _truth(reference: Callable[..., Tensor], module: nn.Module, given: str) -> Callable[..., Tensor]:
    def run(**tensors: Tensor) -> Tensor:
        rest = {name: tensor for name, tensor in tensors.items() if name != given}
        return reference(module, tensors[given], **rest)

    return run


def _argument_names(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[int, str]:
    """Names of the tensors that are arguments themselves, by their identity; the first that a tensor is given as."""
    try:
        bound = inspect.signature(forward).bind(*args, **kwargs).arguments.items()
    except (TypeError, ValueError):
        bound = [(f"argument{i}", value) for i, value in enumerate(args)] + list(kwargs.items())
    found: dict[int, str] = {}
    for name, value in bound:
        if isinstance(value, Tensor):
            found.setdefault(id(value), name)
        elif isinstance(value, tuple):  # *args
            for i, item in enumerate(value):
                if isinstance(item, Tensor):
                    found.setdefault(id(item), f"{name}{i}")
    return found
