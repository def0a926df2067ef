"""Run by tests/splat/test_interpreted.py in a process of its own: the Triton kernels in Triton's interpreter, against
the gate."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton

import sys
import warnings

import torch
from splat_lists import chunks
from splat_scenes import make_scene

import lanewise  # noqa: F401 - before torch
from lanewise.audit.gate import require
from lanewise.prove.splat_gate import Kernels, gate_rasterization, gate_rasterize, true_rasterization
from lanewise.splat import bin_gaussians, rasterization

SCENES = {
    "plain": {"N": 33},
    "needles near the camera, seven channels": {"N": 31, "near": True, "shapes": "needles", "channels": 7},
    "everything": {
        "N": 17,
        "batch": (2,),
        "C": 2,
        "sh_degree": 3,
        "background": True,
        "rasterize_mode": "antialiased",
        "tile_size": 16,
    },
    "one pixel": {"N": 7, "width": 1, "height": 1, "sh_degree": 4},
    "nothing": {"N": 0},
}


def main() -> None:
    warnings.simplefilter("ignore")  # the interpreter computes on numpy, masked lanes included
    torch.set_num_threads(1)
    for name, options in SCENES.items():
        scene = make_scene(3, **{"width": 17, "height": 11, **options})
        for deterministic in (False, True):
            kernels = Kernels("triton", "cpu", deterministic)
            truth = true_rasterization(scene, kernels)
            require(*gate_rasterization(scene, truth, kernels=kernels))
            assert truth.excess <= 0
        require(*gate_rasterize(scene, kernels=Kernels("triton")))
        _, _, meta = rasterization(
            **scene.tensors, width=17, height=11, sh_degree=scene.options["sh_degree"], backend="triton"
        )
        lists = [meta[k] for k in ("means2d", "radii", "depths", "conics", "opacities")]
        want = bin_gaussians(*lists, tile_size=meta["tile_size"], width=17, height=11, backend="reference")
        assert torch.equal(meta["flatten_ids"], want.flatten_ids)
        print("ok", name, flush=True)


if __name__ == "__main__":
    with chunks(8, 16):  # of coarse lists, which the interpreter sorts in less time than longer ones
        sys.exit(main())
