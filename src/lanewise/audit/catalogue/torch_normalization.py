"""Norms over batches, channels and groups, the softmax family, and dropout with a fixed seed."""

from __future__ import annotations

from lanewise.audit.catalogue.table import MASK, POSITIVE, op
from lanewise.audit.spec import Spec

_AFFINE = "weight bias"
_IMAGE = "B=4 C=6 H=7 W=5"

SPECS: tuple[Spec, ...] = (
    op("batch_norm1d", "F.batch_norm(x, None, None, weight, bias, training=True)", "x: B C; weight: C; bias: C",
       "B=24 C=12", linear=_AFFINE),
    op("batch_norm2d", "F.batch_norm(x, None, None, weight, bias, training=True)", "x: B C H W; weight: C; bias: C",
       _IMAGE, linear=_AFFINE),
    op("batch_norm3d", "F.batch_norm(x, None, None, weight, bias, training=True)",
       "x: B C D H W; weight: C; bias: C", "B=3 C=5 D=3 H=4 W=5", linear=_AFFINE),
    op("batch_norm_eval", "F.batch_norm(x, mean, var, weight, bias)",
       "x: B C H W; mean: C; var: C; weight: C; bias: C", _IMAGE, linear="x weight bias", batch="x",
       constant={"mean": "torch.randn({shape}, {on})", "var": POSITIVE}),
    op("layer_norm", "F.layer_norm(x, (C,), weight, bias)", "x: B C; weight: C; bias: C", "B=24 C=20",
       linear=_AFFINE, batch="x"),
    op("layer_norm_plain", "F.layer_norm(x, (T, C))", "x: B T C", "B=9 T=4 C=7", batch="x"),
    op("group_norm", "F.group_norm(x, G, weight, bias)", "x: B G*C H W; weight: G*C; bias: G*C",
       "B=3 G=2 C=3 H=7 W=5", linear=_AFFINE, batch="x"),
    op("group_norm_rows", "F.group_norm(x, G, weight, bias)", "x: B G*C; weight: G*C; bias: G*C", "B=9 G=3 C=8",
       linear=_AFFINE, batch="x"),
    op("instance_norm1d", "F.instance_norm(x, weight=weight, bias=bias)", "x: B C W; weight: C; bias: C",
       "B=3 C=4 W=17", linear=_AFFINE, batch="x"),
    op("instance_norm2d", "F.instance_norm(x, weight=weight, bias=bias)", "x: B C H W; weight: C; bias: C",
       _IMAGE, linear=_AFFINE, batch="x"),
    op("instance_norm3d", "F.instance_norm(x)", "x: B C D H W", "B=2 C=4 D=3 H=4 W=5", batch="x"),
    op("rms_norm", "F.rms_norm(x, (C,), weight)", "x: B C; weight: C", "B=24 C=20", linear="weight", batch="x"),
    op("local_response_norm", "F.local_response_norm(x, 3, alpha=0.5, beta=0.75, k=1.0)", "x: B C H W",
       "B=3 C=7 H=5 W=4", batch="x"),
    op("normalize", "F.normalize(x, p=p, dim=-1)", "x: B C", "B=24 C=20", batch="x", options={"p": (2, 1)}),
    op("weight_norm", "torch._weight_norm(v, g, 0)", "v: K C; g: K 1", "K=12 C=20", linear="g", batch="v g"),
    op("standardized_weight", "w = (weight - weight.mean(1, keepdim=True)) / (weight.std(1, keepdim=True) + 1e-3)\n"
       "return F.linear(x, w)", "x: B C; weight: K C", "B=9 C=20 K=8", linear="x", batch="x"),
    op("softmax", "F.softmax(x, dim)", "x: B C", "B=24 C=20", options={"dim": (-1, 0)}),
    op("softmax_rows", "F.softmax(x, -1)", "x: B T C", "B=3 T=7 C=20", batch="x"),
    op("softmax_image", "F.softmax(x, 1)", "x: B C H W", _IMAGE, batch="x"),
    op("log_softmax", "F.log_softmax(x, dim)", "x: B C", "B=24 C=20", options={"dim": (-1, 0)}),
    op("log_softmax_image", "F.log_softmax(x, 1)", "x: B C H W", _IMAGE, batch="x"),
    op("softmin", "F.softmin(x, -1)", "x: B C", "B=24 C=20", batch="x"),
    op("masked_softmax", 'F.softmax(x.masked_fill(mask, float("-inf")), -1)', "x: B C; mask: B C", "B=24 C=20",
       batch="x mask", other={"mask": f"({MASK}) & (torch.arange({{shape}}[-1], {{where}}) > 0)"}),
    op("gumbel_softmax", "F.gumbel_softmax(x, tau=0.7)", "x: B C", "B=24 C=20"),
    op("logsumexp", "torch.logsumexp(x, dim)", "x: B C", "B=24 C=20", options={"dim": (-1, 0, (0, 1))}),
    op("dropout", "F.dropout(x, 0.3)", "x: B C", "B=24 C=20", linear="*"),
    op("dropout_eval", "F.dropout(x, 0.3, training=False)", "x: B C", "B=24 C=20", linear="*", batch="x"),
    op("dropout2d", "F.dropout2d(x, 0.3)", "x: B C H W", _IMAGE, linear="*"),
    op("alpha_dropout", "F.alpha_dropout(x, 0.3, training=True)", "x: B C", "B=24 C=20", linear="*"),
    op("dropout_mask", "x * mask / 0.7", "x: B C; mask: B C", "B=24 C=20", linear="*", batch="x mask",
       other={"mask": MASK}),
)  # fmt: skip
