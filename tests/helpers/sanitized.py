"""Every Triton kernel on small scenes, for a tool that watches the memory; its results are checked elsewhere.

usage: compute-sanitizer --tool memcheck|racecheck|initcheck python tests/helpers/sanitized.py

torch's allocator hands out parts of large blocks, in which a read past a tensor hits another one: without
PYTORCH_NO_CUDA_MEMORY_CACHING=1, which this sets, memcheck would not notice. Exits with 5 where there is no GPU.
"""

import os
import sys
from typing import Any

import torch
from splat_scenes import Scene, make_scene
from torch import Tensor

import lanewise  # noqa: F401 - before torch
from lanewise.prove.splat_gate import random_upstream
from lanewise.splat import rasterization
from lanewise.splat.rasterize.decisions import pair_sides
from lanewise.train.adam import adam_coefficients, adam_step
from lanewise.train.photometric import photometric_loss
from lanewise.train.strategy.statistics import observe

SCENES: dict[str, dict[str, Any]] = {
    "plain": {"N": 33},
    "everything": {"N": 65, "C": 2, "batch": (2,), "sh_degree": 3, "background": True, "rasterize_mode": "antialiased"},
    "many channels, shared by three cameras": {"N": 33, "C": 3, "channels": 17, "background": True},
    "no channels": {"N": 33, "channels": 0},
    "odd tiles": {"N": 33, "tile_size": 12},
    "small tiles": {"N": 33, "tile_size": 4},
    "room to spare": {"N": 65, "C": 2, "isect_capacity": 5000},
    "lists that do not fit": {"N": 65, "C": 2, "isect_capacity": (50, 40)},
    "coarse lists that do not fit": {"N": 65, "C": 2, "isect_capacity": (5000, 20)},
    "coarse lists of several chunks": {"N": 1500},
    "nothing": {"N": 0},
}


def splat(scene: Scene, device: str, deterministic: bool, absgrad: bool) -> dict[str, Tensor]:
    """One forward and backward pass; the gradients by name."""
    leaves = {k: v.to(device).requires_grad_() for k, v in scene.tensors.items()}
    colors, alphas, meta = rasterization(
        **leaves, width=scene.width, height=scene.height, **scene.options, deterministic=deterministic, absgrad=absgrad
    )
    upstream = [v.to(device) for v in random_upstream(scene)]
    grads = torch.autograd.grad((colors, alphas), list(leaves.values()), upstream, materialize_grads=True)
    if "isect_capacity" not in scene.options:
        lists = (scene.width, scene.height, meta["tile_size"], meta["isect_offsets"], meta["flatten_ids"])
        pair_sides(*(meta[k].detach().contiguous() for k in ("means2d", "conics", "opacities")), *lists)
    return dict(zip(leaves, grads, strict=True))


def train(device: str) -> None:
    """The operators that training adds."""
    g = torch.Generator().manual_seed(0)
    render, target = (torch.rand(2, 43, 35, 3, generator=g).to(device) for _ in range(2))
    mask = (torch.rand(2, 43, 35, generator=g) > 0.2).to(device)
    photometric_loss(render.requires_grad_(), target, mask).backward()
    photometric_loss(render, target, ssim_weight=1.0).backward()

    visible, skip = (torch.rand(97, generator=g) > 0.5).to(device), torch.zeros(1, dtype=torch.int32, device=device)
    param, grad = (torch.randn(97, 3, generator=g).to(device) for _ in range(2))
    moments = torch.zeros_like(param), torch.zeros_like(param)
    coefficients = param.new_tensor(adam_coefficients(1e-3, 1, (0.9, 0.999)))
    for rows in (None, visible):
        adam_step(param, grad, *moments, coefficients, betas=(0.9, 0.999), eps=1e-15, visible=rows, skip=skip)

    v_means2d = torch.randn(3, 97, 2, generator=g).to(device)
    radii = torch.randint(0, 3, (3, 97, 2), generator=g, dtype=torch.int32).to(device)
    grad2d, count, widest = (torch.zeros(97, device=device) for _ in range(3))
    observe(v_means2d, radii, 35, 43, grad2d, count, widest, skip=skip)


def main(device: str = "cuda") -> int:
    if device == "cuda":
        os.environ.setdefault("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")  # before anything is allocated
        if not torch.cuda.is_available():
            print("no GPU on this machine: nothing ran")
            return 5
    for name, options in SCENES.items():
        for deterministic in (False, True):
            splat(make_scene(3, **{"width": 33, "height": 21, **options}), device, deterministic, absgrad=deterministic)
        print("ran", name, flush=True)
    train(device)
    if device == "cuda":
        torch.cuda.synchronize()
    print("ran training's operators")
    return 0


if __name__ == "__main__":
    sys.exit(main())
