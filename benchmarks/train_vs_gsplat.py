"""`lanewise.train` beside a trainer around gsplat 1.5.3, on the same GPU, captures and seeds.

usage: python benchmarks/train_vs_gsplat.py --data DIR [--part PART,PART] [--sets SET,SET] [--seeds N,N] [--steps N]

DIR holds the captures as folders (`chair_800` in Blender's layout, `miku_undist` in COLMAP's). The parts are

- ours: `lanewise.train` as it is;
- swapped: the same trainer with gsplat's rasterizer behind it;
- baseline: a plain training loop around gsplat (see `_baseline.py`);
- baseline_fused: that loop with our loss and our optimizer step.

PSNR and SSIM are means over the views held out. Seconds are those of the training steps with their densification, from
the first to the last, without decoding and without evaluation; what compiles and captures beforehand is
`warmup_seconds`. Every run is added to results/train_vs_gsplat.json at once (replacing the same one of before), so that
parts can be run one at a time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from _harness import merge
from torch import Tensor

from lanewise.train import TrainConfig, train
from lanewise.train.data import TrainingData, load_data

KEY = ("set", "part", "steps", "seed")
RESETS = "opacities are reset every 3,000 steps by our strategy (ours, swapped) and never by gsplat 1.5.3's (baseline)"


def gsplat_renderer(
    params: Mapping[str, Tensor],
    viewmats: Tensor,
    Ks: Tensor,
    width: int,
    height: int,
    *,
    sh_degree: int,
    backgrounds: Tensor | None = None,
) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """gsplat's `rasterization` with the contract of `lanewise.train.render.Renderer`."""
    import gsplat  # pyright: ignore[reportMissingImports] (the peer, where it is installed)

    return gsplat.rasterization(
        params["means"],
        params["quats"],
        params["scales"].exp(),
        params["opacities"].sigmoid(),
        torch.cat([params["sh0"], params["shN"]], dim=1),
        viewmats,
        Ks,
        width,
        height,
        sh_degree=sh_degree,
        backgrounds=backgrounds,
        packed=False,
    )


def with_our_trainer(capture: Path, config: TrainConfig, **options: Any) -> dict[str, Any]:
    """A run of `lanewise.train`; `options` are passed on."""
    with tempfile.TemporaryDirectory() as folder:
        summary = train(capture, Path(folder) / "run", config, **options)
    names = ("psnr", "ssim", "gaussians", "seconds")
    return {name: summary[name] for name in names} | {
        "views": summary["test_views"],
        "warmup_seconds": summary.get("warmup_seconds", 0.0),
    }


def with_the_baseline(capture: Path, config: TrainConfig, *, fused: bool) -> dict[str, Any]:
    """A run of the loop around gsplat."""
    from _baseline import Baseline

    data, train_views, test_views = on_the_gpu(capture)
    return Baseline(data, train_views, test_views, config, fused).run()


@cache
def on_the_gpu(capture: Path) -> tuple[TrainingData, Any, Any]:
    """A capture, and its photographs as the baseline takes them, decoded once for all runs."""
    from _baseline import load_views

    data = load_data(capture, TrainConfig())
    return data, load_views(data, data.train), load_views(data, data.test)


PARTS: dict[str, Callable[[Path, TrainConfig], dict[str, Any]]] = {
    "ours": with_our_trainer,
    "swapped": lambda capture, config: with_our_trainer(capture, config, renderer=gsplat_renderer),
    "baseline": lambda capture, config: with_the_baseline(capture, config, fused=False),
    "baseline_fused": lambda capture, config: with_the_baseline(capture, config, fused=True),
}


def report(rows: list[dict[str, Any]]) -> None:
    """Means over the seeds, and how many times longer than ours each part takes."""
    for name in dict.fromkeys(row["set"] for row in rows):
        here = [row for row in rows if row["set"] == name]
        mean = {
            part: {k: statistics.fmean(r[k] for r in here if r["part"] == part) for k in ("psnr", "seconds")}
            for part in dict.fromkeys(row["part"] for row in here)
        }
        for part, values in mean.items():
            ratio = f", {values['seconds'] / mean['ours']['seconds']:.2f} times ours" if "ours" in mean else ""
            seeds = sum(row["part"] == part for row in here)
            print(f"{name} {part}: {values['psnr']:.2f} dB, {values['seconds']:.1f} s ({seeds} seeds){ratio}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--part", default=",".join(PARTS))
    parser.add_argument("--sets", default="chair_800,miku_undist")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--steps", type=int, default=7_000)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU on this machine: nothing ran")
        return 5
    print(RESETS)
    rows = []
    for name in options.sets.split(","):
        for seed in map(int, options.seeds.split(",")):
            config = TrainConfig(steps=options.steps, seed=seed, eval_at=(), checkpoint_every=options.steps)
            for part in options.part.split(","):
                result = PARTS[part](options.data / name, config)
                rows.append({"set": name, "part": part, "steps": options.steps, "seed": seed, **result})
                merge("train_vs_gsplat", rows[-1:], KEY)
                print(
                    f"{name} {part} seed {seed}: {result['psnr']:.2f} dB, SSIM {result['ssim']:.4f}, "
                    f"{result['gaussians']:,} Gaussians, {result['seconds']:.1f} s "
                    f"and {result['warmup_seconds']:.1f} s before",
                    flush=True,
                )
                torch.cuda.empty_cache()
    report(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
