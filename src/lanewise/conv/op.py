"""The four operators that convolutions, transposed ones and all their gradients are made of.

A convolution is linear in x and in w, and so are its gradients: the derivative of each of the three is made of the
other two. So there is no end to how often they can be differentiated, and a transposed convolution is the gradient of x
and nothing else.

Every operator takes the geometry as torch's lists, one number a spatial dimension (2 or 3), and at the end `how`:
stride, padding, dilation, groups, precision, window_bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lanewise._operator import operator
from lanewise.conv import backends, chooser, sliced
from lanewise.conv.backends import Launch
from lanewise.conv.precision import resolve
from lanewise.conv.problem import Direction, Problem, Triple
from lanewise.conv.sliced import is_channels_last, memory_format
from lanewise.target import detect


def _forward(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    spatial_out: Sequence[int],
    channels_last: bool,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    precision: str | None,
    window_bytes: int | None,
) -> Tensor:
    how = (stride, padding, dilation, groups, precision, window_bytes)
    return _run("forward", x, w, bias, spatial_out, channels_last, *how)


def _input_grad(
    dy: Tensor,
    w: Tensor,
    bias: Tensor | None,
    spatial_in: Sequence[int],
    channels_last: bool,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    precision: str | None,
    window_bytes: int | None,
) -> Tensor:
    how = (stride, padding, dilation, groups, precision, window_bytes)
    return _run("input_grad", dy, w, bias, spatial_in, channels_last, *how)


def _weight_grad(
    x: Tensor,
    dy: Tensor,
    kernel: Sequence[int],
    channels_last: bool,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    precision: str | None,
    window_bytes: int | None,
) -> Tensor:
    how = (stride, padding, dilation, groups, precision, window_bytes)
    return _run("weight_grad", x, dy, None, kernel, channels_last, *how)


def _bias_grad(dy: Tensor, window_bytes: int | None) -> Tensor:
    return backends.bias_grad(dy, _window(dy.device, window_bytes))


def _run(
    direction: Direction,
    first: Tensor,
    second: Tensor,
    bias: Tensor | None,
    extents: Sequence[int],
    channels_last: bool,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    precision: str | None,
    window_bytes: int | None,
) -> Tensor:
    """`extents` are those of the result: of y, of x, or of the weight."""
    call = _call(
        direction,
        first.shape,
        first.stride(),
        second.shape,
        second.stride(),
        tuple(extents),
        channels_last,
        tuple(stride),
        tuple(padding),
        tuple(dilation),
        groups,
        first.dtype,
        first.device,
        window_bytes,
    )
    arithmetic = resolve(precision, "cuda" if first.is_cuda else first.device.type)
    if call.whole:
        asked = (arithmetic, *chooser.wishes())
        launch = call.launches.get(asked)
        if launch is None:
            backend = chooser.choose(call.problem, first.device, arithmetic)
            launch = call.launches[asked] = backends.prepared(backend, call.problem, arithmetic)
        part = launch(first, second, bias)
        if part.dtype != first.dtype:
            part = part.to(first.dtype)
        return part.contiguous(memory_format=call.format)
    return sliced.run(
        call.problem,
        first,
        second,
        bias,
        channels_last=channels_last,
        window_bytes=call.window_bytes,
        launch=functools.partial(chooser.convolve, arithmetic),
    )


class Call(NamedTuple):
    """What a call is, which the shapes and strides of its tensors say: worked out once, since a small convolution takes
    no longer than working it out.

    Attributes:
        problem: all of it.
        whole: whether one launch is all of it, within the window, and both operands are packed.
        format: the result's layout.
        window_bytes: the largest tensor of a launch.
        launches: where one is all, whoever runs it, by the arithmetic and what else decides that.
    """

    problem: Problem
    whole: bool
    format: torch.memory_format
    window_bytes: int
    launches: dict[tuple[object, ...], Launch]


@functools.lru_cache(maxsize=4096)
def _call(
    direction: Direction,
    first: tuple[int, ...],
    first_strides: tuple[int, ...],
    second: tuple[int, ...],
    second_strides: tuple[int, ...],
    extents: tuple[int, ...],
    channels_last: bool,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    dtype: torch.dtype,
    device: torch.device,
    window_bytes: int | None,
) -> Call:
    a, b = (torch.empty_strided(*like, device="meta") for like in ((first, first_strides), (second, second_strides)))
    sizes = {
        "forward": (first[1], second[0], first[2:], extents, second[2:]),
        "input_grad": (second[1] * groups, first[1], extents, first[2:], second[2:]),
        "weight_grad": (first[1], second[1], first[2:], second[2:], extents),
    }[direction]
    layout = is_channels_last(a) or is_channels_last(b)
    problem = _problem(direction, first[0], *sizes, stride, padding, dilation, groups, dtype, layout)
    window = _window(device, window_bytes)
    packed = all(x.is_contiguous(memory_format=memory_format(problem.dims, layout)) for x in (a, b))
    whole = packed and sliced.whole(problem, window) is not None
    return Call(problem, whole, memory_format(problem.dims, channels_last), window, {})


def _problem(
    direction: Direction,
    n: int,
    c: int,
    k: int,
    spatial_in: tuple[int, ...],
    spatial_out: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    dtype: torch.dtype,
    channels_last: bool,
) -> Problem:
    def three(values: tuple[int, ...], missing: int) -> Triple:
        depth, height, width = (missing,) * (3 - len(values)) + values
        return depth, height, width

    return Problem(
        n=n,
        c=c,
        k=k,
        spatial_in=three(spatial_in, 1),
        spatial_out=three(spatial_out, 1),
        kernel=three(kernel, 1),
        stride=three(stride, 1),
        padding=three(padding, 0),
        dilation=three(dilation, 1),
        groups=groups,
        dtype=dtype,
        channels_last=channels_last,
        direction=direction,
        dims=len(kernel),
    )


@functools.cache
def _default_window(device: torch.device) -> int:
    return detect(device).window_bytes


def _window(device: torch.device, window_bytes: int | None) -> int:
    return _default_window(device) if window_bytes is None else window_bytes


def _empty(like: Tensor, shape: Sequence[int], channels_last: bool) -> Tensor:
    format = memory_format(len(shape) - 2, channels_last)
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=format)


def _fake_forward(
    x: Tensor, w: Tensor, bias: Tensor | None, spatial_out: Sequence[int], channels_last: bool, *how: Any
) -> Tensor:
    return _empty(x, (x.shape[0], w.shape[0], *spatial_out), channels_last)


def _fake_input_grad(
    dy: Tensor,
    w: Tensor,
    bias: Tensor | None,
    spatial_in: Sequence[int],
    channels_last: bool,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    *how: Any,
) -> Tensor:
    return _empty(dy, (dy.shape[0], w.shape[1] * groups, *spatial_in), channels_last)


def _fake_weight_grad(
    x: Tensor,
    dy: Tensor,
    kernel: Sequence[int],
    channels_last: bool,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    *how: Any,
) -> Tensor:
    return _empty(x, (dy.shape[1], x.shape[1] // groups, *kernel), channels_last)


def _fake_bias_grad(dy: Tensor, window_bytes: int | None) -> Tensor:
    return dy.new_empty(dy.shape[1])


def _save(ctx: Any, inputs: tuple, output: Tensor) -> None:
    """Keeps both operands, and what all operators have in common."""
    ctx.save_for_backward(*inputs[:2])
    ctx.how = inputs[-len(HOW) :]


def _like(tensor: Tensor) -> tuple[list[int], bool]:
    """What an operator has to be told so that its result is laid out like this tensor [n, c, ...]."""
    return list(tensor.shape[2:]), is_channels_last(tensor)


def _rules(ops: SimpleNamespace) -> tuple[Callable[..., tuple], ...]:
    """The gradients of the four operators, made of `ops`: the registered ones, or those of eager code."""

    def forward(ctx: Any, v: Tensor | None) -> tuple:
        (x, w), how, needs = ctx.saved_tensors, ctx.how, ctx.needs_input_grad
        if v is None:
            return (None,) * len(needs)
        dx = ops.input_grad(v, w, None, *_like(x), *how) if needs[0] else None
        dw = ops.weight_grad(x, v, *_like(w), *how) if needs[1] else None
        db = ops.bias_grad(v, how[-1]) if needs[2] else None
        return (dx, dw, db, *(None,) * (len(needs) - 3))

    def input_grad(ctx: Any, v: Tensor | None) -> tuple:
        (dy, w), how, needs = ctx.saved_tensors, ctx.how, ctx.needs_input_grad
        if v is None:
            return (None,) * len(needs)
        ddy = ops.forward(v, w, None, *_like(dy), *how) if needs[0] else None
        dw = ops.weight_grad(v, dy, *_like(w), *how) if needs[1] else None
        db = ops.bias_grad(v, how[-1]) if needs[2] else None
        return (ddy, dw, db, *(None,) * (len(needs) - 3))

    def weight_grad(ctx: Any, v: Tensor | None) -> tuple:
        (x, dy), how, needs = ctx.saved_tensors, ctx.how, ctx.needs_input_grad
        if v is None:
            return (None,) * len(needs)
        dx = ops.input_grad(dy, v, None, *_like(x), *how) if needs[0] else None
        ddy = ops.forward(x, v, None, *_like(dy), *how) if needs[1] else None
        return (dx, ddy, *(None,) * (len(needs) - 2))

    def bias_grad(ctx: Any, v: Tensor | None) -> tuple:
        if v is None:
            return None, None
        return v.reshape(-1, *[1] * (len(ctx.shape) - 2)).expand(ctx.shape), None

    return forward, input_grad, weight_grad, bias_grad


def _save_shape(ctx: Any, inputs: tuple, output: Tensor) -> None:
    ctx.shape = inputs[0].shape


HOW = ("stride", "padding", "dilation", "groups", "precision", "window_bytes")  # how all operators end
NAMES = ("forward", "input_grad", "weight_grad", "bias_grad")


def _operators() -> list[Callable[..., Tensor]]:
    """Registers the four, and gives those that eager code calls."""
    bodies = (_forward, _input_grad, _weight_grad, _bias_grad)
    # The same, a frame less deep.
    direct = (functools.partial(_run, "forward"), functools.partial(_run, "input_grad"), _weight_grad, _bias_grad)
    fakes = (_fake_forward, _fake_input_grad, _fake_weight_grad, _fake_bias_grad)
    registered, eager = SimpleNamespace(), SimpleNamespace()
    rules = zip(_rules(registered), _rules(eager), strict=True)  # they look the operators up when they run
    counts = (3, 3, 2, 1)  # of tensors: two operands and a bias
    for name, body, run, fake, (rule, eager_rule), tensors in zip(
        NAMES, bodies, direct, fakes, rules, counts, strict=True
    ):
        save = _save_shape if name == "bias_grad" else _save
        custom: Any = torch.library.custom_op(f"lanewise::convolution_{name}", body, mutates_args=())
        custom.register_fake(fake)
        custom.register_autograd(rule, setup_context=save)
        setattr(registered, name, custom)
        setattr(eager, name, operator(custom, run, save, eager_rule, differentiable=True, tensors=tensors))
    return [getattr(eager, name) for name in NAMES]


forward, input_grad, weight_grad, bias_grad = _operators()
