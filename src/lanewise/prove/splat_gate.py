"""The gate for the splat operators: kernels against the fp64 reference, with the kernels' decisions replayed."""

# Operands are handed around as tuples and dictionaries, which pyright does not follow.
# pyright: reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lanewise.audit.faults import Fault, planted
from lanewise.audit.gate import FLOOR, HEADROOM, GateResult, gate, relative_error
from lanewise.prove.scenes import Scene
from lanewise.splat import project_gaussians, rasterization
from lanewise.splat._backend import Backend
from lanewise.splat.projection import reference as projection
from lanewise.splat.projection.reference import Camera
from lanewise.splat.rasterize import reference as rasterize
from lanewise.splat.rasterize.decisions import pair_sides
from lanewise.splat.rasterize.op import rasterize_to_pixels
from lanewise.splat.sh.reference import spherical_harmonics


@dataclass(frozen=True)
class Kernels:
    """Which kernels are compared, and where."""

    backend: Backend = "cpu"
    device: str = "cpu"
    deterministic: bool | None = False


CPU = Kernels()


def kernel_run(
    scene: Scene, upstream: tuple[Tensor, Tensor | None], fault: tuple[str, Fault] | None = None, kernels: Kernels = CPU
):
    """Outputs, gradients by name and meta of `rasterization`, on the CPU again; a fault may sit on one gradient."""
    leaves = {k: v.detach().to(kernels.device).requires_grad_(k not in scene.fixed) for k, v in scene.tensors.items()}
    inputs = {k: planted(v, fault[1]) if fault and fault[0] == k else v for k, v in leaves.items()}
    colors, alphas, meta = rasterization(
        **inputs,
        width=scene.width,
        height=scene.height,
        **scene.options,
        backend=kernels.backend,
        deterministic=kernels.deterministic,
    )
    grads = _gradients((colors, alphas), leaves, upstream)
    if scene.options.get("absgrad"):
        grads["absgrad"] = meta["means2d"].absgrad
    host = {k: v.detach().cpu() if isinstance(v, Tensor) else v for k, v in meta.items()}
    return (colors.detach().cpu(), alphas.detach().cpu()), {k: v.cpu() for k, v in grads.items()}, host


def kernel_sides(scene: Scene, meta: dict, kernels: Kernels) -> Tensor:
    """The kernels' decisions about every pair of `meta`'s lists."""
    tensors = [meta[k].to(kernels.device) for k in ("means2d", "conics", "opacities", "isect_offsets", "flatten_ids")]
    sizes = (scene.width, scene.height, meta["tile_size"])
    return pair_sides(*tensors[:3], *sizes, *tensors[3:], backend=kernels.backend).cpu()


def replayed_run(scene: Scene, upstream: tuple[Tensor, Tensor | None], meta: dict, sides: Tensor):
    """The reference in the scene's dtype, taking every discrete decision from the kernels."""
    leaves = scene.leaves()
    t = leaves
    antialiased = scene.options.get("rasterize_mode") == "antialiased"
    batch = t["means"].shape[:-2]
    B, C, N = batch.numel(), t["viewmats"].shape[-3], t["means"].shape[-2]
    visible = (meta["radii"] > 0).all(-1).reshape(B, C, N)
    projected = projection.project(
        t["means"].reshape(B, N, 3),
        (t["quats"].reshape(B, N, 4), t["scales"].reshape(B, N, 3)),
        t["opacities"].reshape(B, N),
        t["viewmats"].reshape(B, C, 4, 4),
        t["Ks"].reshape(B, C, 3, 3),
        Camera(scene.width, scene.height, antialiased=antialiased),
        visible=visible,
    )
    opacities = t["opacities"].reshape(B, 1, N).expand(B, C, N)
    if antialiased:
        opacities = opacities * projected.compensations
    colors = t["colors"].reshape(B, 1, N, *t["colors"].shape[len(batch) + 1 :])
    degree = scene.options.get("sh_degree")
    if degree is None:
        colors = colors.expand(B, C, N, -1)
    else:
        views = t["viewmats"].reshape(B, C, 4, 4)
        centres = -(torch.linalg.inv(views[..., :3, :3]) @ views[..., :3, 3:]).squeeze(-1)
        dirs = t["means"].reshape(B, 1, N, 3) - centres[:, :, None]
        colors = (spherical_harmonics(degree, dirs, colors) + 0.5).clamp_min(0) * visible[..., None]
    tiles = meta["isect_offsets"].shape[-2:]
    image = rasterize.rasterize(
        projected.means2d.reshape(-1, 2),
        projected.conics.reshape(-1, 3),
        colors.reshape(B * C * N, colors.shape[-1]),
        opacities.reshape(-1),
        scene.width,
        scene.height,
        meta["tile_size"],
        meta["isect_offsets"].reshape(B * C, *tiles),
        meta["flatten_ids"],
        sides=sides,
    )
    T = image.transmittance[..., None]
    out = image.colors
    if "backgrounds" in t:
        out = out + T * t["backgrounds"].reshape(B * C, 1, 1, -1)
    outputs = tuple(x.reshape(*batch, C, *x.shape[1:]) for x in (out, 1 - T))
    grads = _gradients(outputs, leaves, upstream, again=True)
    if scene.options.get("absgrad"):
        total = _absolute_gradient(outputs, projected.means2d, upstream)
        grads["absgrad"] = total.reshape(*batch, C, N, 2)
    return outputs, grads


