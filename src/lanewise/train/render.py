"""Rendering Gaussians as they are stored: activations, harmonics up to a degree, one call of the rasterizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from lanewise.errors import InputError
from lanewise.io.scene import Gaussians
from lanewise.splat import rasterization
from lanewise.splat._backend import Backend, resolve_backend
from lanewise.train.config import TrainConfig

if TYPE_CHECKING:
    from lanewise.io.captures import View


class Rasterizer(Protocol):
    """Renders C cameras, as `Renderer` does: what training and evaluation need of it.

    `meta` holds what densification reads: means2d [C, N, 2] that the colours were computed from, radii [C, N, 2] int32,
    width, height.
    """

    def __call__(
        self,
        params: Mapping[str, Tensor],
        viewmats: Tensor,
        Ks: Tensor,
        width: int,
        height: int,
        *,
        sh_degree: int,
        backgrounds: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Colours [C, H, W, 3], alphas [C, H, W, 1], meta; see `Renderer`."""
        ...


@dataclass(frozen=True)
class Renderer:
    """How pictures are made: the options of `rasterization` that stay the same during a run."""

    backend: Backend = "auto"
    antialiased: bool = False
    absgrad: bool = False

    @classmethod
    def of(cls, config: TrainConfig) -> Renderer:
        """The renderer that a run with these settings trains and evaluates with."""
        return cls(config.backend, config.antialiased, config.absgrad)

    def takes_capacity(self, like: Tensor) -> bool:
        """Whether lists of a given capacity are there for tensors like this one: then nothing waits for the GPU."""
        return resolve_backend(self.backend, like) == "triton"

    def __call__(
        self,
        params: Mapping[str, Tensor],
        viewmats: Tensor,
        Ks: Tensor,
        width: int,
        height: int,
        *,
        sh_degree: int,
        backgrounds: Tensor | None = None,
        isect_capacity: int | tuple[int, int] | None = None,
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Render C cameras.

        Args:
            params: N Gaussians as in `Gaussians.tensors()`.
            viewmats: world-to-camera, [C, 4, 4].
            Ks: intrinsics, [C, 3, 3].
            width, height: size of the pictures, pixels.
            sh_degree: degree to use, at most that of `params`; higher coefficients get no gradient at all at degree 0.
            backgrounds: colours behind the scene, [C, 3]; black without.
            isect_capacity: as of `rasterization`.

        Returns:
            colours [C, H, W, 3] (not clamped), alphas [C, H, W, 1], and `meta` as of `rasterization`.
        """
        higher = (sh_degree + 1) ** 2 - 1
        lists: dict[str, Any] = {} if isect_capacity is None else {"isect_capacity": isect_capacity}
        coefficients = torch.cat([params["sh0"], params["shN"][:, :higher]], dim=1) if higher else params["sh0"]
        return rasterization(
            params["means"],
            params["quats"],
            params["scales"].exp(),
            params["opacities"].sigmoid(),
            coefficients,
            viewmats,
            Ks,
            width,
            height,
            sh_degree=sh_degree,
            backgrounds=backgrounds,
            rasterize_mode="antialiased" if self.antialiased else "classic",
            absgrad=self.absgrad,
            backend=self.backend,
            **lists,
        )


@torch.no_grad()
def render_view(
    gaussians: Gaussians,
    view: View,
    *,
    background: tuple[float, float, float] = (0.0, 0.0, 0.0),
    backend: Backend = "auto",
    device: torch.device | str | None = None,
    sh_degree: int | None = None,
    antialiased: bool = False,
) -> Tensor:
    """The picture of a scene from a camera, without gradients.

    Args:
        gaussians: the scene.
        view: the camera; its photograph is not read.
        background: colour behind the scene, 0..1.
        backend: which implementation of the operators to use.
        device: where to render; that of the scene without.
        sh_degree: degree of the spherical harmonics, at most that of the scene; all without.
        antialiased: whether the scene was trained with antialiasing.

    Returns:
        colours, float32 [H, W, 3] on the device, not clamped to 0..1.
    """
    gaussians = gaussians if device is None else gaussians.to(device)
    degree = gaussians.sh_degree if sh_degree is None else sh_degree
    if degree > gaussians.sh_degree:
        raise InputError("sh_degree", got=degree, expected=f"at most {gaussians.sh_degree}, what the scene has")
    like = gaussians.means
    colors, _, _ = Renderer(backend, antialiased)(
        gaussians.tensors(),
        torch.as_tensor(view.viewmat).to(like)[None],
        torch.as_tensor(view.K).to(like)[None],
        view.width,
        view.height,
        sh_degree=degree,
        backgrounds=like.new_tensor([background]),
    )
    return colors[0]


def resolve_device(name: str) -> torch.device:
    """The device of a name; `auto` is the GPU when there is one, else the CPU.

    Raises:
        InputError: no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0]
        raise InputError(
            "device", got=repr(name), expected="a device that this torch can use", why=first, fix="use auto or cpu"
        ) from None
    return device
