"""Small scenes that are hostile in the ways that real captures are; random and signed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor


@dataclass
class Scene:
    """What `rasterization` takes: tensors by name and the other arguments.

    Attributes:
        alphas: whether a gradient flows into alphas.
        fixed: names of tensors that ask for no gradient.
    """

    tensors: dict[str, Tensor]
    options: dict[str, Any] = field(default_factory=dict)
    width: int = 24
    height: int = 17
    alphas: bool = True
    fixed: tuple[str, ...] = ()

    def to(self, dtype: torch.dtype) -> Scene:
        """The same in another precision."""
        return replace(self, tensors={k: v.detach().to(dtype) for k, v in self.tensors.items()})

    def leaves(self) -> dict[str, Tensor]:
        """The same tensors as leaves that ask for gradients, but for the fixed ones."""
        return {k: v.detach().clone().requires_grad_(k not in self.fixed) for k, v in self.tensors.items()}


def make_scene(
    seed: int = 0,
    *,
    N: int = 65,
    batch: tuple[int, ...] = (),
    C: int = 1,
    width: int = 24,
    height: int = 17,
    sh_degree: int | None = None,
    channels: int = 3,
    shapes: str = "mixed",
    near: bool = False,
    behind: int = 0,
    background: bool = False,
    alphas: bool = True,
    fixed: tuple[str, ...] = (),
    **options: Any,
) -> Scene:
    """A cloud of Gaussians in front of C rotated cameras with off-centre principal points.

    Args:
        shapes: "round", "needles", "discs" or "mixed".
        near: some Gaussians lie on and behind the camera plane.
        behind: so many of the last Gaussians lie behind all cameras.
    """
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*batch, *shape, generator=g)

    means = normal(N, 3) * torch.tensor([1.0, 1.0, 0.6])
    if near:
        means[..., ::3, 2] -= 4.0  # the cameras stand at z = -4
    means[..., N - behind :, 2] = -9.0
    base = torch.exp(normal(N, 1) * 0.5 - 1.8)
    stretch = {"round": [0.0, 0.0, 0.0], "needles": [2.5, -2.5, -2.5], "discs": [1.0, 1.0, -4.0]}
    kinds = list(stretch) if shapes == "mixed" else [shapes]
    logs = torch.tensor([stretch[kinds[i % len(kinds)]] for i in range(N)]).reshape(N, 3)
    viewmats = torch.eye(4).repeat(*batch, C, 1, 1)
    viewmats[..., :3, :3] = torch.linalg.matrix_exp(_skew(normal(C, 3) * 0.15))
    viewmats[..., :3, 3] = torch.tensor([0.0, 0.0, 4.0]) + normal(C, 3) * 0.2
    Ks = torch.zeros(*batch, C, 3, 3)
    focal = 1.2 * max(width, height)
    Ks[..., 0, 0], Ks[..., 1, 1], Ks[..., 2, 2] = focal, 0.9 * focal, 1.0
    Ks[..., 0, 2] = width * (0.5 + 0.15 * torch.rand(*batch, C, generator=g))
    Ks[..., 1, 2] = height * (0.5 - 0.15 * torch.rand(*batch, C, generator=g))
    colors = normal(N, channels) if sh_degree is None else normal(N, (sh_degree + 1) ** 2, 3) * 0.4
    tensors = {
        "means": means,
        "quats": normal(N, 4),
        "scales": base * logs.exp(),
        "opacities": torch.sigmoid(normal(N) * 2.5),
        "colors": colors,
        "viewmats": viewmats,
        "Ks": Ks,
    }
    if background:
        tensors["backgrounds"] = normal(C, channels if sh_degree is None else 3)
    return Scene(tensors, {"sh_degree": sh_degree, **options}, width, height, alphas, fixed)


def _skew(v: Tensor) -> Tensor:
    """Cross-product matrices [..., 3, 3] of [..., 3]."""
    x, y, z = v.unbind(-1)
    o = torch.zeros_like(x)
    return torch.stack([torch.stack(r, -1) for r in ([o, -z, y], [z, o, -x], [-y, x, o])], -2)
