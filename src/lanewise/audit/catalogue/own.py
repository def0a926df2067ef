"""Lanewise's own operators: what the owner of a GPU that nobody has tried runs first."""

from __future__ import annotations

from lanewise.audit.catalogue.torch_convolutions import CONVOLUTIONS
from lanewise.audit.spec import Input, Spec

_SINGLE = ("float32",)  # kernels are single precision; everything else runs the reference
_AS_DRAWN = ("normal",)  # positions, rotations and opacities have scales of their own
_CAMERA = "torch.eye(4, {where}).expand({shape}).contiguous()"
_INTRINSICS = "torch.tensor([[20.0, 0, 16], [0, 20, 12], [0, 0, 1]], {where}).expand({shape}).contiguous()"
_SCENE = (
    Input("means", "N 3", "torch.randn({shape}, {on}) + torch.tensor([0.0, 0.0, 6.0], {where})"),
    Input("quats", "N 4", "torch.randn({shape}, {on})"),
    Input("scales", "N 3", "torch.rand({shape}, {on}) * 0.5 + 0.05"),
    Input("opacities", "N", "torch.rand({shape}, {on}) * 0.8 + 0.1", "constant"),
    Input("viewmats", "V 4 4", _CAMERA),
    Input("Ks", "V 3 3", _INTRINSICS),
)

_SPLAT = (
    Spec(
        "spherical_harmonics",
        "spherical_harmonics(degree, dirs, coeffs)",
        (Input("dirs", "V N 3"), Input("coeffs", "V N 16 D")),
        {"V": 2, "N": 37, "D": 3},
        options={"degree": (3, 2, 1, 0)},
        linear=("coeffs",),
        setup="from lanewise.splat import spherical_harmonics",
        dtypes=_SINGLE,
        values=_AS_DRAWN,
        compiles=True,
    ),
    Spec(
        "project_gaussians",
        "p = project_gaussians(means[None], None, quats[None], scales[None], viewmats[None], Ks[None], 32, 24)\n"
        "return p.means2d, p.depths, p.conics",
        tuple(tensor for tensor in _SCENE if tensor.name != "opacities"),
        {"N": 37, "V": 2},
        setup="from lanewise.splat import project_gaussians",
        dtypes=_SINGLE,
        values=_AS_DRAWN,
        compiles=True,
    ),
    Spec(
        "rasterization (colors)",
        "return rasterization(means, quats, scales, opacities, colors, viewmats, Ks, W, H, backgrounds=backgrounds)[0]",
        (
            *(Input(t.name, t.dims, t.draw, "constant") for t in _SCENE),
            Input("colors", "N D", "torch.rand({shape}, {on})"),
            Input("backgrounds", "V D", "torch.rand({shape}, {on})"),
        ),
        {"N": 37, "V": 2, "D": 3, "W": 32, "H": 24},
        linear=("colors", "backgrounds"),
        setup="from lanewise.splat import rasterization",
        dtypes=_SINGLE,
        values=_AS_DRAWN,
        compiles=True,
    ),
    Spec(
        "photometric_loss",
        "photometric_loss(render, target)",
        (
            Input("render", "B H W 3", "torch.rand({shape}, {on})"),
            Input("target", "B H W 3", "torch.rand({shape}, {on})", "constant"),
        ),
        {"B": 2, "H": 24, "W": 32},
        setup="from lanewise.train.photometric import photometric_loss",
        dtypes=_SINGLE,
        values=_AS_DRAWN,
        compiles=True,
    ),
)

_CONVOLUTIONS = tuple(
    conv.spec(f"lanewise.{conv.name}", conv.call, setup=f"from lanewise.conv import {conv.function}", compiles=True)
    for conv in CONVOLUTIONS
)

SPECS: tuple[Spec, ...] = (*_SPLAT, *_CONVOLUTIONS)
