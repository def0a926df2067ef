"""`rasterization` beside gsplat's, on the same GPU in the same run.

usage: python benchmarks/splat_vs_gsplat.py [--repeats N] [--scenes A,B,C] [--cameras 1,4]

Scenes of clustered Gaussians at 1920x1080: A 1M, B 1M twice as large, C 4M smaller; with one camera, and with a batch
of four. The gate comes first: our gradients against the fp64 reference on a small scene, then both renderers'
pictures against each other. A red gate prints no figures.
"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version

import torch
from _harness import write
from _scenes import HEIGHT, SCENES, WIDTH, compare, gate_is_green, scene, show


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--scenes", default="A,B,C")
    parser.add_argument("--cameras", default="1,4")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU on this machine: nothing ran")
        return 5
    if not gate_is_green():
        return 1
    rows = []
    for cameras in map(int, options.cameras.split(",")):
        for name in options.scenes.split(","):
            label = name if cameras == 1 else f"{name}_x{cameras}"
            rows.append(compare(label, scene(*SCENES[name], cameras=cameras), WIDTH, HEIGHT, options.repeats))
            show(rows[-1])
            torch.cuda.empty_cache()
    print(f"gsplat {version('gsplat')}; wrote {write('splat_vs_gsplat', rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
