"""What is executed: small inputs around the boundaries of waves, blocks and tiles, and the gate for each.

Every case runs the product's own operators, forward and backward, wherever launches go to, and compares what comes out
with the fp64 reference.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lanewise.audit.gate import FLOOR, GateResult, gate, relative_error
from lanewise.prove.conv_gate import Layer, gate_convolution
from lanewise.prove.made_gate import gate_beginnings, gate_lists, gate_long_lists, gate_pictures, kept
from lanewise.prove.scenes import Scene, make_scene
from lanewise.prove.splat_gate import (
    Kernels,
    Truth,
    gate_project,
    gates_of,
    kernel_run,
    kernel_sides,
    random_upstream,
    replayed_truth,
)
from lanewise.prove.training_gate import (
    AdamState,
    Place,
    gate_adam,
    gate_photometric,
    gate_statistics,
    gate_total,
    pictures,
)
from lanewise.splat import project_gaussians, spherical_harmonics
from lanewise.train.photometric import photometric_loss

HERE = Place("triton")
PROJECT = ("projection.project", "projection.project_backward")
# Coarse lists that are sorted one by one, and all together: those of a given capacity, and the longest.
LISTS = ("binning.count", "binning.begin_lists", "binning.emit", "binning.sort_lists", "binning.divide")
TOGETHER = ("binning.count", "binning.emit", "binning.divide_count", "binning.divide")
SHADE = ("rasterize.pack", "rasterize.composite", "rasterize.composite_backward", "rasterize.pair_sides")
HARMONICS = ("sh.harmonics", "sh.harmonics_backward")
SUMS = ("conv.bias_grad", "conv.add_parts")
DENSE = ("conv.correlate", "conv.weight_grad", "conv.transpose", *SUMS)
WINDOWS = ("conv.correlate", "conv.windows", "conv.windows_weight", "conv.transpose", *SUMS)
DEPTHWISE = ("conv.depthwise", "conv.depthwise_weight", "conv.transpose", *SUMS)
POINTWISE = ("conv.narrow", "conv.pointwise_weight", "conv.transpose", *SUMS)
WIDE = ("conv.wide", *POINTWISE[1:])
LOSS = ("photometric.similarity", "photometric.total", "photometric.gradient")


@dataclass(frozen=True)
class Case:
    """Inputs of an operator, and how its outputs and gradients stand.

    Attributes:
        name: what is special about the inputs.
        kernels: which kernels are launched; a case that launches another fails.
        gates: runs the operator and compares.
        quick: whether `--quick` takes it.
    """

    name: str
    kernels: tuple[str, ...]
    gates: Callable[[], list[GateResult]]
    quick: bool = False

    @property
    def group(self) -> str:
        """Cases of one group launch much the same kernels."""
        return "rasterize" if set(SHADE) & set(self.kernels) else self.kernels[0].partition(".")[0]


@functools.cache
def cases() -> tuple[Case, ...]:
    """All of them; the same ones everywhere."""
    return (*_scenes(), *_lists(), *_projections(), *_harmonics(), *_training(), *_convolutions())


def _scenes() -> Iterator[Case]:
    """`rasterization`, its lists and decisions: numbers of Gaussians around 32 and 64, of pixels around tiles of 8.

    Pictures are as small as they can be and still cross what they are to cross: every tile more costs each of the
    orders in which waves run one by one.
    """

    def scene(name: str, more: tuple[str, ...] = (), *, quick: bool = False, ordered: bool = False, **how: Any) -> Case:
        wide = how.pop("wide", False)
        run = functools.partial(_gate_scene, make_scene(3, **how), ordered, wide)
        lists = ("binning.begin_lists", *TOGETHER) if wide else TOGETHER if "isect_capacity" in how else LISTS
        return Case(name, (*PROJECT, *lists, *SHADE, *more, *["rasterize.sum_records"] * ordered), run, quick)

    yield Case("no Gaussians", ("rasterize.composite",), functools.partial(_gate_nothing, 9, 7))
    yield scene("1 Gaussian, 1 pixel", N=1, width=1, height=1)
    yield scene("31 Gaussians, 7 x 9, one channel", N=31, width=7, height=9, channels=1)
    third = {"sh_degree": 3, "background": True}
    yield scene("32 Gaussians, 8 x 8, 3rd degree, background", HARMONICS, N=32, width=8, height=8, **third)
    yield scene("33 Gaussians, 9 x 8, ordered", ordered=True, quick=True, N=33, width=9, height=8)
    name = "33 Gaussians, 2 cameras, 8 x 9, 3rd degree, antialiased"
    smooth: dict[str, Any] = {"rasterize_mode": "antialiased"}
    yield scene(name, HARMONICS, quick=True, N=33, C=2, width=8, height=9, sh_degree=3, **smooth)
    yield scene("63 Gaussians, 15 x 7, five channels", N=63, width=15, height=7, channels=5)
    name = "33 Gaussians, near, needles, 2 scenes of 2 cameras, 7 x 8, 2nd degree, ordered"
    needles: dict[str, Any] = {"near": True, "shapes": "needles", "sh_degree": 2}
    yield scene(name, HARMONICS, ordered=True, N=33, batch=(2,), C=2, width=7, height=8, **needles)
    name = "33 Gaussians, tiles of 16, 17 x 9, absolute gradients"
    yield scene(name, N=33, width=17, height=9, tile_size=16, absgrad=True)
    yield scene("65 Gaussians, tiles of 4, 5 x 5", N=65, width=5, height=5, tile_size=4)
    yield scene("33 Gaussians, long lists: 64-bit bounds, two parts", N=33, width=8, height=9, wide=True)
    run = functools.partial(_gate_masks, make_scene(3, N=33, width=9, height=9, tile_size=8))
    yield Case("33 Gaussians, masked tiles", (*PROJECT, *LISTS, *SHADE), run)
    name = "33 Gaussians of 2 cameras, shared colours, no gradient of alphas"
    yield scene(name, quick=True, N=33, C=2, width=9, height=8, alphas=False)
    # As in training: cameras are fixed, the loss looks at colours alone, and nothing waits for the lists.
    training = {"background": True, "alphas": False, "fixed": ("viewmats", "Ks", "backgrounds"), "height": 8}
    training["isect_capacity"] = (300, 299)
    name = "64 Gaussians, 3rd degree, as in training"
    yield scene(name, HARMONICS, quick=True, N=64, width=9, sh_degree=3, **training)
    name = "31 Gaussians, 2 cameras, first degree, as in training"
    yield scene(name, HARMONICS, N=31, C=2, width=8, sh_degree=1, **training)
    name = "33 Gaussians, absolute gradients, as in training"
    yield scene(name, HARMONICS, N=33, width=8, sh_degree=1, absgrad=True, **training)
    name = "32 Gaussians, antialiased, as in training"
    yield scene(name, HARMONICS, N=32, width=8, sh_degree=1, **smooth, **training)
    # An empty tile, a block of Gaussians that none is seen of, and Gaussians of many tiles.
    yield scene("33 Gaussians, one behind, 49 x 17, ordered", ordered=True, N=33, behind=1, width=49, height=17)
    yield scene("129 Gaussians, 8 x 9, first degree", HARMONICS, N=129, width=8, height=9, sh_degree=1)


def _gate_scene(scene: Scene, ordered: bool, wide: bool) -> list[GateResult]:
    kernels, upstream = Kernels("triton", deterministic=ordered), random_upstream(scene)
    with kept(wide) as made:
        outputs, grads, meta = kernel_run(scene, upstream, kernels=kernels)
        sides = kernel_sides(scene, meta, kernels)
    n = int(meta["tiles_per_gauss"].sum())  # what is behind the lists of a given capacity is not theirs
    meta["flatten_ids"], sides = meta["flatten_ids"][:n], sides[:n]
    truth = _truth(scene, meta, sides)
    decisions = GateResult("decisions", max(truth.excess, 0.0), 0.0)
    return [*gates_of(truth, outputs, grads), decisions, *gate_lists(scene, meta, made), *gate_pictures(made)]


def _gate_masks(scene: Scene) -> list[GateResult]:
    """Tiles that are masked out are empty, the others as ever; outputs alone."""
    size, kernels = 8, Kernels("triton")
    across, down = -(-scene.width // size), -(-scene.height // size)
    masks = torch.arange(across * down).reshape(1, down, across) % 2 == 1
    masked = replace(scene, options={**scene.options, "tile_masks": masks})
    (colors, alphas), _, meta = kernel_run(masked, random_upstream(scene), kernels=kernels)
    truth = _truth(scene, meta, kernel_sides(scene, meta, kernels)).values
    pixels = masks.repeat_interleave(size, 1).repeat_interleave(size, 2)[:, : scene.height, : scene.width, None]
    return [
        GateResult(name, relative_error(got, truth[name] * pixels), FLOOR)
        for name, got in (("colors out", colors), ("alphas out", alphas))
    ]


_truths: dict[Any, Truth] = {}


def _truth(scene: Scene, meta: dict, sides: Tensor) -> Truth:
    """The truth of a scene; kept, because targets and wave orders rarely decide otherwise."""
    decided = [sides, meta["isect_offsets"], meta["flatten_ids"], meta["radii"]]
    key = (id(scene), *(x.numpy().tobytes() for x in decided))
    if key not in _truths:
        _truths[key] = replayed_truth(scene, meta, sides)
    return _truths[key]


def _gate_nothing(width: int, height: int) -> list[GateResult]:
    """A picture of no Gaussians is the background."""
    scene = make_scene(3, N=0, width=width, height=height, background=True)
    (colors, alphas), _, _ = kernel_run(scene, random_upstream(scene), kernels=Kernels("triton"))
    background = scene.tensors["backgrounds"][:, None, None].expand_as(colors)
    return [
        GateResult("colors out", relative_error(colors, background), FLOOR),
        GateResult("alphas out", float(alphas.abs().sum()), 0.0),
    ]


def _lists() -> Iterator[Case]:
    """Coarse lists around a chunk of 512; their beginnings, 2048 at a time."""
    for n in (1, 2048, 4100):
        yield Case(f"beginnings of {n} lists", LISTS[1:2], functools.partial(gate_beginnings, n), quick=n == 4100)
    for N in (512, 513, 1030):
        kernels = (*LISTS, *["binning.merge_lists"] * (N > 512))
        yield Case(f"lists of {N} Gaussians", kernels, functools.partial(gate_long_lists, N), quick=N == 513)


def _projections() -> Iterator[Case]:
    """Blocks of 128 Gaussians; covariances in place of rotations and scales; compensations."""
    kernels = Kernels("triton")
    for N in (127, 128, 129):
        mode = "antialiased" if N == 128 else "classic"
        scene = make_scene(5, N=N, C=2 if N == 129 else 1, near=N == 127, rasterize_mode=mode)
        yield Case(f"{N} Gaussians", PROJECT, functools.partial(gate_project, scene, kernels), quick=N == 129)
    yield Case("65 covariances", PROJECT, functools.partial(_gate_covariances, make_scene(6, N=65)))


def _gate_covariances(scene: Scene) -> list[GateResult]:
    g = torch.Generator().manual_seed(8)
    L = torch.randn(65, 3, 3, generator=g) * 0.2
    inputs = {"means": scene.tensors["means"][None], "covars": (L @ L.mT + 1e-3 * torch.eye(3))[None]}
    upstream = torch.randn(1, 1, 65, 3, generator=g)

    def run(dtype: torch.dtype, backend: Any) -> dict[str, Tensor]:
        leaves = {k: v.to(dtype, copy=True).requires_grad_() for k, v in inputs.items()}
        viewmats, Ks = (scene.tensors[k][None].to(dtype) for k in ("viewmats", "Ks"))
        got = project_gaussians(
            leaves["means"], leaves["covars"], None, None, viewmats, Ks, scene.width, scene.height, backend=backend
        )
        values = {"means2d": got.means2d, "conics": got.conics, "depths": got.depths}
        seen = (got.radii > 0).all(-1, keepdim=True)
        shown = [torch.where(seen, v.reshape(1, 1, 65, -1), 0) for v in values.values()]
        upstreams = [upstream[..., : v.shape[-1]].to(dtype) for v in shown]
        grads = torch.autograd.grad(shown, list(leaves.values()), upstreams)
        return {k: v.detach() for k, v in values.items()} | dict(zip(("v_means", "v_covars"), grads, strict=True))

    got, single, truth = run(torch.float32, "triton"), run(torch.float32, "reference"), run(torch.float64, "reference")
    return [gate(name, got[name], truth[name], single[name]) for name in truth]


def _harmonics() -> Iterator[Case]:
    """Every degree, for blocks of 128 Gaussians; those of one camera and of several are launched differently."""
    for degree, N in enumerate((127, 128, 129, 129, 129)):
        for cameras in (1, 2) if degree < 4 else (1,):
            name = f"{N} Gaussians, {cameras} cameras, degree {degree}"
            yield Case(name, HARMONICS, functools.partial(_gate_harmonics, degree, N, cameras))


def _gate_harmonics(degree: int, N: int, cameras: int) -> list[GateResult]:
    """Coefficients reach to the fourth degree, as where the degree rises in training; some Gaussians are not seen."""
    g = torch.Generator().manual_seed(N + degree)
    inputs = {"v_dirs": torch.randn(cameras, N, 3, generator=g), "v_coeffs": torch.randn(1, N, 25, 3, generator=g)}
    seen, upstream = torch.rand(cameras, N, generator=g) > 0.2, torch.randn(cameras, N, 3, generator=g)

    def run(dtype: torch.dtype, backend: Any) -> dict[str, Tensor]:
        dirs, coeffs = leaves = [v.to(dtype, copy=True).requires_grad_() for v in inputs.values()]
        colors = spherical_harmonics(degree, dirs, coeffs, seen, backend=backend)
        grads = torch.autograd.grad(colors, leaves, upstream.to(dtype), materialize_grads=True)
        return {"colors": colors.detach(), **dict(zip(inputs, grads, strict=True))}

    got, single, truth = run(torch.float32, "triton"), run(torch.float32, "reference"), run(torch.float64, "reference")
    return [gate(name, got[name], truth[name], single[name]) for name in truth]


def _training() -> Iterator[Case]:
    """Loss: windows of 11, strips of 32 rows and 128 columns. Adam: blocks of 1024. Statistics: blocks of 256."""
    for name, inputs, weight, quick in (
        ("2 pictures, 12 x 13 x 3, masked", pictures((2, 12, 13, 3), masked=True), 0.2, True),
        ("one picture, 13 x 12 x 3", pictures((1, 13, 12, 3)), 0.2, False),
        ("one picture, 13 x 12 x 3, differences alone", pictures((1, 13, 12, 3)), 0.0, False),
        ("smooth, two strips of rows", pictures((1, 43, 11, 1), smooth=True), 0.2, False),
        ("two strips of columns", pictures((1, 11, 129, 1)), 0.2, False),
        ("four channels, masked, similarity alone", pictures((1, 11, 11, 4), smooth=True, masked=True), 1.0, False),
        ("differences alone, masked", pictures((1, 33, 43, 3), masked=True), 0.0, False),
        ("differences alone, one pixel", pictures((2, 1, 1, 1)), 0.0, False),
    ):
        yield Case(name, LOSS, functools.partial(gate_photometric, inputs, weight, HERE), quick)
    yield Case(
        "loss without a gradient", LOSS[:2], functools.partial(_gate_loss, pictures((1, 12, 13, 3), masked=True))
    )
    yield Case("loss of 1025 programs", LOSS[1:2], functools.partial(gate_total, 512), quick=True)
    for N in (1, 31, 32, 33, 63, 64, 65, 1023, 1024, 1025):
        state = AdamState((N,), steps=1)
        yield Case(f"{N} parameters", ("adam.step",), functools.partial(gate_adam, state, HERE), N == 1025)
    # Of Gaussians' tensors; without a selection rows do not matter.
    guarded = ((65, 3), (65, 4), (65,), (65, 1, 3), (65, 3, 3), (65, 8, 3), (33, 15, 3), (97, 3))
    for shape in guarded:
        selective = shape[0] != 97
        state = AdamState(shape, selective=selective, skip=0, steps=2)
        name = f"{[*shape]} parameters, {'selective, ' * selective}guarded"
        yield Case(name, ("adam.step",), functools.partial(gate_adam, state, HERE), shape == (33, 15, 3))
    for N, cameras in ((1, 1), (31, 3), (32, 1), (33, 2), (63, 1), (64, 2), (65, 1), (255, 2), (256, 1), (257, 3)):
        options: dict[str, Any] = {"strided": N == 33, "widest": N not in (63, 64, 256, 257), "slices": N > 255}
        options["skip"] = 0 if N in (31, 64, 65, 256, 257) else None
        run = functools.partial(gate_statistics, HERE, cameras, N, **options)
        yield Case(f"{N} Gaussians, {cameras} cameras", ("statistics.observe",), run, N in (65, 257))


def _convolutions() -> Iterator[Case]:
    """Blocks of 16 and 32 channels, and of 64 pixels; images at 0, past 2^31 and past 2^32 bytes of one slice."""
    half, brain = torch.float16, torch.bfloat16
    padded: dict[str, Any] = {"padding": (1, 1)}
    last: dict[str, Any] = {"channels_last": True}
    far: dict[str, Any] = {"apart": 2**29 - 2**8, "n": 3}  # 2^29 numbers are 2^31 bytes
    steps: dict[str, Any] = {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0), "groups": 2, "dot": "ieee"}
    deep: dict[str, Any] = {"kernel": (3, 3), "groups": 3, "extent": (3, 4), "c": 3}
    for name, kernels, quick, layer in (
        ("2x2, 33 to 17 channels", WINDOWS, True, Layer(1, 33, 17, (4, 5), (2, 2), **padded, **last)),
        (  # more weights along W than the compiler makes one turn of a loop of
            "1x9, steps, groups, images past 2^31 and 2^32, ieee",
            WINDOWS,
            False,
            Layer(c=4, k=4, extent=(2, 12), **{**steps, "kernel": (1, 9)}, **far),
        ),
        (
            "3x2, steps, groups, images past 2^31 and 2^32, ieee, too large for copies",
            DENSE,
            False,
            Layer(c=8, k=6, extent=(5, 4), windows=False, **steps, **far),
        ),
        ("2x2, 32 to 33 channels, fp16", DENSE, False, Layer(1, 32, 33, (4, 5), (2, 2), dtype=half, **padded, **last)),
        ("3x3 on 3 channels, step 2, bf16", DENSE, True, Layer(1, 3, 8, (6, 5), (3, 3), (2, 2), (1, 1), dtype=brain)),
        ("1x1, images past 2^31 and 2^32", POINTWISE, True, Layer(c=17, k=33, extent=(1, 12), **far)),
        ("1x1, 129 channels, fp16", WIDE, True, Layer(1, 129, 16, (1, 34), dtype=half)),
        ("depthwise, 2 for 1, images past 2^31 and 2^32", DEPTHWISE, True, Layer(k=6, **deep, **padded, **far)),
        ("depthwise, images past 2^31 and 2^32", DEPTHWISE, False, Layer(k=3, **deep, **padded, **far, **last)),
    ):
        yield Case(f"convolution {name}", kernels, functools.partial(gate_convolution, layer), quick)


def _gate_loss(inputs: tuple[Tensor, Tensor, Tensor | None]) -> list[GateResult]:
    render, target, mask = inputs
    got = photometric_loss(render, target, mask, backend="triton")
    truth = photometric_loss(render.double(), target.double(), mask, backend="reference")
    return [GateResult("loss", relative_error(got, truth), FLOOR)]
