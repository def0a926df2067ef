"""A probe of the renderer in a training run: the gradients of one tile beside float64's.

The suspect renders the whole picture, with the Gaussians and the camera that the step has; the gradient that comes in
is random on one tile and zero elsewhere. The truth composites that tile alone, of the few Gaussians that reach it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lanewise.audit.call import normal
from lanewise.audit.gate import gate
from lanewise.audit.probes.region import classify
from lanewise.audit.watching.alarm import Alarm
from lanewise.splat import project_gaussians, spherical_harmonics
from lanewise.splat.rasterize.op import rasterize_to_pixels
from lanewise.splat.render import camera_centres
from lanewise.train.render import Rasterizer

TILE = 8  # pixels
MOST = 2048  # Gaussians that a tile's truth is computed of; a tile with more of them is not looked at
DRAWS = 3  # tiles whose gradients must all be wrong, where they are wrong by little
TRIES = 8  # tiles that are drawn until one is fit for a probe
# A truth that does not replay the renderer's own decisions (which pairs count, in which order) is off by more than
# rounding where one of them falls the other way. Pixels where the picture shows it are left out; what it does not show
# has this much room beyond the gate.
ROOM = 32.0
SEEN = 1e-5  # difference of a colour that rounding alone does not make, where the largest colours are about 1
DIFFERENT = 0.05  # of a tile's pixels may be left out
PLAINLY = 0.02  # relative error that needs no other tile: a pair that the picture does not show weighs less
FALSE_ALARM = 1e-6  # of tiles whose gradients pass the gate wherever a kernel's tests have looked


@dataclass(frozen=True)
class Shot:
    """What a step renders: one camera.

    Attributes:
        viewmat, K: [1, 4, 4] and [1, 3, 3].
        background: [1, 3].
        width, height: pixels.
        sh_degree: in use.
    """

    viewmat: Tensor
    K: Tensor
    background: Tensor
    width: int
    height: int
    sh_degree: int


class RendererProbe:
    """Probes a renderer's gradients.

    Args:
        renderer: the suspect.
        antialiased: how it treats small Gaussians.
        seed: of the tiles and the incoming gradients; torch's own generators are not touched.
    """

    def __init__(self, renderer: Rasterizer, antialiased: bool, seed: int) -> None:
        self._renderer, self._antialiased = renderer, antialiased
        self._generator = torch.Generator().manual_seed(seed)
        self.coverage: dict[str, int] = {"passed": 0, "failed": 0, "skipped": 0}

    def judge(self, step: int, params: Mapping[str, Tensor], shot: Shot) -> Iterator[Alarm]:
        """Look at a tile of the picture, and at others to believe a small error: it must be there in all of them."""
        wrong: dict[str, Alarm] = {}
        for draw in range(DRAWS):
            try:
                found = self._one_tile(step, params, shot)
            except torch.OutOfMemoryError:  # no reason to end a run
                found = None
            if found is None:
                self.coverage["skipped"] += 1
                return
            wrong = found if draw == 0 else {name: a for name, a in wrong.items() if name in found or _plainly(a)}
            if all(map(_plainly, wrong.values())):
                break
        self.coverage["failed" if wrong else "passed"] += 1
        yield from wrong.values()

    def _one_tile(self, step: int, params: Mapping[str, Tensor], shot: Shot) -> dict[str, Alarm] | None:
        """The tensors whose gradients are wrong; None where no tile could be probed."""
        leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
        with torch.enable_grad():
            colors, _, meta = self._renderer(
                leaves, shot.viewmat, shot.K, shot.width, shot.height,
                sh_degree=shot.sh_degree, backgrounds=shot.background,
            )  # fmt: skip
        for _ in range(TRIES):
            tile = self._tile(meta["means2d"][0].detach(), meta["radii"][0], shot)
            if tile is None:
                return None
            x, y, reach = tile
            if not 0 < len(reach) <= MOST:
                continue
            shown = colors[0, y : y + TILE, x : x + TILE]
            exact = _crop(params, reach, shot, x, y, self._antialiased, torch.float64)
            same = (shown.detach().double() - exact.picture.detach()).abs().amax(-1) <= SEEN  # [h, w]
            if float(same.double().mean()) < 1 - DIFFERENT:
                continue
            v = normal(shown.detach().cpu(), self._generator).to(shown) * same[..., None]
            got = torch.autograd.grad(shown, list(leaves.values()), v, retain_graph=True, allow_unused=True)
            single = _crop(params, reach, shot, x, y, self._antialiased, torch.float32)
            return dict(_compared(step, dict(zip(leaves, got, strict=True)), exact, single, v, reach, (x, y)))
        return None

    def _tile(self, means2d: Tensor, radii: Tensor, shot: Shot) -> tuple[int, int, Tensor] | None:
        """A random tile in which some Gaussian lies: its corner, and the Gaussians that may reach it."""
        size = means2d.new_tensor([shot.width, shot.height])
        visible = (radii > 0).all(-1)
        inside = (visible & (means2d >= 0).all(-1) & (means2d < size).all(-1)).nonzero()[:, 0]
        if not len(inside):
            return None
        one = inside[int(torch.randint(len(inside), (), generator=self._generator))]
        x, y = ((int(c) // TILE) * TILE for c in means2d[one].tolist())
        corner = means2d.new_tensor([x, y])
        near = (means2d >= corner - radii - 1) & (means2d <= corner + TILE + radii + 1)
        return x, y, (visible & near.all(-1)).nonzero()[:, 0]


def _plainly(alarm: Alarm) -> bool:
    return not alarm.evidence["relative_error"] < PLAINLY  # NaN is plain


@dataclass(frozen=True)
class _Crop:
    """A tile by the reference: its picture [h, w, 3], and the leaves [M, ...] that it depends on."""

    picture: Tensor
    leaves: dict[str, Tensor]

    def gradients(self, v: Tensor) -> dict[str, Tensor]:
        """For the incoming gradient v [h, w, 3], of those that the picture depends on."""
        found = torch.autograd.grad(self.picture, list(self.leaves.values()), v.to(self.picture), allow_unused=True)
        return {name: g for name, g in zip(self.leaves, found, strict=True) if g is not None}


def _crop(
    params: Mapping[str, Tensor], reach: Tensor, shot: Shot, x: int, y: int, antialiased: bool, dtype: torch.dtype
) -> _Crop:
    """The tile at (x, y) of the picture that `lanewise.train.render.Renderer` describes, of the Gaussians `reach` [M].

    The projection knows the whole picture (its clamps depend on that); only compositing is cut.
    """
    leaves = {name: p.detach()[reach].to(dtype).requires_grad_() for name, p in params.items()}
    viewmat, K, background = (t[:1].detach().to(dtype) for t in (shot.viewmat, shot.K, shot.background))
    with torch.enable_grad():
        means, opacities = leaves["means"], leaves["opacities"].sigmoid()
        flat = project_gaussians(
            means[None], None, leaves["quats"][None], leaves["scales"].exp()[None], viewmat[None], K[None],
            shot.width, shot.height, calc_compensations=antialiased, opacities=opacities[None], backend="reference",
        )  # fmt: skip
        higher = (shot.sh_degree + 1) ** 2 - 1
        coefficients = torch.cat([leaves["sh0"], leaves["shN"][:, :higher]], 1) if higher else leaves["sh0"]
        colors = spherical_harmonics(shot.sh_degree, means - camera_centres(viewmat), coefficients, backend="reference")
        colors = (colors + 0.5).clamp_min(0)
        seen = (flat.radii[0, 0] > 0).all(-1).nonzero()[:, 0]
        order = seen[flat.depths[0, 0].detach()[seen].argsort(stable=True)].int()
        corner = means.new_tensor([x, y])
        width, height = min(TILE, shot.width - x), min(TILE, shot.height - y)
        shaded = opacities * flat.compensations[0, 0] if antialiased else opacities
        picture, _ = rasterize_to_pixels(
            flat.means2d[0] - corner, flat.conics[0], colors[None], shaded[None], width, height, TILE,
            order.new_zeros(1, 1, 1), order, background, backend="reference",
        )  # fmt: skip
    return _Crop(picture[0], leaves)


def _compared(
    step: int,
    got: Mapping[str, Tensor | None],
    exact: _Crop,
    single: _Crop,
    v: Tensor,
    reach: Tensor,
    tile: tuple[int, int],
) -> Iterator[tuple[str, Alarm]]:
    """The tensors whose gradient the gate does not let through."""
    own = single.gradients(v)
    for name, truth in exact.gradients(v).items():
        whole = got[name]
        gradient = torch.zeros_like(truth) if whole is None else whole[reach]
        result = gate(name, gradient, truth, own[name])
        if result.error <= ROOM * result.limit:
            continue
        off = (gradient.double() - truth).abs()
        looks = classify(gradient, truth, off > 0.1 * off.max())
        evidence = {
            "relative_error": result.error,
            "limit": ROOM * result.limit,
            "looks_like": looks,
            "tile": list(tile),
            "gaussians": len(reach),
        }
        cause = (
            f"the renderer's backward pass, where the gradient of its picture lies in one tile; it looks like {looks}"
        )
        yield name, Alarm("LW404", name, step, FALSE_ALARM, cause, evidence, "renderer", name)
