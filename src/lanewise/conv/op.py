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
from typing import Any

import torch
from torch import Tensor

from lanewise._operator import operator
from lanewise.conv import backends, chooser, sliced
from lanewise.conv.calls import call_of, window_of
from lanewise.conv.precision import resolve
from lanewise.conv.problem import Direction
from lanewise.conv.sliced import is_channels_last, memory_format


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
    return backends.bias_grad(dy, window_of(dy.device, window_bytes))


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
    call = call_of(
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
