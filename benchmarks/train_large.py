"""Two large runs of `lanewise.train`: one of 30,000 steps, and one that grows past five million Gaussians.

usage: python benchmarks/train_large.py --data DIR [--runs long,growing] [--long-steps N]

- long: `DIR/chair_800` with the standard settings, PSNR over its 25 test views.
- growing: `DIR/miku_undist`, refined rarely but at almost any gradient, without a cap, so that the Gaussians about
  double at each refinement. It ends before the refinement after the one that passed 5.2 million, so that the last
  hundreds of steps all have as many: their rate is what is reported.

Every run is added to results/train_large.json, in place of the same one of before.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from _harness import merge

from lanewise.train import Silent, StepRecord, TrainConfig, train

GOAL = 5_200_000  # Gaussians
REFINE_EVERY = 400
STEPS_AFTER = 350  # at the goal; less than REFINE_EVERY, so that the number stays
LONG = {"steps": 30_000, "eval_at": (7_000,), "checkpoint_every": 30_000}
GROWING = {
    "steps": 12_000,
    "eval_at": (),
    "checkpoint_every": 12_000,
    "refine_every": REFINE_EVERY,
    "refine_stop": 12_000,
    "reset_every": 30_000,  # opacities are not reset, which would prune
    "grow_grad2d": 2e-6,  # a hundredth of the standard
}


class Enough(Exception):  # noqa: N818 - it is the end, not an error
    """The run has shown what it was to show."""


class Watch(Silent):
    """Keeps the newest record and the rates since the last change of the number of Gaussians.

    Args:
        goal: end the run (by `Enough`) when it has had so many Gaussians for `STEPS_AFTER` steps; None never does.
    """

    def __init__(self, goal: int | None = None) -> None:
        self.goal = goal
        self.last: StepRecord | None = None
        self._rates: list[float] = []
        self._since = 0  # step of the last change
        self.evaluations: dict[int, float] = {}

    def on_step(self, record: StepRecord) -> None:
        """Every `log_every` steps."""
        if self.last is None or record.gaussians != self.last.gaussians:
            self._rates, self._since = [], record.step
            print(f"step {record.step}: {record.gaussians:,} Gaussians, {record.its_per_s:.0f} steps/s", flush=True)
        else:
            self._rates.append(record.its_per_s)
        self.last = record
        if self.goal and record.gaussians >= self.goal and record.step >= self._since + STEPS_AFTER:
            raise Enough

    def on_eval(self, result: dict[str, Any]) -> None:
        """Keep the PSNR of this step."""
        self.evaluations[result["step"]] = result["psnr"]
        print(f"step {result['step']}: {result['psnr']:.2f} dB over {result['views']} views", flush=True)

    def rate(self) -> float | None:
        """Steps a second, the median since the number of Gaussians changed last."""
        return statistics.median(self._rates) if self._rates else None


def long(data: Path, steps: int) -> dict[str, Any]:
    """The standard run."""
    settings = LONG | {"steps": steps}
    watch, summary = run(data / "chair_800", settings, Watch())
    assert summary is not None
    return settings | {
        "set": "chair_800",
        "psnr": summary["psnr"],
        "psnr_7000": watch.evaluations.get(7_000),
        "ssim": summary["ssim"],
        "views": summary["test_views"],
        "gaussians": summary["gaussians"],
        "seconds": summary["seconds"],
        "warmup_seconds": summary.get("warmup_seconds", 0.0),
        "steps_per_s": summary["steps"] / summary["seconds"],
    }


def growing(data: Path) -> dict[str, Any]:
    """The run that grows."""
    watch, summary = run(data / "miku_undist", GROWING, Watch(GOAL))
    assert watch.last is not None
    if summary is not None:
        print(f"the goal of {GOAL:,} Gaussians was not reached")
    facts = {"gaussians": watch.last.gaussians, "ended_at": watch.last.step, "steps_per_s": watch.rate()}
    return GROWING | {"set": "miku_undist", **facts}


def run(capture: Path, settings: dict[str, Any], watch: Watch) -> tuple[Watch, dict[str, Any] | None]:
    """Train in a folder that is removed afterwards; the summary is None when `watch` had seen enough."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory() as folder:
        try:
            return watch, train(capture, Path(folder) / "run", TrainConfig(**settings), observer=watch)
        except Enough:
            return watch, None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", default="long,growing")
    parser.add_argument("--long-steps", type=int, default=LONG["steps"])
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU on this machine: nothing ran")
        return 5
    reached = True
    for name in options.runs.split(","):
        row = {"run": name} | (long(options.data, options.long_steps) if name == "long" else growing(options.data))
        row |= {
            "peak_allocated": torch.cuda.max_memory_allocated(),
            "peak_reserved": torch.cuda.max_memory_reserved(),
        }
        reached &= name == "long" or row["gaussians"] >= GOAL
        print("\n".join(f"  {key}: {value}" for key, value in row.items()))
        print(f"wrote {merge('train_large', [row], ('run',))}", flush=True)
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
