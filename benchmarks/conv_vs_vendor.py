"""Lanewise's convolutions beside torch's (cuDNN, MIOpen) on a GPU: five sets of layers, three directions.

usage: python benchmarks/conv_vs_vendor.py [--sets NAMES] [--classes fp32,tf32,bf16] [--layouts nchw,nhwc]
       [--repeats N] [--seconds S] [--processes P]

Each figure is the time of a call from Python, launches included. Every result was within the class's error of the fp64
reference before it was timed. The rows are merged into results/conv_vs_vendor.json, so that sets may run one by one;
the summary is of all rows there. Our kernels are compiled first, by several processes; `auto` then chooses as it does
for any user, outside what is timed.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from _conv_layers import SETS, Layer
from _harness import interleaved, merge
from _tables import table
from torch import Tensor

from lanewise.audit.gate import GateResult, require
from lanewise.conv import op, reference
from lanewise.conv.calls import problem_of
from lanewise.conv.sliced import is_channels_last, memory_format

CLASSES = {
    # dtype, precision, largest relative error of ours, of torch's (which may be Winograd's) and of auto's, allow_tf32
    "fp32": (torch.float32, "fp32", 1e-6, 1e-4, 1e-5, False),
    "tf32": (torch.float32, "tf32", 2e-3, 2e-3, 2e-3, True),
    "bf16": (torch.bfloat16, "fp32", 2.0**-8, 2.0**-7, 2.0**-7, False),
}
LAYOUTS = ("nchw", "nhwc")
DIRECTIONS = ("forward", "input_grad", "weight_grad")
KEY = ("set", "layer", "direction", "class", "layout")
VARIANTS = ("torch", "ours", "auto")
LEAST_MS = 4.0  # that one timing lasts, in calls: in a training nobody waits after each


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--classes", default=",".join(CLASSES))
    parser.add_argument("--layouts", default=",".join(LAYOUTS))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which no further layer is begun")
    parser.add_argument("--processes", type=int, default=12, help="that compile our kernels")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: nothing ran")
        return 5
    until = time.monotonic() + options.seconds
    torch.backends.cudnn.benchmark = True
    classes, layouts = options.classes.split(","), options.layouts.split(",")
    jobs = [
        (name, layer, kind, layout)
        for name in options.sets.split(",")
        for kind in classes
        for layout in layouts
        for layer in SETS[name]
    ]
    with ProcessPoolExecutor(options.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for fault in filter(None, pool.map(compile_one, jobs, chunksize=2)):
            print(fault)
    print(f"compiled; {until - time.monotonic():.0f} s left", flush=True)
    left, path = list(jobs), None
    while left and time.monotonic() < until:
        name, layer, kind, layout = left.pop(0)
        rows = [row | {"set": name} for row in measure(layer, kind, layout, options.repeats)]
        path = merge("conv_vs_vendor", rows, KEY)
        for row in rows:
            print(
                " ".join(f"{row[k]}" for k in KEY), " ".join(f"{v} {row[v] * 1e3:.1f} us" for v in VARIANTS), flush=True
            )
    if left:
        print(f"out of time: {len(left)} of {len(jobs)} layers left, from {left[0]} on")
    if path is not None:
        print(table(summary(json.loads(path.read_text())["rows"])))
    return 1 if left else 0


Job = tuple[str, Layer, str, str]


def compile_one(job: Job) -> str | None:
    """Run our three directions once, so that Triton's cache on the disk has their kernels; what went wrong, if
    anything."""
    _, layer, kind, layout = job
    try:
        tensors = operands(layer, kind, layout)
        ask("ours")
        for direction in DIRECTIONS:
            by_us(layer, direction, *tensors, CLASSES[kind][1])
        torch.cuda.synchronize()
    except Exception as error:  # it is met again, and stops the benchmark, where it is measured
        return f"{job}: {type(error).__name__}: {error}".splitlines()[0]
    return None


def operands(layer: Layer, kind: str, layout: str) -> tuple[Tensor, Tensor, Tensor]:
    """x, w and dy."""
    torch.manual_seed(0)
    x, w, dy = (
        torch.randn(shape, device="cuda").to(CLASSES[kind][0], memory_format=_format(len(shape), layout))
        for shape in (layer.x_shape, layer.w_shape, layer.y_shape)
    )
    return x, w, dy


def _format(axes: int, layout: str) -> torch.memory_format:
    return memory_format(axes - 2, layout == "nhwc")


def measure(layer: Layer, kind: str, layout: str, repeats: int) -> Iterator[dict[str, Any]]:
    """Three rows: one a direction."""
    _, precision, *limits, tf32 = CLASSES[kind]
    torch.backends.cudnn.allow_tf32 = tf32
    x, w, dy = operands(layer, kind, layout)
    for direction in DIRECTIONS:
        variants = {
            "torch": functools.partial(by_torch, layer, direction, x, w, dy),
            **dict.fromkeys(("ours", "auto"), functools.partial(by_us, layer, direction, x, w, dy, precision)),
        }
        want = truth(layer, direction, x, w, dy)
        errors = {}
        for variant, run in variants.items():
            ask(variant)
            errors[variant] = error(run(), want)
        bounds = dict(zip(("ours", "torch", "auto"), limits, strict=True))
        name = f"{layer.name} {direction} {kind} {layout}"
        require(*(GateResult(f"{name} {variant}", e, bounds[variant]) for variant, e in errors.items()))
        del want
        times = timed(variants, repeats)
        yield {
            "layer": layer.name,
            "direction": direction,
            "class": kind,
            "layout": layout,
            **{name: statistics.median(taken) for name, taken in times.items()},
            **{f"{name}_spread": (max(taken) - min(taken)) / statistics.median(taken) for name, taken in times.items()},
            **{f"{name}_error": e for name, e in errors.items()},
            "allow_tf32": tf32,
        }


def error(got: Tensor, want: Tensor) -> float:
    """The relative L2 error, computed on the GPU: there are a thousand large ones."""
    return ((got.double() - want).norm() / want.norm()).item()


def timed(variants: dict[str, Callable[[], Tensor]], repeats: int) -> dict[str, list[float]]:
    """Milliseconds a call, in turns; short calls are repeated until a timing lasts."""

    def repeated(name: str, count: int) -> Callable[[], None]:
        def go() -> None:
            ask(name)
            for _ in range(count):
                variants[name]()

        return go

    counts = {}
    for name in variants:
        torch.cuda.synchronize()
        start = time.perf_counter()
        repeated(name, 1)()
        torch.cuda.synchronize()
        counts[name] = max(1, min(100, math.ceil(LEAST_MS / (time.perf_counter() - start) / 1e3)))
    times = interleaved({name: repeated(name, counts[name]) for name in variants}, repeats)
    return {name: [ms / counts[name] for ms in taken] for name, taken in times.items()}


def ask(name: str) -> None:
    """For our kernels or for `auto`, once before calls, as a user asks."""
    if name != "torch":
        os.environ["LANEWISE_CONV"] = name


def by_torch(layer: Layer, direction: str, x: Tensor, w: Tensor, dy: Tensor) -> Tensor:
    dims = len(layer.kernel)
    geometry = ([layer.stride] * dims, [layer.padding] * dims, [1] * dims, layer.transposed, [0] * dims, layer.groups)
    if direction == "forward":
        return torch.convolution(x, w, None, *geometry)
    mask = [direction == "input_grad", direction == "weight_grad", False]
    return torch.ops.aten.convolution_backward.default(dy, x, w, None, *geometry, mask)[mask.index(True)]


def by_us(layer: Layer, direction: str, x: Tensor, w: Tensor, dy: Tensor, precision: str) -> Tensor:
    dims = len(layer.kernel)
    how = ([layer.stride] * dims, [layer.padding] * dims, [1] * dims, layer.groups, precision, None)
    last = is_channels_last(x)
    outputs, inputs, kernel = list(dy.shape[2:]), list(x.shape[2:]), list(w.shape[2:])
    # A transposed convolution is the gradient of its mirror image's input, and the other way round.
    forward, backward = (op.input_grad, op.forward) if layer.transposed else (op.forward, op.input_grad)
    with torch.no_grad():
        if direction == "forward":
            return forward(x, w, None, outputs, last, *how)
        if direction == "input_grad":
            return backward(dy, w, None, inputs, last, *how)
        pair = (dy, x) if layer.transposed else (x, dy)
        return op.weight_grad(*pair, kernel, is_channels_last(w), *how)


def truth(layer: Layer, direction: str, x: Tensor, w: Tensor, dy: Tensor) -> Tensor:
    """By the fp64 reference, of the mirror image where the layer is transposed."""
    dims = len(layer.kernel)
    image, outcome = (dy, x) if layer.transposed else (x, dy)
    problem = problem_of(
        "forward",
        layer.n,
        image.shape[1],
        outcome.shape[1],
        tuple(image.shape[2:]),
        tuple(outcome.shape[2:]),
        layer.kernel,
        (layer.stride,) * dims,
        (layer.padding,) * dims,
        (1,) * dims,
        layer.groups,
        torch.float64,
        False,
    )
    if direction == "weight_grad":
        return reference.weight_grad(image, outcome, problem)
    if (direction == "forward") == layer.transposed:
        return reference.input_grad(x if layer.transposed else dy, w, problem)
    return reference.forward(dy if layer.transposed else x, w, None, problem)


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a set and class, and one a class: sums, and the geometric mean of torch's time over ours."""
    out = []
    for kind in CLASSES:
        of_class = [row for row in rows if row["class"] == kind]
        for name in [*SETS, "all"]:
            chosen = [row for row in of_class if name in (row["set"], "all")]
            if not chosen:
                continue
            sums = {variant: sum(row[variant] for row in chosen) for variant in VARIANTS}
            means = {
                f"{variant}_speedup": math.exp(
                    statistics.fmean(math.log(row["torch"] / row[variant]) for row in chosen)
                )
                for variant in ("ours", "auto")
            }
            out.append({"class": kind, "set": name, "rows": len(chosen), **sums, **means})
    return out


if __name__ == "__main__":
    raise SystemExit(main())
