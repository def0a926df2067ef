"""torch's differentiable operators that people train with, a family a file."""

from __future__ import annotations

from lanewise.audit.catalogue import (
    torch_algebra,
    torch_convolutions,
    torch_elementwise,
    torch_indexing,
    torch_losses,
    torch_normalization,
    torch_products,
    torch_reductions,
    torch_resampling,
    torch_sequences,
)
from lanewise.audit.spec import Spec

_FAMILIES = (
    torch_products,
    torch_convolutions,
    torch_resampling,
    torch_normalization,
    torch_elementwise,
    torch_reductions,
    torch_losses,
    torch_indexing,
    torch_sequences,
    torch_algebra,
)
SPECS: tuple[Spec, ...] = tuple(spec for family in _FAMILIES for spec in family.SPECS)
