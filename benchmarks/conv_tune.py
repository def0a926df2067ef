"""Block sizes for the convolution kernels: candidates in the place of `launch_blocks`' choice, timed on this GPU.

usage: PYTHONPATH=src python benchmarks/conv_tune.py [--seconds 170] [--layers TEXT] [--all]

For every layer, memory order, dtype and direction: cuDNN (TF32 off; the same memory order), what the table chooses, and
the best candidates; microseconds on the GPU, from CUDA graphs. A candidate that is further from torch's result in fp64
than its limit is named, and not timed.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from unittest import mock

import torch
from _harness import median, replayed, write
from torch import Tensor

from lanewise.conv import launch, launch_blocks
from lanewise.conv.launch_blocks import Blocks
from lanewise.conv.problem import Problem

LIMITS = {torch.float32: 1e-6, torch.float16: 2e-3}
DIRECTIONS = ("forward", "input", "weight")


@dataclass(frozen=True)
class Layer:
    """A layer of batch n: channels c to k, square or cubic input of `side`, kernel, stride; padded by kernel // 2."""

    name: str
    n: int
    c: int
    k: int
    side: int
    kernel: int
    stride: int = 1
    axes: int = 2
    groups: int = 1

    def problem(self, dtype: torch.dtype, last: bool) -> Problem:
        def triple(value: int, depth: int) -> tuple[int, int, int]:
            return (value if self.axes == 3 else depth, value, value)

        out = (self.side + 2 * (self.kernel // 2) - self.kernel) // self.stride + 1
        sizes = (triple(self.side, 1), triple(out, 1), triple(self.kernel, 1), triple(self.stride, 1))
        steps = (triple(self.kernel // 2, 0), (1, 1, 1), self.groups)
        return Problem(self.n, self.c, self.k, *sizes, *steps, dtype, last)


LAYERS = (
    Layer("3x3 64 56", 32, 64, 64, 56, 3),
    Layer("3x3 128 28", 32, 128, 128, 28, 3),
    Layer("3x3 256 14", 32, 256, 256, 14, 3),
    Layer("3x3 512 7", 32, 512, 512, 7, 3),
    Layer("3x3 128 56 s2", 32, 128, 128, 56, 3, 2),
    Layer("7x7 3-64 224 s2", 32, 3, 64, 224, 7, 2),
    Layer("1x1 64-256 56", 32, 64, 256, 56, 1),
    Layer("1x1 1024-256 14", 32, 1024, 256, 14, 1),
    Layer("1x1 512-2048 7", 32, 512, 2048, 7, 1),
    Layer("3x3x3 32-64 32", 4, 32, 64, 32, 3, axes=3),
    Layer("7x7 dw 96 56", 32, 96, 96, 56, 7, groups=96),
)


@dataclass(frozen=True)
class Candidate:
    """A block, and how many programs the sum is cut into for every multiprocessor; None leaves that to the model."""

    block: Blocks
    fill: int | None = None

    def __str__(self) -> str:
        b = self.block
        return f"{b.m}x{b.n}x{b.k} w{b.num_warps} s{b.stages}" + (f" f{self.fill}" if self.fill else "")


CORRELATION = tuple(
    Candidate(Blocks(m, n, k, warps, stages))
    for m, n, k, warps, stages in (
        (128, 128, 32, 8, 3),
        (128, 128, 64, 8, 3),
        (128, 128, 64, 4, 3),
        (128, 64, 32, 4, 3),
        (128, 64, 32, 8, 3),
        (128, 64, 64, 4, 3),
        (64, 64, 32, 4, 3),
        (64, 64, 32, 4, 4),
        (64, 64, 64, 4, 3),
        (64, 128, 32, 4, 3),
        (64, 128, 64, 4, 4),
        (128, 256, 64, 8, 3),
    )
)
WEIGHT = tuple(
    Candidate(Blocks(m, n, k, warps, stages), fill)
    for m, n, k, warps, stages in (
        (64, 64, 32, 4, 3),
        (64, 64, 32, 4, 4),
        (64, 64, 64, 4, 3),
        (128, 64, 32, 4, 3),
        (128, 64, 32, 8, 3),
        (64, 128, 32, 4, 3),
        (64, 128, 64, 4, 3),
        (128, 64, 64, 4, 3),
        (128, 128, 32, 8, 3),
        (128, 128, 64, 8, 3),
        (128, 256, 64, 8, 3),
    )
    for fill in (1, 2, 3, 6)
)


@contextlib.contextmanager
def chosen(candidate: Candidate | None) -> Iterator[None]:
    """In the block every launch takes this choice; the table's for None."""
    with contextlib.ExitStack() as stack:
        if candidate is not None:
            only = {False: (candidate.block,), True: (candidate.block,)}
            for name in ("CORRELATION", "WEIGHT"):
                stack.enter_context(mock.patch.object(launch_blocks, name, only))
            stack.enter_context(mock.patch.object(launch_blocks, "pointwise_weight", return_value=candidate.block))
        if candidate is not None and candidate.fill:
            stack.enter_context(mock.patch.object(launch_blocks, "parts_of_sum", filling(candidate.fill)))
        yield


def filling(fill: int) -> Callable[..., int]:
    """`parts_of_sum` that makes `fill` programs a multiprocessor."""

    def parts(
        tiles: int, steps: int, size: int, block: Blocks, processors: int, least: int = 1, most: int = 2**31
    ) -> int:
        del size, block, least
        return max(min(fill * processors // tiles, steps, most), 1)

    return parts


def with_choice(candidate: Candidate | None, run: Callable[[], Tensor]) -> Callable[[], Tensor]:
    def chosen_run() -> Tensor:
        with chosen(candidate):
            return run()

    return chosen_run


def fits(block: Blocks, layer: Layer, direction: str, dtype: torch.dtype) -> bool:
    """Whether a candidate is worth compiling: nothing that a smaller block does as well."""
    inputs, outputs = layer.c // layer.groups, layer.k // layer.groups
    taps = layer.kernel**layer.axes
    half = dtype == torch.float16
    if direction == "weight":
        columns = inputs if launch_blocks.one_tap(inputs, taps) else inputs * taps
        width, height = launch_blocks.side(columns, 256), launch_blocks.side(outputs, 256)
        if block.m > height or block.k != (64 if half else 32):
            return False
    else:
        width = launch_blocks.side(outputs if direction == "forward" else inputs, 256)
        deep = launch_blocks.side(inputs if direction == "forward" else outputs, 64)
        if block.k != min(deep, 64 if half else 32):
            return False
    large = block.m * block.n * (1 if half else 2)  # sums of fp32 class are kept twice
    return block.n <= width and large <= block.num_warps * 32 * 160


def operands(layer: Layer, dtype: torch.dtype, last: bool) -> tuple[Problem, Tensor, Tensor, Tensor]:
    problem = layer.problem(dtype, last)
    cut = 3 - layer.axes
    order = torch.contiguous_format
    if last:
        order = torch.channels_last if layer.axes == 2 else torch.channels_last_3d
    shapes = (
        (problem.n, problem.c, *problem.spatial_in[cut:]),
        (problem.k, problem.c // problem.groups, *problem.kernel[cut:]),
        (problem.n, problem.k, *problem.spatial_out[cut:]),
    )
    x, w, dy = (torch.randn(s, device="cuda").to(dtype).contiguous(memory_format=order) for s in shapes)
    return problem, x, w, dy


def ours(direction: str, problem: Problem, x: Tensor, w: Tensor, dy: Tensor) -> Callable[[], Tensor]:
    if direction == "forward":
        return lambda: launch.forward(x, w, None, problem)
    if direction == "input":
        return lambda: launch.input_grad(dy, w, None, problem)
    return lambda: launch.weight_grad(x, dy, problem)


def torchs(direction: str, problem: Problem, x: Tensor, w: Tensor, dy: Tensor) -> Callable[[], Tensor]:
    cut = 5 - x.dim()
    steps = [list(v[cut:]) for v in (problem.stride, problem.padding, problem.dilation)]
    if direction == "forward":
        convolve = torch.conv2d if cut else torch.conv3d
        return lambda: convolve(x, w, None, *steps, problem.groups)
    mask = [direction == "input", direction == "weight", False]
    rest = (None, *steps, False, [0] * (3 - cut), problem.groups, mask)
    return lambda: torch.ops.aten.convolution_backward(dy, x, w, *rest)[mask.index(True)]


Job = tuple[Layer, torch.dtype, bool, str, Candidate | None]


def compile_one(job: Job) -> str | None:
    """Compile a candidate, in a process of its own, into Triton's cache on disk; what went wrong, if anything."""
    layer, dtype, last, direction, block = job
    try:
        with chosen(block):
            ours(direction, *operands(layer, dtype, last))()
        torch.cuda.synchronize()
    except Exception as error:  # a candidate too large for this GPU
        return f"{type(error).__name__}: {error}".splitlines()[0][:100]
    return None


def jobs(args: argparse.Namespace) -> list[Job]:
    found: list[Job] = []
    for layer in LAYERS:
        if args.layers and not any(text in layer.name for text in args.layers.split(",")):
            continue
        for dtype in (torch.float32, torch.float16):
            for last in (False, True):
                for direction in DIRECTIONS:
                    candidates = WEIGHT if direction == "weight" else CORRELATION
                    kept = (
                        [c for c in candidates if fits(c.block, layer, direction, dtype)] if layer.groups == 1 else []
                    )
                    found += [(layer, dtype, last, direction, block) for block in (None, *kept)]
    return found


def tune(todo: list[Job], broken: dict[Job, str], until: float, show: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    groups = dict.fromkeys(job[:4] for job in todo)
    for layer, dtype, last, direction in groups:
        if time.time() > until:
            print("out of time")
            break
        torch.manual_seed(0)
        problem, *tensors = operands(layer, dtype, last)
        truth = torchs(direction, problem, *(t.double() for t in tensors))()
        vendor, run = torchs(direction, problem, *tensors), ours(direction, problem, *tensors)
        blocks = [job[4] for job in todo if job[:4] == (layer, dtype, last, direction) and job not in broken]
        variants, names = {"cudnn": vendor}, {}
        for place, block in enumerate(blocks):
            with chosen(block):
                out = run()
            error = float((out.double() - truth).norm() / truth.norm())  # on the GPU, unlike the gate's
            if not error <= LIMITS[dtype]:
                print(f"WRONG {layer.name} {direction} {dtype} last={last} {block}: error {error:.2g}")
                continue
            name = f"{place}"
            names[name] = block

            variants[name] = with_choice(block, run)
        times = {name: median(values) * 1e3 for name, values in replayed(variants, 7, warmup=1, calls=5).items()}
        table = times.get("0", float("nan"))
        best = sorted((name for name in names if names[name] is not None), key=lambda name: times[name])[:show]
        print(
            f"{layer.name:16} {'NHWC' if last else 'NCHW'} {str(dtype)[6:]:8} {direction:8} cudnn {times['cudnn']:7.1f}"
            f"  table {table:7.1f} ({times['cudnn'] / table:4.2f}x)  "
            + "  ".join(f"{times[b]:.1f} {_short(names[b])}" for b in best),
            flush=True,
        )
        keys = {"layer": layer.name, "last": last, "dtype": str(dtype), "direction": direction}
        rows += [keys | {"blocks": _short(names[n]) if n in names else n, "us": t} for n, t in times.items()]
    return rows


def _short(candidate: Candidate | None) -> str:
    return "table" if candidate is None else str(candidate)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=170, help="after which no further layer is begun")
    parser.add_argument("--layers", default="", help="parts of names, separated by commas")
    parser.add_argument("--show", type=int, default=3, help="how many of the best candidates to print")
    parser.add_argument("--processes", type=int, default=12, help="that compile")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU on this machine: nothing was run")
        return 5
    until = time.time() + args.seconds
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, False
    todo = jobs(args)
    with ProcessPoolExecutor(args.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        problems = list(pool.map(compile_one, todo, chunksize=4))
    broken = {job: problem for job, problem in zip(todo, problems, strict=True) if problem}
    print(f"{len(todo)} candidates compiled in {args.seconds - until + time.time():.0f} s, {len(broken)} do not:")
    for text in sorted({f"{_short(job[4])} {job[1]}: {problem}" for job, problem in broken.items()})[:10]:
        print("  ", text)
    rows = tune(todo, broken, until, args.show)
    print(write("conv_tune", rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
