"""Attention in every backend, and recurrent cells and layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lanewise.audit.catalogue.table import MASK, MODERATE, op
from lanewise.audit.spec import Spec

_QKV, _HEADS = "q: B A T D; k: B A S D; v: B A S D", "B=2 A=3 T=14 S=14 D=8"
_BACKENDS = ("MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION")
_SETUP = "from torch.nn.attention import SDPBackend, sdpa_kernel"
_WORK = "B*A*T*S*D"


def _attention(backend: str) -> Iterator[Spec]:
    """Those of one backend, beside the formula in plain torch."""

    def within(call: str) -> str:
        return f"with sdpa_kernel(SDPBackend.{backend}):\n    return F.scaled_dot_product_attention({call})"

    name = f"attention_{backend.lower().removesuffix('_attention')}"
    common: dict[str, Any] = {"linear": "v", "setup": _SETUP, "work": _WORK, "values": (*MODERATE, "logits")}
    yield op(name, within("q, k, v"), _QKV, _HEADS, batch="q k v", **common,
             reference="(q @ k.mT / math.sqrt(D)).softmax(-1) @ v")  # fmt: skip
    yield op(f"{name}_causal", within("q, k, v, is_causal=True"), "q: B A T D; k: B A T D; v: B A T D",
             "B=2 A=3 T=14 D=8", batch="q k v", **{**common, "work": "B*A*T*T*D"},
             reference="scores = q @ k.mT / math.sqrt(D)\n"
             "hidden = torch.ones(T, T, dtype=torch.bool, device=q.device).triu(1)\n"
             "return scores.masked_fill(hidden, -math.inf).softmax(-1) @ v")  # fmt: skip
    yield op(f"{name}_masked", within("q, k, v, mask"), f"{_QKV}; mask: B 1 T S", _HEADS, batch="q k v mask",
             constant={"mask": "torch.randn({shape}, {on})"}, **common,
             reference="(q @ k.mT / math.sqrt(D) + mask).softmax(-1) @ v")  # fmt: skip
    yield op(f"{name}_boolean", within("q, k, v, mask"), f"{_QKV}; mask: B 1 T S", _HEADS, batch="q k v mask",
             other={"mask": f"({MASK}) | (torch.arange({{shape}}[-1], {{where}}) == 0)"}, **common,
             reference="(q @ k.mT / math.sqrt(D)).masked_fill(~mask, -math.inf).softmax(-1) @ v")  # fmt: skip
    yield op(f"{name}_grouped", within("q, k, v, enable_gqa=True"), "q: B 2*A T D; k: B A S D; v: B A S D", _HEADS,
             batch="q k v", **common,
             reference="k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))\n"
             "return (q @ k.mT / math.sqrt(D)).softmax(-1) @ v")  # fmt: skip


def _cell(name: str, gates: int, call: str, *states: str) -> Spec:
    """A recurrent cell: x [B, C], states [B, H]."""
    inputs = ["x: B C", *(f"{state}: B H" for state in states)]
    weights = f"w: {gates}*H C; u: {gates}*H H; b: {gates}*H; d: {gates}*H"
    return op(name, call, f"{'; '.join(inputs)}; {weights}", "B=5 C=6 H=7", batch=" ".join(("x", *states)),
              values=MODERATE)  # fmt: skip


def _layer(name: str, gates: int, call: str, *states: str) -> Spec:
    """A recurrent layer: x [B, T, C], states [1, B, H]."""
    inputs = ["x: B T C", *(f"{state}: 1 B H" for state in states)]
    weights = f"w: {gates}*H C; u: {gates}*H H; b: {gates}*H; d: {gates}*H"
    return op(name, call, f"{'; '.join(inputs)}; {weights}", "B=3 T=5 C=6 H=7", values=MODERATE,
              fixed=("T",), work=f"{gates}*B*T*H*(H+C)")  # fmt: skip


# Biases, one layer, no dropout, training (or cuDNN has no backward pass), one direction, batch first.
_FORM = "True, 1, 0.0, True, False, True"

SPECS: tuple[Spec, ...] = (
    op("attention", "F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)",
       "q: B A T D; k: B A T D; v: B A T D", "B=2 A=3 T=14 D=8", options={"is_causal": (False, True)}, linear="v",
       batch="q k v", work="B*A*T*T*D"),
    *(spec for backend in _BACKENDS for spec in _attention(backend)),
    op("multi_head_attention",
       "return F.multi_head_attention_forward(x, x, x, 2 * D, 2, w, b, None, None, False, 0.0, out, c,\n"
       "    need_weights=False)[0]",
       "x: T B 2*D; w: 6*D 2*D; b: 6*D; out: 2*D 2*D; c: 2*D", "T=9 B=3 D=4", linear="out c", values=MODERATE,
       work="T*B*D*D*16 + T*T*B*D*2"),
    _cell("rnn_tanh_cell", 1, "torch.rnn_tanh_cell(x, h, w, u, b, d)", "h"),
    _cell("rnn_relu_cell", 1, "torch.rnn_relu_cell(x, h, w, u, b, d)", "h"),
    _cell("gru_cell", 3, "torch.gru_cell(x, h, w, u, b, d)", "h"),
    _cell("lstm_cell", 4, "h, c = torch.lstm_cell(x, (h, c), w, u, b, d)\nreturn h, c", "h", "c"),
    _layer("rnn_tanh", 1, f"torch.rnn_tanh(x, h, [w, u, b, d], {_FORM})[0]", "h"),
    _layer("gru", 3, f"torch.gru(x, h, [w, u, b, d], {_FORM})[0]", "h"),
    _layer("lstm", 4, f"y, h, c = torch.lstm(x, (h, c), [w, u, b, d], {_FORM})\nreturn y, h, c", "h", "c"),
)  # fmt: skip
