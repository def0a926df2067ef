"""What watching costs: a ResNet-50 step and a step of the splat trainer, with and without a watch, in turns.

usage: python benchmarks/watch_cost.py [--device cuda|cpu] [--small] [--batch N] [--amp] [--only resnet50|splat]

Both runs are measured over whole periods of the watch at its defaults (25 steps, and 300 in the trainer), so that the
steps that are looked at are in the figure with their share. The first 500 steps, in which every look is a close one,
are reported by themselves. Goals on a GPU: 2% of the one, 3% of the other.
Writes results/watch_cost.json, but not of tiny problems.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from _harness import machine, merge
from _tables import table
from conv_resnet50 import resnet50
from torch.nn import functional as F

from lanewise.audit.watching import pace
from lanewise.audit.watching.watcher import EVERY, FIRST, watch
from lanewise.demo import write_capture
from lanewise.train import RunFolder, TrainConfig, resolve_device, silent
from lanewise.train import watching as trainer_watch
from lanewise.train.data import load_data
from lanewise.train.trainer import Trainer

GOALS = {"resnet50": 0.02, "splat": 0.03}

Period = Callable[[], None]  # takes the steps of a period


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny problems, to try the script on a CPU")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--amp", action="store_true", help="the ResNet under autocast to bfloat16")
    parser.add_argument("--only", choices=tuple(GOALS))
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("no GPU here: nothing ran")
        return 5
    rows = []
    for name, measure in (("resnet50", resnet), ("splat", splat)):
        if options.only in (None, name):
            rows.append({"what": name, **measure(options), "goal": GOALS[name], "gpu": machine()["gpu"]})
    print(table(rows))
    if not options.small:
        merge("watch_cost", rows, ("what", "amp", "gpu"))
    return 0 if options.small or all(row["cost"] <= row["goal"] for row in rows) else 1


def resnet(options: argparse.Namespace) -> dict[str, Any]:
    """SGD with momentum on random images of 224 pixels."""
    batch, size, periods = (2, 32, 2) if options.small else (options.batch, 224, 10)
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    images = torch.randn(batch, 3, size, size, device=options.device)
    labels = torch.randint(1000, (batch,), device=options.device)
    model = resnet50().to(options.device)

    def run(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for _ in range(EVERY):
            with torch.autocast(options.device, torch.bfloat16, enabled=options.amp):
                loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    variants: dict[str, Period] = {}
    for name in ("without", "with"):
        own = copy.deepcopy(model)
        optimizer = torch.optim.SGD(own.parameters(), 1e-3, momentum=0.9)
        variants[name] = lambda own=own, optimizer=optimizer: run(own, optimizer)
        run(own, optimizer)  # chooses kernels
    clock = Clock()
    with mock.patch.object(pace, "time", clock), watch(own, optimizer, on_finding=print) as running:
        row = compared(variants, periods, EVERY, 0 if options.small else FIRST, clock)
        probes = sum(sum(covered.outcomes.values()) for covered in running.coverage.values())
        return {**row, "amp": options.amp, "small": options.small, "findings": len(running.findings), "probes": probes}


def splat(options: argparse.Namespace) -> dict[str, Any]:
    """The trainer on the procedural capture, with as many Gaussians as it has points, all degrees of harmonics."""
    width, height, points, periods = (48, 36, 2000, 1) if options.small else (800, 450, 200_000, 5)
    steps = trainer_watch.LATER
    device = resolve_device(options.device)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        capture = write_capture(Path(folder) / "capture", width=width, height=height, views=4, points=points)
        variants: dict[str, Period] = {}
        trainers = []
        for name in ("without", "with"):
            config = TrainConfig(
                steps=(periods + 3) * steps, sh_degree_interval=1, refine_start=10**6, refine_stop=10**6,
                reset_every=10**6, checkpoint_every=10**6, eval_at=(), test_every=0, device=options.device,
                watch=name == "with",
            )  # fmt: skip
            run = RunFolder(Path(folder) / name)
            run.prepare()
            trainer = Trainer(load_data(capture, config), config, run, device, silent)
            stack.enter_context(trainer.engine.running())
            trainer.engine.warm_up(0, lambda done, total: None)
            variants[name] = lambda trainer=trainer: advance(trainer, steps)
            trainers.append(trainer)
        row = compared(variants, periods, steps, 0 if options.small else 2 * trainer_watch.LATER)
        watched = trainers[1].watch
        assert watched is not None
        found = len(watched.findings)
        watched.close()
        extra = {"amp": False, "small": options.small, "findings": found, "gaussians": len(trainers[1].optimizer)}
        return {**row, **extra, "probes": sum(watched.coverage.values())}


def advance(trainer: Trainer, steps: int) -> None:
    """So many steps more."""
    goal = trainer.step + steps
    while trainer.step < goal:
        trainer._advance()


class Clock:
    """A clock for the watch that stands still in the turns of the run without one: else they count as its own time, of
    which it takes its share, and it costs twice as much as it may."""

    def __init__(self) -> None:
        self.away = 0.0  # seconds

    def perf_counter(self) -> float:
        return time.perf_counter() - self.away


def compared(
    variants: dict[str, Period], periods: int, steps: int, first: int, clock: Clock | None = None
) -> dict[str, Any]:
    """Milliseconds a step: of the first steps with a watch, and then of both, in turns."""
    with stopwatch() as seconds:
        for _ in range(0, first, steps):
            variants["with"]()
    beginning = 1e3 * next(seconds) / max(first, 1)
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(periods):
        for name, run in variants.items():
            with stopwatch() as seconds:
                run()
            taken = next(seconds)
            times[name].append(1e3 * taken / steps)
            if clock is not None and name == "without":
                clock.away += taken
    mean = {name: sum(found) / periods for name, found in times.items()}
    return {
        "ms_without": mean["without"],
        "ms_with": mean["with"],
        "cost": mean["with"] / mean["without"] - 1,
        "cost_of_first_steps": beginning / mean["without"] - 1,
        "steps": periods * steps,
    }


@contextmanager
def stopwatch() -> Iterator[Iterator[float]]:
    """Gives, after the block, the seconds that it took, the GPU's work included."""
    taken: list[float] = []
    synchronize()
    begin = time.perf_counter()
    yield iter(taken)
    synchronize()
    taken.append(time.perf_counter() - begin)


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    raise SystemExit(main())
