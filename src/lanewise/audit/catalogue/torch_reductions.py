"""Sums, moments, extremes and what accumulates along a dimension."""

from __future__ import annotations

from lanewise.audit.catalogue.table import MODERATE, POSITIVE, WIDE, op
from lanewise.audit.spec import NORMAL, Spec

_ROWS = "B=24 C=20"
_DIM = {"dim": (-1, 0)}
_SIGNED_ROOT = "torch.randn({shape}, {on}).sign() * (torch.rand({shape}, {on}) * 0.5 + 0.75)"  # products stay near 1

# Expression by name; linear.
_SUMS = {
    "sum": "x.sum(dim)",
    "mean": "x.mean(dim)",
    "nansum": "x.nansum(dim)",
    "cumsum": "x.cumsum(dim)",
    "trapezoid": "torch.trapezoid(x, dim=dim)",
    "cumulative_trapezoid": "torch.cumulative_trapezoid(x, dim=dim)",
    "sum_keepdim_subtract": "x - x.mean(dim, keepdim=True)",
}
_MOMENTS = {
    "var": "x.var(dim)",
    "var_population": "x.var(dim, correction=0)",
    "std": "x.std(dim)",
    "std_mean": "s, m = torch.std_mean(x, dim)\nreturn s, m",
    "norm_2": "torch.linalg.vector_norm(x, 2, dim)",
    "norm_1": "torch.linalg.vector_norm(x, 1, dim)",
    "norm_3": "torch.linalg.vector_norm(x, 3, dim)",
    "norm_half": "torch.linalg.vector_norm(x, 0.5, dim)",
    "norm_inf": 'torch.linalg.vector_norm(x, float("inf"), dim)',
    "amax": "x.amax(dim)",
    "amin": "x.amin(dim)",
    "max_dim": "x.max(dim)[0]",
    "min_dim": "x.min(dim)[0]",
    "aminmax": "low, high = torch.aminmax(x, dim=dim)\nreturn low, high",
    "logcumsumexp": "x.logcumsumexp(dim)",
    "cummax": "x.cummax(dim)[0]",
    "cummin": "x.cummin(dim)[0]",
    "renorm": "x.renorm(2, dim, 3.0)",
}

SPECS: tuple[Spec, ...] = (
    *(op(name, source, "x: B C", _ROWS, linear="*", options=_DIM) for name, source in _SUMS.items()),
    *(op(name, source, "x: B C", _ROWS, options=_DIM) for name, source in _MOMENTS.items()),
    op("sum_all", "x.sum()", "x: B C", _ROWS, linear="*"),
    op("sum_dims", "x.sum((0, 2))", "x: B C H", "B=6 C=5 H=9", linear="*"),
    op("mean_all", "x.mean()", "x: B C", _ROWS, linear="*"),
    op("trace", "x.trace()", "x: B C", _ROWS, linear="*"),
    op("max_all", "x.max()", "x: B C", _ROWS, dtypes=WIDE),
    op("median", "x.median(dim)[0]", "x: B C", _ROWS, options=_DIM, dtypes=WIDE),
    op("nanmedian", "x.nanmedian(dim)[0]", "x: B C", _ROWS, options=_DIM, dtypes=WIDE),
    op("quantile", "x.quantile(q, dim)", "x: B C", _ROWS, options={"q": (0.3, 0.5), **_DIM}, dtypes=WIDE),
    op("prod", "x.prod(dim)", "x: B C", _ROWS, options=_DIM, draw={"x": _SIGNED_ROOT}),
    op("prod_with_zeros", "(x * mask).prod(-1)", "x: B C; mask: B C", _ROWS, batch="x mask",
       draw={"x": _SIGNED_ROOT}, other={"mask": "torch.rand({shape}, {on}) < 0.95"}),
    op("cumprod", "x.cumprod(dim)", "x: B C", _ROWS, options=_DIM, draw={"x": _SIGNED_ROOT}),
    op("cumprod_with_zeros", "(x * mask).cumprod(-1)", "x: B C; mask: B C", _ROWS, batch="x mask",
       draw={"x": _SIGNED_ROOT}, other={"mask": "torch.rand({shape}, {on}) < 0.95"}),
    op("cov", "torch.cov(x)", "x: M N", "M=7 N=20", values=MODERATE),
    op("corrcoef", "torch.corrcoef(x)", "x: M N", "M=7 N=20", values=MODERATE),
    op("dist", "torch.dist(x, y, p)", "x: B C; y: B C", _ROWS, options={"p": (2, 1, 3)}),
    op("log_sum_of_positive", "x.sum(dim).log()", "x: B C", _ROWS, options=_DIM, draw={"x": POSITIVE}),
    op("std_of_products", "(x * y).std(0)", "x: B C; y: C", _ROWS, draw={"x": NORMAL, "y": POSITIVE}),
)  # fmt: skip