def _absolute_gradient(outputs: Sequence[Tensor], means2d: Tensor, upstream: Sequence[Tensor | None]) -> Tensor:
    """The sum over pixels of the absolute values of each pixel's gradient, of the shape of `means2d`."""
    reached = [(out * v.to(out)).sum(-1).flatten() for out, v in zip(outputs, upstream, strict=True) if v is not None]
    pixels = torch.stack(reached).sum(0)
    one = torch.eye(len(pixels), dtype=pixels.dtype)
    (each,) = torch.autograd.grad(pixels, means2d, one, is_grads_batched=True)
    return each.abs().sum(0)


def _gradients(
    outputs: Sequence[Tensor], leaves: dict[str, Tensor], upstream: Sequence[Tensor | None], again: bool = False
) -> dict[str, Tensor]:
    wanted = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    reached = [(out, v.to(out)) for out, v in zip(outputs, upstream, strict=True) if v is not None]
    grads = torch.autograd.grad(
        [out for out, _ in reached],
        list(wanted.values()),
        [v for _, v in reached],
        allow_unused=True,
        materialize_grads=True,
        retain_graph=again,
    )
    return dict(zip(wanted, grads, strict=True))


def random_upstream(scene: Scene, seed: int = 1) -> tuple[Tensor, Tensor | None]:
    """Signed gradients of colours and alphas; None for alphas that no gradient flows into."""
    g = torch.Generator().manual_seed(seed)
    batch, C = scene.tensors["means"].shape[:-2], scene.tensors["viewmats"].shape[-3]
    D = scene.tensors["colors"].shape[-1]
    shape = (*batch, C, scene.height, scene.width)
    colors, alphas = torch.randn(*shape, D, generator=g), torch.randn(*shape, 1, generator=g)
    return colors, alphas if scene.alphas else None


# Rounding is a matter of luck, the more the smaller a scene is. The fp32 reference's own error is therefore the worst
# over the same scene in worlds of several sizes, under upstream gradients of several sizes: every rounding differs,
# no relative error does.
SIZES = (1.0, 1.1, 1.3, 0.7)


def resized(scene: Scene, size: float) -> Scene:
    """The same scene in a world `size` times as large: the same pictures."""
    tensors = {k: v.clone() for k, v in scene.tensors.items()}
    for name in ("means", "scales"):
        tensors[name] *= size
    tensors["viewmats"][..., :3, 3] *= size
    return replace(scene, tensors=tensors)


@dataclass(frozen=True)
class Truth:
    """What `rasterization` should give on a scene: outputs and gradients in fp64 by name, the limits of their errors,
    and how many more pixels than allowed the kernels decide otherwise."""

    values: dict[str, Tensor]
    limits: dict[str, float]
    excess: float


def true_rasterization(scene: Scene, kernels: Kernels = CPU) -> Truth:
    """The fp64 reference, with the decisions of a healthy run of the kernels replayed."""
    _, _, meta = kernel_run(scene, random_upstream(scene), kernels=kernels)
    return replayed_truth(scene, meta, kernel_sides(scene, meta, kernels))


