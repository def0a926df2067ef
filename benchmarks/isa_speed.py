"""Speed of the emulator of AMD machine code on the rasterizer's kernels; with `--prototype DIR`, beside the numpy
interpreter that it replaces (a folder with its amdsim.py).

    python benchmarks/isa_speed.py [--prototype DIR] [--arch gfx942,gfx1100] [--repeat 3]

Prints, and writes to results/isa_speed.json: seconds of the processor for a run, by kernel, target and order, the best
of --repeat, and the ratio where both have run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from lanewise.isa import load
from lanewise.splat.rasterize import kernels, kernels_backward
from lanewise.target.table import find

RESULTS = Path(__file__).parent / "results"
WIDTH, HEIGHT, TILE, GAUSSIANS, CHANNELS = 29, 21, 8, 24, 3
ORDERS = ("lockstep", "forward", "reverse")
TYPES = {"float32": "*fp32", "int32": "*i32"}


def compiled(kernel: Any, arguments: list[Any], constants: dict[str, Any], arch: str, jit: bool, **options: Any) -> Any:
    """The kernel's compilation for the types of the arguments; `jit` adds what the launcher knows of tensors."""
    signature: dict[str, str] = {}
    fixed: dict[tuple[int], Any] = {}
    attributes: dict[tuple[int], Any] = {}
    for k, name in enumerate(kernel.arg_names):
        value = arguments[k] if k < len(arguments) else constants[name]
        if k >= len(arguments) or value is None:
            signature[name], fixed[(k,)] = "constexpr", value
        elif isinstance(value, np.ndarray):
            signature[name] = TYPES[value.dtype.name]
            attributes[(k,)] = [["tt.divisibility", 16], ["tt.pointer_range", 32]]
        else:
            signature[name] = "i32"
    source = ASTSource(fn=kernel, signature=signature, constexprs=fixed, attrs=attributes if jit else None)
    return triton.compile(source, target=GPUTarget("hip", arch, find(arch).wave), options=options)


def cases() -> dict[str, tuple[Any, tuple[int, ...], list[Any], dict[str, Any], dict[str, Any]]]:
    """name -> (kernel, grid, arguments, constants, options): every Gaussian is on every tile's list."""
    g = np.random.default_rng(0)
    across, down = -(-WIDTH // TILE), -(-HEIGHT // TILE)
    tiles, M, pixels = across * down, GAUSSIANS, WIDTH * HEIGHT
    means = g.uniform(0, (WIDTH, HEIGHT), (M, 2)).astype(np.float32)
    conics = np.stack([g.uniform(0.02, 0.2, M), g.uniform(-0.01, 0.01, M), g.uniform(0.02, 0.2, M)], 1).astype(
        np.float32
    )
    opacities = g.uniform(0.1, 0.6, M).astype(np.float32)
    records = np.full((M, 6), np.nan, np.float32)
    packing = [means, conics, opacities, records, M, 1], {"SHARED": False, "BLOCK": 128}
    made = compiled(kernels.pack, *packing, "gfx1100", jit=False)
    load(made.asm["amdgcn"]).run((1,), packing[0], waves=made.metadata.num_warps, shared=made.metadata.shared)

    colors = g.random((M, CHANNELS), np.float32)
    bounds = (np.arange(tiles + 1) * M).astype(np.int32)
    ids = np.tile(np.arange(M, dtype=np.int32), tiles)
    out, alphas, T = np.zeros((pixels, CHANNELS), np.float32), np.zeros(pixels, np.float32), np.ones(pixels, np.float32)
    last = np.full(pixels, -1, np.int32)
    sizes = [WIDTH, HEIGHT, across, tiles, M, 1, CHANNELS]
    shapes = {"TILE": TILE, "SIDE": 8}
    forward = (
        kernels.composite, (tiles,), [records, colors, bounds, ids, None, None, out, alphas, T, last, *sizes, 0],
        {**shapes, "LOOK": 8, "C": CHANNELS, "ALL": True, "SHARED_COLORS": False, "MASKED": False, "BACKGROUND": False},
        {"num_warps": 1},
    )  # fmt: skip
    made = compiled(*forward[:1], *forward[2:4], "gfx1100", jit=False, num_warps=1)
    load(made.asm["amdgcn"]).run((tiles,), [x for x in forward[2] if x is not None])  # T and last, for the way back
    v_colors, v_alphas = g.standard_normal((pixels, CHANNELS), np.float32), g.standard_normal(pixels, np.float32)
    v = np.zeros((M, CHANNELS + 6), np.float32)
    backward = (
        kernels_backward.composite_backward, (tiles,),
        [records, colors, bounds, ids, None, T, last, v_colors, v_alphas, v, *sizes, CHANNELS + 6],
        {**shapes, "C": CHANNELS, "SHARED_COLORS": False, "BACKGROUND": False, "ALPHAS": True, "ABSGRAD": False,
         "ORDERED": False},
        {"num_warps": 1},
    )  # fmt: skip
    return {"composite": forward, "composite_backward": backward}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--prototype", type=Path, help="folder with amdsim.py")
    parser.add_argument("--arch", default="gfx942,gfx1100")
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    prototype = None
    if args.prototype:
        sys.path.insert(0, str(args.prototype))
        import amdsim as prototype  # type: ignore[import-not-found]
    rows = []
    for name, (kernel, grid, arguments, constants, options) in cases().items():
        for arch in args.arch.split(","):
            for jit in (True, False):
                made = compiled(kernel, arguments, constants, arch, jit, **options)
                given = [x for x in arguments if x is not None]
                for order in ORDERS:
                    rows.append(measure(name, arch, jit, order, made, grid, given, args.repeat, prototype))
                    print(rows[-1], flush=True)
    both = [row for row in rows if row["ratio"]]
    if both:
        total = sum(row["prototype_s"] for row in both) / sum(row["seconds"] for row in both)
        print(f"all runs: {total:.2f} times the prototype's speed")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "isa_speed.json").write_text(json.dumps({"triton": triton.__version__, "rows": rows}, indent=1) + "\n")
    return 0


def measure(
    name: str, arch: str, jit: bool, order: str, made: Any, grid: tuple[int, ...], given: list[Any], repeat: int,
    prototype: Any,
) -> dict[str, Any]:  # fmt: skip
    """One row of the results."""
    text, data = made.asm["amdgcn"], made.metadata
    program = load(text)

    def fresh() -> list[Any]:
        return [x.copy() if isinstance(x, np.ndarray) else x for x in given]

    runs = [program.run(grid, fresh(), waves=data.num_warps, shared=data.shared, order=order) for _ in range(repeat)]
    seconds, theirs = min(run.seconds for run in runs), None
    if prototype is not None:
        whole = (*grid, 1, 1)[:3]
        wave = program.wave
        decoded = prototype.Prog(text, data.name, wave)
        how = (text, data.name, arch, wave, data.num_warps, data.shared, whole)
        with mock.patch("time.time", time.process_time):  # which it measures itself with
            theirs = min(prototype.launch(*how, fresh(), order, decoded)[1] for _ in range(repeat))
    return {
        "kernel": name, "arch": arch, "jit": jit, "order": order, "wave_instructions": runs[0].wave_instructions,
        "seconds": round(seconds, 4), "prototype_s": theirs and round(theirs, 4),
        "ratio": theirs and round(theirs / seconds, 2),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
