"""What a user's function and one example of its inputs say about how it may be called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from lanewise.audit.call import OUTPUT, Call, ForwardError
from lanewise.audit.spec import NORMAL, Input, Spec
from lanewise.errors import InputError


@dataclass(frozen=True)
class _Slot:
    """Where a tensor of this name goes."""

    name: str


@dataclass(frozen=True)
class _Size:
    """Where a number goes that is the size of this tensor along this dimension."""

    name: str
    dim: int


@dataclass(frozen=True)
class Operator:
    """A user's function or module, called with all its tensors by name, parameters and buffers included.

    Attributes:
        fn: the function or module.
        args: positional arguments, with a `_Slot` for each tensor and a `_Size` for each number of a shape.
        kwargs: keyword arguments, likewise.
        parameters: names of a module's parameters.
        buffers: names of its buffers; the module gets copies, so that running statistics stay as they are.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()

    def __call__(self, **named: Tensor) -> Any:
        """What the function gives for these tensors."""
        args, kwargs = _fill(self.args, named), _fill(self.kwargs, named)
        if not isinstance(self.fn, nn.Module):
            return self.fn(*args, **kwargs)
        state = {name: named[name] for name in self.parameters}
        state |= {name: named[name].clone() for name in self.buffers}
        return torch.func.functional_call(self.fn, state, args, kwargs)


def spec_of(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    wrt: Sequence[str | int] | str | int | None = None,
    name: str | None = None,
) -> Spec:
    """Describe a function by one example of its inputs.

    Sizes that are equal in the example vary together; dimensions of size 1 stay. Values are drawn like those of the
    example: of both signs, positive, or between its smallest and largest value.

    Args:
        fn: a function or module.
        args: an example of its positional arguments.
        kwargs: an example of its keyword arguments.
        wrt: names or places of the arguments to differentiate; None for every floating-point tensor and parameter.
        name: how reports call it.

    Raises:
        InputError: there is no tensor to differentiate, or `wrt` names what is not there.
    """
    kwargs = dict(kwargs or {})
    places = _names(fn, args)
    example: dict[str, Tensor] = {}
    named_args = tuple(_slots(value, places[i], example) for i, value in enumerate(args))
    named_kwargs = {key: _slots(value, key, example) for key, value in kwargs.items()}
    parameters, buffers = (), ()
    if isinstance(fn, nn.Module):
        own = {**dict(fn.named_parameters()), **dict(fn.named_buffers())}
        parameters = tuple(n for n, _ in fn.named_parameters())
        buffers = tuple(n for n, _ in fn.named_buffers())
        example |= {n: t.detach() for n, t in own.items()}
    chosen = _differentiated(example, places, buffers, wrt)
    sizes = {f"s{n}": n for n in sorted({n for t in example.values() for n in t.shape if n > 1})}
    operator = Operator(fn, _sized(named_args, example), _sized(named_kwargs, example), parameters, buffers)
    return Spec(
        name=name or getattr(fn, "__qualname__", type(fn).__name__),
        source="",
        inputs=tuple(_input(n, t, chosen, sizes) for n, t in example.items()),
        sizes=sizes,
        function=operator,
        example={n: t.detach() for n, t in example.items()},
        dtypes=_dtypes(example, chosen),
        values=("normal", "tiny", "positive"),
        compiles=True,
    )


def linear_arguments(call: Call, names: Sequence[str]) -> tuple[str, ...]:
    """Those arguments in which the function is affine, as far as its values show: forward passes only.

    f(x + u) - f(x) - f(u) + f(0) must vanish to rounding, for a random signed u and the call's own x; in float64 where
    the function works there, because in 16 bits everything is affine to rounding.
    """
    exact = call.double()
    try:
        with torch.no_grad():
            exact.output()
    except ForwardError:
        exact = call
    if any(x.dtype.itemsize < 4 for x in exact.tensors().values()):
        return ()
    return tuple(name for name in names if _affine(exact, name))


def independent_batch(call: Call) -> dict[str, int] | None:
    """The dimension 0 of inputs and outputs when the function treats its entries one by one; None when it does not.

    Tensors whose first size is that of the first input are cut; f of the first half must be the first half of f.
    """
    tensors = {k: v for k, v in call.kwargs.items() if isinstance(v, Tensor) and v.dim()}
    if not tensors:
        return None
    entries = next(iter(tensors.values())).shape[0]
    cut = {name: 0 for name, t in tensors.items() if t.shape[0] == entries and "." not in name}
    if entries < 2:
        return None
    half = entries // 2
    with torch.no_grad():
        whole = call.output()
        try:
            part = Call(
                call.fn, kwargs={k: v[:half] if k in cut else v for k, v in call.kwargs.items()}, seed=call.seed
            ).output()
        except ForwardError:
            return None
    close = all(
        a.dim() and a.shape[0] == entries and b.shape == a[:half].shape and _close(b, a[:half], a)
        for a, b in zip(whole, part, strict=True)
    )
    return {**cut, OUTPUT: 0} if close and whole else None


def _affine(call: Call, name: str) -> bool:
    x = call.value(name).detach()
    generator = torch.Generator(x.device).manual_seed(2**31 + call.seed)  # not the inputs' own
    u = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
    with torch.no_grad():
        try:
            values = [call.output({name: at}) for at in (x + u, x, u, torch.zeros_like(x))]
        except ForwardError:
            return False
    return all(
        _close(a.double() - b.double(), c.double() - o.double(), torch.stack([a, b, c, o]))
        for a, b, c, o in zip(*values, strict=True)
    )