def replayed_truth(scene: Scene, meta: dict, sides: Tensor) -> Truth:
    """The fp64 reference, with the decisions `sides` about the lists of `meta` replayed."""
    upstream = random_upstream(scene)
    values = _named(*replayed_run(scene.to(torch.float64), upstream, meta, sides))
    limits = dict.fromkeys(values, FLOOR)
    for size in SIZES:
        world, v = resized(scene, size), (upstream[0] * size, None if upstream[1] is None else upstream[1] * size)
        truth = values if size == 1 else _named(*replayed_run(world.to(torch.float64), v, meta, sides))
        for name, single in _named(*replayed_run(world, v, meta, sides)).items():
            limits[name] = max(limits[name], HEADROOM * relative_error(single, truth[name]))
    pixels = math.prod(values["alphas out"].shape)
    return Truth(values, limits, disputed_pixels(scene, meta, sides) - (1 + 1e-4 * pixels))


def gate_rasterization(
    scene: Scene, truth: Truth, fault: tuple[str, Fault] | None = None, kernels: Kernels = CPU
) -> list[GateResult]:
    """Every output and gradient of `rasterization` against the truth; a fault may sit on one gradient."""
    outputs, grads, _ = kernel_run(scene, random_upstream(scene), fault, kernels)
    return gates_of(truth, outputs, grads)


def gates_of(truth: Truth, outputs: tuple[Tensor, ...], grads: dict[str, Tensor]) -> list[GateResult]:
    """A run of `rasterization` against the truth."""
    got = _named(outputs, grads)
    return [GateResult(name, relative_error(got[name], truth.values[name]), truth.limits[name]) for name in got]


def _named(outputs: tuple[Tensor, ...], grads: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"colors out": outputs[0], "alphas out": outputs[1], **grads}


def gate_rasterize(scene: Scene, fault: tuple[str, Fault] | None = None, kernels: Kernels = CPU) -> list[GateResult]:
    """The rasterizer alone against fp64 on the scene's projected Gaussians: outputs and gradients of means2d, conics,
    colors, opacities."""
    _, _, meta = kernel_run(scene, random_upstream(scene), kernels=kernels)
    g = torch.Generator().manual_seed(2)
    geometry = [meta[k].detach().contiguous() for k in ("means2d", "conics", "opacities")]
    inputs: dict[str, Tensor] = dict(zip(("means2d", "conics", "opacities"), geometry, strict=True))
    inputs["colors"] = torch.randn(*geometry[2].shape, scene.tensors["colors"].shape[-1], generator=g)
    lists = (scene.width, scene.height, meta["tile_size"], meta["isect_offsets"], meta["flatten_ids"])
    sides = kernel_sides(scene, meta, kernels)
    # Over a few pixels a sum of signed gradients may cancel; of several upstream gradients not all do.
    upstreams = [random_upstream(scene, seed) for seed in range(1, 5)]

    def run(dtype: torch.dtype, kernel: bool) -> dict[str, Tensor]:
        place = kernels.device if kernel else "cpu"
        leaves = {k: v.to(place, dtype, copy=True).requires_grad_() for k, v in inputs.items()}
        used = {
            k: _planted_by_gaussian(v, fault[1]) if kernel and fault and fault[0] == k else v for k, v in leaves.items()
        }
        order = (used["means2d"], used["conics"], used["colors"], used["opacities"])
        if kernel:
            out, alphas = rasterize_to_pixels(
                *order,
                *lists[:3],
                *(x.to(place) for x in lists[3:]),
                backend=kernels.backend,
                deterministic=kernels.deterministic,
            )
        else:
            flat = [x.reshape(-1, *x.shape[geometry[2].dim() :]) for x in order]
            tiles = meta["isect_offsets"].flatten(0, -3)
            image = rasterize.rasterize(*flat, *lists[:3], tiles, lists[4], sides=sides)
            out = image.colors.reshape(upstreams[0][0].shape)
            alphas = 1 - image.transmittance.reshape(*upstreams[0][0].shape[:-1], 1)
        grads = [_gradients((out, alphas), leaves, v, again=True) for v in upstreams]
        return {"colors out": out, "alphas out": alphas} | {k: torch.stack([g[k] for g in grads]) for k in leaves}

    kernel, single, truth = run(torch.float32, True), run(torch.float32, False), run(torch.float64, False)
    return [gate(name, kernel[name], truth[name], single[name]) for name in truth]


