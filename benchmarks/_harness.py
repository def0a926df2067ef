"""What the benchmarks share: where they ran, interleaved repeats, one JSON a script."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import lanewise
from lanewise.target import detect

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """The machine and the versions that a figure belongs to."""
    cuda = torch.cuda.is_available()
    return {
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "target": detect().name,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lanewise": lanewise.__version__,
    }


def interleaved(variants: dict[str, Callable[[], object]], repeats: int, warmup: int = 1) -> dict[str, list[float]]:
    """Milliseconds of every variant, taken in turns so that a slow moment of the machine meets all of them alike; every
    other time in the opposite order, as what makes a GPU hot slows down what follows."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for repeat in range(warmup + repeats):
        for name, run in list(variants.items())[:: -1 if repeat % 2 else 1]:
            start = time.perf_counter()
            run()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if repeat >= warmup:
                times[name].append((time.perf_counter() - start) * 1e3)
    return times


def replayed(
    variants: dict[str, Callable[[], object]], repeats: int, warmup: int = 3, calls: int = 10
) -> dict[str, list[float]]:
    """Milliseconds of every variant on the GPU alone, taken in turns: a CUDA graph of so many calls is replayed.

    No Python slows that down, and the graph's own launch is shared by its calls.
    """
    graphs: dict[str, torch.cuda.CUDAGraph] = {}
    for name, run in variants.items():
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            run()
        torch.cuda.synchronize()
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for _ in range(calls):
                run()
    times: dict[str, list[float]] = {name: [] for name in variants}
    for repeat in range(warmup + repeats):
        for name, graph in graphs.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            if repeat >= warmup:
                times[name].append(start.elapsed_time(end) / calls)
    return times


def median(times: list[float]) -> float:
    """The median of a list of times."""
    return statistics.median(times)


def write(name: str, rows: list[dict[str, Any]]) -> Path:
    """results/NAME.json with the machine beside the rows."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n")
    return path


def merge(name: str, rows: list[dict[str, Any]], key: tuple[str, ...]) -> Path:
    """`write`, keeping the rows of an earlier run whose values under `key` are not among the new ones."""
    path = RESULTS / f"{name}.json"
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    kept = {tuple(row[k] for k in key): row for row in [*old, *rows]}
    return write(name, list(kept.values()))


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()
