"""How `rasterization` grows with Gaussians, pixels and channels, beside gsplat's on the same GPU in the same run.

usage: python benchmarks/splat_scaling.py [--repeats N] [--rows NAME,NAME]

0.1M to 10M Gaussians at 1920x1080 (the more, the smaller: their volume stays), 0.5 to 8 megapixels, and 3 to 64
channels, the latter two with 1M Gaussians. The gate of `splat_vs_gsplat.py` comes first, then both renderers' pictures
of each row against each other. A red gate prints no figures.
"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from typing import NamedTuple

import torch
from _harness import write
from _scenes import HEIGHT, WIDTH, compare, gate_is_green, scene, show

MILLION = 1_000_000


class Size(NamedTuple):
    """What a row renders."""

    gaussians: int = MILLION
    width: int = WIDTH
    height: int = HEIGHT
    channels: int = 3


ROWS = {
    "0.1M": Size(gaussians=MILLION // 10),
    "1M": Size(),
    "4M": Size(gaussians=4 * MILLION),
    "10M": Size(gaussians=10 * MILLION),
    "0.5MP": Size(width=960, height=540),
    "8MP": Size(width=3840, height=2160),
    "16 channels": Size(channels=16),
    "64 channels": Size(channels=64),
}
LARGE = 4 * MILLION  # Gaussians from which on a third of the repeats are enough


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--rows", default=",".join(ROWS))
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU on this machine: nothing ran")
        return 5
    if not gate_is_green():
        return 1
    rows = []
    for name in options.rows.split(","):
        size = ROWS[name]
        spread = (MILLION / size.gaussians) ** (1 / 3)
        tensors = scene(size.gaussians, spread, size.width, size.height, channels=size.channels)
        repeats = options.repeats if size.gaussians < LARGE else -(-options.repeats // 3)
        rows.append(compare(name, tensors, size.width, size.height, repeats) | size._asdict())
        show(rows[-1])
        del tensors
        torch.cuda.empty_cache()
    print(f"gsplat {version('gsplat')}; wrote {write('splat_scaling', rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