def gate_project(scene: Scene, kernels: Kernels = CPU) -> list[GateResult]:
    """The projection alone against fp64: outputs, and gradients of means, quats, scales, viewmats and Ks."""
    names, batch = ("means", "quats", "scales", "viewmats", "Ks"), scene.tensors["means"].shape[:-2]
    B, C, N = batch.numel(), scene.tensors["viewmats"].shape[-3], scene.tensors["means"].shape[-2]
    antialiased = scene.options.get("rasterize_mode") == "antialiased"
    camera = Camera(scene.width, scene.height, antialiased=antialiased)
    outputs = ("means2d", "depths", "conics", "compensations")[: 4 if antialiased else 3]
    g = torch.Generator().manual_seed(3)
    upstream = [torch.randn(B, C, N, *tail, generator=g) for tail in ((2,), (), (3,), ())[: len(outputs)]]

    def run(world: Scene, dtype: torch.dtype, kernel: bool, visible: Tensor | None = None):
        place = kernels.device if kernel else "cpu"
        leaves = {k: world.tensors[k].to(place, dtype, copy=True).requires_grad_() for k in names}
        means, quats, scales = (leaves[k].reshape(B, N, n) for k, n in zip(names, (3, 4, 3), strict=False))
        viewmats, Ks = leaves["viewmats"].reshape(B, C, 4, 4), leaves["Ks"].reshape(B, C, 3, 3)
        opacities = world.tensors["opacities"].to(place, dtype).reshape(B, N)
        if kernel:
            got = project_gaussians(
                means, None, quats, scales, viewmats, Ks, scene.width, scene.height,
                calc_compensations=antialiased, opacities=opacities, backend=kernels.backend,
            )  # fmt: skip
        else:
            got = projection.project(means, (quats, scales), opacities, viewmats, Ks, camera, visible=visible)
        values = [getattr(got, name) for name in outputs]
        grads = _gradients(values, leaves, upstream)
        named = dict(zip(outputs, values, strict=True)) | grads
        return got.radii.detach().cpu(), {k: v.detach().cpu() for k, v in named.items()}

    radii, got = run(scene, torch.float32, True)
    visible, limits, truths = (radii > 0).all(-1), dict.fromkeys(got, FLOOR), {}
    for size in SIZES:
        world = resized(scene, size)
        _, truth = run(world, torch.float64, False, visible)
        truths = truths or truth
        for name, single in run(world, torch.float32, False, visible)[1].items():
            limits[name] = max(limits[name], HEADROOM * relative_error(single, truth[name]))
    # Radii are rounded up: one apart is fine, or what rounding does to large ones; one may be culled on one side only.
    want = run(scene, torch.float64, False)[0]
    apart = ((radii - want).abs() > 1 + 1e-4 * want).any(-1)
    gates = [GateResult(name, relative_error(got[name], truths[name]), limits[name]) for name in got]
    return [*gates, GateResult("radii", float(apart.sum()), 1.0)]


def _planted_by_gaussian(tensor: Tensor, fault: Fault) -> Tensor:
    """A fault on the gradient of [images, N, ...], whose rows are the Gaussians of all images."""
    return planted(tensor.flatten(0, 1), fault).unflatten(0, tensor.shape[:2])


def disputed_pixels(scene: Scene, meta: dict, sides: Tensor) -> int:
    """Pixels where a decision of the kernels differs from fp64's on the same projected Gaussians."""
    means2d, conics, opacities = (meta[k].detach().double() for k in ("means2d", "conics", "opacities"))
    means2d, conics, opacities = means2d.reshape(-1, 2), conics.reshape(-1, 3), opacities.reshape(-1)
    size, offsets = meta["tile_size"], meta["isect_offsets"]
    bounds = [*offsets.flatten().tolist(), meta["flatten_ids"].numel()]
    index = torch.arange(size**2)
    disputed = 0
    for tile, (start, end) in enumerate(itertools.pairwise(bounds)):
        row, column = tile // offsets.shape[-1] % offsets.shape[-2], tile % offsets.shape[-1]
        x, y = column * size + index % size, row * size + index // size
        g = meta["flatten_ids"][start:end].long()
        own = rasterize.own_sides(means2d[g], conics[g], opacities[g], torch.stack([x, y], -1) + 0.5)
        inside = (x < scene.width) & (y < scene.height)
        disputed += int(((own != sides[start:end]).any(0) & inside).sum())
    return disputed
