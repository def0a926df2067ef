"""The Gaussians of a scene: one dataclass, in the parametrisation that is optimised and stored."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from lanewise.errors import InputError

SH_C0 = 0.28209479177387814  # the constant (degree 0) real spherical harmonic, 1 / (2 sqrt(pi))


@dataclass
class Gaussians:
    """N Gaussians in their stored parametrisation (that of the 3DGS papers and of PLY files).

    Attributes:
        means: centres in world units, [N, 3].
        quats: rotations wxyz, need not be unit, [N, 4].
        scales: natural logarithm of the standard deviations in world units, [N, 3].
        opacities: logits of the opacities, [N].
        sh0: degree-0 spherical-harmonics coefficients, [N, 1, 3].
        shN: the higher coefficients, [N, K - 1, 3] with K = (degree + 1)^2; K - 1 may be 0.
    """

    means: Tensor
    quats: Tensor
    scales: Tensor
    opacities: Tensor
    sh0: Tensor
    shN: Tensor  # noqa: N815  the name of the field

    def __post_init__(self) -> None:
        n = self.means.shape[0]
        expected = {"means": (n, 3), "quats": (n, 4), "scales": (n, 3), "opacities": (n,), "sh0": (n, 1, 3)}
        for name, shape in expected.items():
            got = tuple(getattr(self, name).shape)
            if got != shape:
                raise InputError(f"Gaussians.{name}", got=f"shape {got}", expected=f"shape {shape}")
        got = tuple(self.shN.shape)
        if len(got) != 3 or got[0] != n or got[2] != 3 or got[1] + 1 not in (1, 4, 9, 16, 25):
            raise InputError(
                "Gaussians.shN", got=f"shape {got}", expected=f"shape ({n}, (degree + 1)^2 - 1, 3), degree 0..4"
            )

    def __len__(self) -> int:
        return self.means.shape[0]

    @property
    def sh_degree(self) -> int:
        """Degree of the spherical harmonics that the coefficients allow, 0..4."""
        return {1: 0, 4: 1, 9: 2, 16: 3, 25: 4}[self.shN.shape[1] + 1]

    def tensors(self) -> dict[str, Tensor]:
        """The six tensors by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def to(self, device: torch.device | str) -> Gaussians:
        """The same Gaussians on another device."""
        return Gaussians(**{name: tensor.to(device) for name, tensor in self.tensors().items()})
