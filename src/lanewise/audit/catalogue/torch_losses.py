"""Losses and distances, in each of their reductions."""

from __future__ import annotations

from lanewise.audit.catalogue.table import MODERATE, POSITIVE, SIGNS, UNIT, WIDE, below, op
from lanewise.audit.spec import NORMAL, Spec

_REDUCTION = {"reduction": ("mean", "sum", "none")}
_ROWS = "B=24 C=20"
_CLASSES = {"target": below("C")}
_THREE_LABELS = "torch.where(torch.arange({shape}[-1], {where}) < 3, torch.rand({shape}, {on}).argsort(-1), -1)"
_PAIR = "x: B C; target: B C"

# Expression by name, of x and of a target that is differentiated too.
_TWO_SIDED = {
    "mse_loss": "F.mse_loss(x, target, reduction=reduction)",
    "l1_loss": "F.l1_loss(x, target, reduction=reduction)",
    "smooth_l1_loss": "F.smooth_l1_loss(x, target, reduction=reduction, beta=0.7)",
    "huber_loss": "F.huber_loss(x, target, reduction=reduction, delta=0.7)",
}
# (expression, how x is drawn, how the target is) by name.
_ONE_SIDED = {
    "binary_cross_entropy": ("F.binary_cross_entropy(x, target, reduction=reduction)", UNIT, UNIT),
    "bce_with_logits": ("F.binary_cross_entropy_with_logits(x, target, reduction=reduction)", NORMAL, UNIT),
    "soft_margin_loss": ("F.soft_margin_loss(x, target, reduction=reduction)", NORMAL, SIGNS),
    "hinge_embedding_loss": ("F.hinge_embedding_loss(x, target, reduction=reduction)", NORMAL, SIGNS),
    "multilabel_soft_margin_loss": ("F.multilabel_soft_margin_loss(x, target, reduction=reduction)", NORMAL, UNIT),
    "poisson_nll_loss": ("F.poisson_nll_loss(x, target, reduction=reduction)", NORMAL, POSITIVE),
}

SPECS: tuple[Spec, ...] = (
    *(op(name, source, _PAIR, _ROWS, options=_REDUCTION) for name, source in _TWO_SIDED.items()),
    *(op(name, source, _PAIR, _ROWS, options=_REDUCTION, draw={"x": x}, constant={"target": target}, values=MODERATE)
      for name, (source, x, target) in _ONE_SIDED.items()),
    op("kl_div", "F.kl_div(x.log_softmax(-1), target, reduction=reduction)", _PAIR, _ROWS, constant={"target": UNIT},
       options={"reduction": ("batchmean", "sum", "none")}),
    op("cross_entropy", "F.cross_entropy(x, target, reduction=reduction, label_smoothing=smoothing)",
       "x: B C; target: B", _ROWS, other=_CLASSES, options={**_REDUCTION, "smoothing": (0.0, 0.1)}),
    op("cross_entropy_ignored", "F.cross_entropy(x, target, ignore_index=0)", "x: B C; target: B", _ROWS,
       other=_CLASSES),
    op("cross_entropy_weighted", "F.cross_entropy(x, target, weight, reduction=reduction)",
       "x: B C; target: B; weight: C", _ROWS, other=_CLASSES, constant={"weight": POSITIVE}, options=_REDUCTION),
    op("cross_entropy_soft", "F.cross_entropy(x, target.softmax(-1), reduction=reduction)", _PAIR, _ROWS,
       options=_REDUCTION, linear=""),
    op("cross_entropy_image", "F.cross_entropy(x, target, reduction=reduction)", "x: B C H W; target: B H W",
       "B=3 C=5 H=6 W=7", other=_CLASSES, options=_REDUCTION),
    op("nll_loss", "F.nll_loss(x, target, reduction=reduction)", "x: B C; target: B", _ROWS, linear="x",
       other=_CLASSES, options=_REDUCTION),
    op("nll_loss_image", "F.nll_loss(x, target, reduction=reduction)", "x: B C H W; target: B H W",
       "B=3 C=5 H=6 W=7", linear="x", other=_CLASSES, options=_REDUCTION),
    op("bce_with_logits_weighted",
       "F.binary_cross_entropy_with_logits(x, target, weight, pos_weight=pos, reduction=reduction)",
       f"{_PAIR}; weight: B C; pos: C", _ROWS, options=_REDUCTION,
       constant={"target": UNIT, "weight": POSITIVE, "pos": POSITIVE}),
    op("gaussian_nll_loss", "F.gaussian_nll_loss(x, target, var, full=True, reduction=reduction)",
       "x: B C; target: B C; var: B C", _ROWS, options=_REDUCTION, draw={"var": POSITIVE}, values=MODERATE),
    op("cosine_embedding_loss", "F.cosine_embedding_loss(x, y, target, margin=0.1, reduction=reduction)",
       "x: B C; y: B C; target: B", _ROWS, options=_REDUCTION, constant={"target": SIGNS}),
    op("margin_ranking_loss", "F.margin_ranking_loss(x, y, target, margin=0.3, reduction=reduction)",
       "x: B C; y: B C; target: B C", _ROWS, options=_REDUCTION, constant={"target": SIGNS}),
    op("triplet_margin_loss", "F.triplet_margin_loss(x, y, z, margin=2.0, reduction=reduction)",
       "x: B C; y: B C; z: B C", _ROWS, options=_REDUCTION),
    op("multi_margin_loss", "F.multi_margin_loss(x, target, reduction=reduction)", "x: B C; target: B", _ROWS,
       other=_CLASSES, options=_REDUCTION),
    op("multilabel_margin_loss", "F.multilabel_margin_loss(x, target, reduction=reduction)", "x: B C; target: B C",
       _ROWS, options=_REDUCTION, other={"target": _THREE_LABELS}),
    op("ctc_loss", "F.ctc_loss(x.log_softmax(-1), target, long, short, reduction=reduction, zero_infinity=True)",
       "x: 3*T B C; target: B T; long: B; short: B", "T=4 B=5 C=9", dtypes=WIDE, options=_REDUCTION,
       other={"target": "torch.randint(1, max(2, C), {shape}, {on})", "long": "torch.full({shape}, 3 * T, {where})",
              "short": "torch.randint(1, T + 1, {shape}, {on})"}),
    op("cosine_similarity", "F.cosine_similarity(x, y, dim=-1)", "x: B C; y: B C", _ROWS, batch="x y"),
    op("pairwise_distance", "F.pairwise_distance(x, y, p=p)", "x: B C; y: B C", _ROWS, batch="x y",
       options={"p": (2.0, 1.0, 3.0)}),
    op("cdist", "torch.cdist(x, y, p=p)", "x: M C; y: N C", "M=9 N=7 C=6", batch="x", options={"p": (2.0, 1.0, 3.0)},
       dtypes=WIDE),
    op("cdist_direct", 'torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")', "x: M C; y: N C",
       "M=33 N=29 C=6", batch="x", dtypes=WIDE),
    op("pdist", "F.pdist(x, p)", "x: M C", "M=9 C=6", options={"p": (2.0, 1.0, 3.0)}, dtypes=WIDE),
)  # fmt: skip
