"""torch's differentiable operators that people train with."""

from __future__ import annotations

from lanewise.audit.call import OUTPUT
from lanewise.audit.spec import Input, Spec

_ROWS = {"x": 0, OUTPUT: 0}
_CLASSES = "torch.randint(0, C, {shape}, {on})"

SPECS: tuple[Spec, ...] = (
    Spec(
        "linear",
        "F.linear(x, weight, bias)",
        (Input("x", "B C"), Input("weight", "K C"), Input("bias", "K")),
        {"B": 24, "C": 20, "K": 12},
        linear=("x", "weight", "bias"),
        batch=_ROWS,
    ),
    Spec(
        "bmm",
        "torch.bmm(a, b)",
        (Input("a", "B M K"), Input("b", "B K N")),
        {"B": 3, "M": 12, "K": 20, "N": 8},
        linear=("a", "b"),
        batch={"a": 0, "b": 0, OUTPUT: 0},
    ),
    Spec(
        "conv2d",
        "F.conv2d(x, weight, bias, stride=stride, padding=padding)",
        (Input("x", "B C H W"), Input("weight", "K C 3 3"), Input("bias", "K")),
        {"B": 3, "C": 6, "K": 8, "H": 11, "W": 10},
        options={"stride": (1, 2), "padding": (1, 0)},
        linear=("x", "weight", "bias"),
        batch=_ROWS,
    ),
    Spec(
        "conv2d_pointwise",
        "F.conv2d(x, weight)",
        (Input("x", "B C H W"), Input("weight", "K C 1 1")),
        {"B": 3, "C": 6, "K": 8, "H": 11, "W": 10},
        linear=("x", "weight"),
        batch=_ROWS,
    ),
    Spec(
        "layer_norm",
        "F.layer_norm(x, (C,), weight, bias)",
        (Input("x", "B C"), Input("weight", "C"), Input("bias", "C")),
        {"B": 24, "C": 20},
        linear=("weight", "bias"),
        batch=_ROWS,
    ),
    Spec(
        "batch_norm",
        "F.batch_norm(x, None, None, weight, bias, training=True)",
        (Input("x", "B C H W"), Input("weight", "C"), Input("bias", "C")),
        {"B": 4, "C": 6, "H": 7, "W": 5},
        linear=("weight", "bias"),
    ),
    Spec("softmax", "F.softmax(x, -1)", (Input("x", "B C"),), {"B": 24, "C": 20}, batch=_ROWS),
    Spec(
        "cross_entropy",
        "F.cross_entropy(x, target, reduction=reduction)",
        (Input("x", "B C"), Input("target", "B", _CLASSES, "other")),
        {"B": 24, "C": 20},
        options={"reduction": ("mean", "sum", "none")},
    ),
    Spec(
        "embedding",
        "F.embedding(index, weight)",
        (Input("index", "B T", "torch.randint(0, V, {shape}, {on})", "other"), Input("weight", "V C")),
        {"B": 4, "T": 9, "V": 30, "C": 12},
        linear=("weight",),
        batch={"index": 0, OUTPUT: 0},
    ),
    Spec(
        "index_add",
        "x.index_add(0, index, y)",
        (Input("x", "N C"), Input("index", "M", "torch.randint(0, N, {shape}, {on})", "other"), Input("y", "M C")),
        {"N": 14, "M": 24, "C": 12},
        linear=("x", "y"),
    ),
    Spec("cumsum", "torch.cumsum(x, dim)", (Input("x", "B C"),), {"B": 24, "C": 20}, {"dim": (-1, 0)}, linear=("x",)),
    Spec(
        "scaled_dot_product_attention",
        "F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)",
        (Input("q", "B A T C"), Input("k", "B A T C"), Input("v", "B A T C")),
        {"B": 2, "A": 3, "T": 14, "C": 8},
        options={"is_causal": (False, True)},
        linear=("v",),
        batch={"q": 0, "k": 0, "v": 0, OUTPUT: 0},
    ),
    Spec(
        "interpolate",
        "F.interpolate(x, scale_factor=2, mode=mode)",
        (Input("x", "B C H W"),),
        {"B": 2, "C": 4, "H": 7, "W": 9},
        options={"mode": ("bilinear", "nearest", "bicubic")},
        linear=("x",),
        batch=_ROWS,
    ),
)