def _close(a: Tensor, b: Tensor, scale: Tensor) -> bool:
    """Whether two results are equal to some dozens of roundings of the largest value at hand."""
    if not a.numel():
        return True
    limit = 64 * torch.finfo(scale.dtype).eps * scale.abs().max().double()
    return bool((a.double() - b.double()).abs().max() <= limit)  # NaN is never close


def _names(fn: Callable[..., Any], args: Sequence[Any]) -> list[str]:
    """Names of positional arguments: those of the signature where it tells, their places where it does not."""
    try:
        signature = inspect.signature(fn.forward if isinstance(fn, nn.Module) else fn)
    except (TypeError, ValueError):
        return [str(i) for i in range(len(args))]
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = [p.name for p in signature.parameters.values() if p.kind in kinds]
    return [known[i] if i < len(known) else str(i) for i in range(len(args))]


def _slots(tree: Any, name: str, example: dict[str, Tensor]) -> Any:
    """The same nesting with a slot for each tensor, which is noted in `example`."""
    if isinstance(tree, Tensor):
        example[name] = tree
        return _Slot(name)
    if isinstance(tree, Mapping):
        return {key: _slots(value, f"{name}.{key}", example) for key, value in tree.items()}
    if type(tree) in (tuple, list):
        return type(tree)(_slots(value, f"{name}.{i}", example) for i, value in enumerate(tree))
    return tree


def _sized(tree: Any, example: Mapping[str, Tensor]) -> Any:
    """The same nesting where numbers in a tuple (`normalized_shape`) that are sizes of the example follow them."""
    if isinstance(tree, Mapping):
        return {key: _sized(value, example) for key, value in tree.items()}
    if not isinstance(tree, (tuple, list)):
        return tree
    where = {n: (name, dim) for name, t in reversed(list(example.items())) for dim, n in enumerate(t.shape) if n > 1}
    items = [_Size(*where[x]) if type(x) is int and x in where else _sized(x, example) for x in tree]
    return type(tree)(items) if type(tree) in (tuple, list) else tuple(items)


def _fill(tree: Any, named: Mapping[str, Tensor]) -> Any:
    if isinstance(tree, _Slot):
        return named[tree.name]
    if isinstance(tree, _Size):
        return named[tree.name].shape[tree.dim]
    if isinstance(tree, Mapping):
        return {key: _fill(value, named) for key, value in tree.items()}
    if type(tree) in (tuple, list):
        return type(tree)(_fill(value, named) for value in tree)
    return tree


def _differentiated(
    example: Mapping[str, Tensor],
    places: Sequence[str],
    buffers: Sequence[str],
    wrt: Sequence[str | int] | str | int | None,
) -> tuple[str, ...]:
    floating = [n for n, t in example.items() if t.is_floating_point() and n not in buffers]
    if wrt is None:
        if not floating:
            raise InputError("args", got="no floating-point tensor", expected="at least one to differentiate")
        return tuple(floating)
    wanted = [wrt] if isinstance(wrt, (str, int)) else list(wrt)
    names = [places[n] if isinstance(n, int) and n < len(places) else str(n) for n in wanted]
    for name in names:
        if name not in floating:
            raise InputError("wrt", got=repr(name), expected=f"some of {', '.join(floating)}")
    return tuple(names)


def _dtypes(example: Mapping[str, Tensor], chosen: Sequence[str]) -> tuple[str, ...]:
    """The example's own dtype first; the function may refuse the others."""
    own = str(example[chosen[0]].dtype).removeprefix("torch.")
    return (own, *(d for d in ("float32", "bfloat16", "float16", "float64") if d != own))


def _input(name: str, tensor: Tensor, chosen: Sequence[str], sizes: Mapping[str, int]) -> Input:
    dims = " ".join(f"s{n}" if n > 1 else str(n) for n in tensor.shape)
    if tensor.is_floating_point():
        return Input(name, dims, _draw(tensor), "float" if name in chosen else "constant")
    if tensor.dtype == torch.bool:
        share = tensor.float().mean().item() if tensor.numel() else 0.5
        draw = f"torch.rand({{shape}}, {{on}}) < {min(max(share, 0.05), 0.95):.2f}"
    else:
        draw = _draw_whole(tensor, sizes)
    return Input(name, dims, draw, "other")


def _draw(tensor: Tensor) -> str:
    values = tensor.detach().double()
    values = values[values.isfinite()]
    if values.numel() < 2 or (values.min() < 0 < values.max()):
        return NORMAL
    low, high = values.min().item(), values.max().item()
    if low == high:  # ones, zeros: nothing to learn about the range
        return NORMAL if low == 0 else f"(torch.rand({{shape}}, {{on}}) + 0.5) * {low:.6g}"
    return f"torch.rand({{shape}}, {{on}}) * {high - low:.6g} + {low:.6g}"


def _draw_whole(tensor: Tensor, sizes: Mapping[str, int]) -> str:
    """Whole numbers that stay valid: below every size that was above all of the example's."""
    low = int(tensor.min()) if tensor.numel() else 0
    high = int(tensor.max()) if tensor.numel() else 0
    above = [name for name, n in sizes.items() if n > high]
    bound = f"max({low} + 1, min({', '.join((*above, str(2**62)))}))" if above else str(high + 1)
    kind = "" if tensor.dtype == torch.int64 else f".to({tensor.dtype})"
    return f"torch.randint({low}, {bound}, {{shape}}, {{on}}){kind}"
