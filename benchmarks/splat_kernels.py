"""Where the time of `rasterization` goes on a GPU: every kernel of one forward and backward pass, beside its floor.

usage: python benchmarks/splat_kernels.py [--repeats N] [--scenes A,B,C]

The scenes are those of `splat_vs_gsplat.py`. A kernel has two floors, and the larger share of its time that one of
them explains says what bounds it:

- bytes: what it must move at least, over the read bandwidth that is measured first. A Triton kernel reads or writes its
  tensors once at least; where a kernel walks lists, every pair of a tile and a Gaussian also reads one record.
- issue: the pairs of a pixel and a Gaussian that count, times the fewest fp32 instructions of a pair, over what the
  device can issue.

A kernel that neither explains waits: for other programs (atomics, the tail of the longest list) or for its launch.
Kernels of torch (sorts, sums, fills) have no floors here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from _harness import write
from _scenes import HEIGHT, SCENES, WIDTH, gate_is_green, milliseconds, scene
from torch import Tensor
from torch.profiler import DeviceType, ProfilerActivity, profile

from lanewise.splat import _launch, rasterization
from lanewise.splat.rasterize.decisions import pair_sides
from lanewise.splat.rasterize.lists import RECORD
from lanewise.splat.rasterize.reference import SKIPPED

LATENCY_MS = 0.005  # a kernel as short as this is its launch
EXPLAINED = 0.3  # least share of a kernel's time that a floor must explain
NVIDIA_LANES = 128  # fp32 instructions that a multiprocessor issues in a clock (4 schedulers)
# Fewest fp32 instructions of a pair that counts, three channels. Forward: dx, dy, u; the exponent's 3; exp2, times
# opacity, cap, threshold; 1 - alpha, transmittance, stop, weight, 3 channels. Backward: the same alpha; the weight and
# its reciprocal step; 3 channels each for the gradient of alpha and of the colour; 9 for mean, conic and opacity; and
# one addition for each of the 9 sums over pixels.
INSTRUCTIONS = {"rasterize.composite": 17, "rasterize.composite_backward": 40}


class Launch(NamedTuple):
    """A launch of a Triton kernel: `operator.kernel`, the name that a profiler shows, bytes of its tensors."""

    label: str
    name: str
    nbytes: int


class Work(NamedTuple):
    """What a scene asks of the rasterizer: pairs of a tile and a Gaussian, and of a pixel and a Gaussian that count."""

    listed: int
    counted: int


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--scenes", default="A,B,C")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU on this machine: nothing ran")
        return 5
    if not gate_is_green():
        return 1
    bandwidth = read_bandwidth()
    print(f"read bandwidth {bandwidth / 1e12:.2f} TB/s")
    rows = []
    for name in options.scenes.split(","):
        tensors = scene(*SCENES[name])
        work = count_pairs(tensors)
        print(f"scene {name}: {work.listed:,} pairs listed, {work.counted:,} pairs of a pixel and a Gaussian counted")
        rows += [{"scene": name, **row} for row in scene_rows(tensors, work, bandwidth, options.repeats)]
        torch.cuda.empty_cache()
    print(f"wrote {write('splat_kernels', rows)}")
    return 0


def scene_rows(tensors: list[Tensor], work: Work, bandwidth: float, repeats: int) -> list[dict[str, Any]]:
    """A row a kernel, in the order of the launches, and one of their sum beside the time of a pass as it is seen."""
    leaves = [x.requires_grad_() for x in tensors[:5]]
    v = torch.randn(1, HEIGHT, WIDTH, tensors[4].shape[-1], device="cuda")

    def run() -> None:
        torch.autograd.grad(rasterization(*leaves, *tensors[5:], WIDTH, HEIGHT)[0], leaves, v)

    whole = milliseconds({"pass": run}, repeats)["pass"]
    launches = triton_launches(run)
    rows = []
    for name, times in kernel_times(run, repeats):
        launch = launches[name].pop(0) if launches.get(name) else None
        rows.append(row := kernel_row(name, sum(times) / len(times), launch, work, bandwidth))
        print(
            f"  {row['ms']:7.4f} ms  floors: bytes {row['bytes_ms'] or 0:.4f}, issue {row['issue_ms'] or 0:.4f}"
            f"  {row['bound']:8} {row['kernel'][:90]}",
            flush=True,
        )
    total = sum(row["ms"] for row in rows)
    print(f"  {total:7.4f} ms in {len(rows)} kernels, of {whole:.4f} ms a pass")
    return [*rows, {"kernel": "all", "ms": total, "pass_ms": whole}]


def kernel_row(name: str, ms: float, launch: Launch | None, work: Work, bandwidth: float) -> dict[str, Any]:
    """The time, the floors and the bound of one kernel."""
    label = launch.label if launch else name
    row: dict[str, Any] = {"kernel": label, "ms": ms, "bytes_ms": None, "issue_ms": None}
    if launch:
        records = work.listed * RECORD * 4 if label in INSTRUCTIONS else 0
        row["bytes_ms"] = (launch.nbytes + records) / bandwidth * 1e3
    rate = instruction_rate()
    if rate and label in INSTRUCTIONS:
        row["issue_ms"] = work.counted * INSTRUCTIONS[label] / rate * 1e3
    return row | {"bound": bound(row)}


def bound(row: dict[str, Any]) -> str:
    """bytes, issue, latency (of a launch), or waiting, when no floor explains enough of the time."""
    floors = {"bytes": row["bytes_ms"] or 0.0, "issue": row["issue_ms"] or 0.0}
    largest = max(floors, key=lambda name: floors[name])
    if floors[largest] >= EXPLAINED * row["ms"]:
        return largest
    if row["ms"] <= LATENCY_MS:
        return "latency"
    return "waiting" if any(floors.values()) else "unknown"


def triton_launches(run: Callable[[], object]) -> dict[str, list[Launch]]:
    """The launches of Triton kernels in one pass, by the name that a profiler shows, in order."""
    launches: dict[str, list[Launch]] = {}
    with watched(lambda launch: launches.setdefault(launch.name, []).append(launch)):
        run()
    torch.cuda.synchronize()
    return launches


class Forgetful(dict[Any, Any]):
    """Keeps nothing."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


@contextmanager
def watched(seen: Callable[[Launch], object]) -> Iterator[None]:
    """Hear of every launch of a Triton kernel, which goes through Triton's dispatch meanwhile."""
    from triton.runtime.jit import JITFunction

    original, compiled = JITFunction.run, _launch._compiled

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        operator = self.fn.__module__.split(".")[-2]
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        sizes = {x.data_ptr(): x.numel() * x.element_size() for x in tensors}
        seen(Launch(f"{operator}.{self.fn.__name__}", self.fn.__name__, sum(sizes.values())))
        return original(self, *args, **kwargs)

    JITFunction.run, _launch._compiled = run, Forgetful()
    try:
        yield
    finally:
        JITFunction.run, _launch._compiled = original, compiled


def kernel_times(run: Callable[[], object], repeats: int) -> list[tuple[str, list[float]]]:
    """Name and milliseconds in every repeat of each kernel of a pass, in the order in which the GPU began them.

    Raises:
        SystemExit: the passes launched different kernels, so that there is no mean of a kernel.
    """
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(repeats):
            run()
        torch.cuda.synchronize()
    events = [e for e in profiler.events() or [] if e.device_type == DeviceType.CUDA]
    events = sorted((e for e in events if not e.name.startswith("Mem")), key=lambda e: e.time_range.start)
    length, rest = divmod(len(events), repeats)
    passes = [events[i * length : (i + 1) * length] for i in range(repeats)]
    if rest or not length or any([e.name for e in p] != [e.name for e in passes[0]] for p in passes):
        raise SystemExit(f"{len(events)} kernels in {repeats} passes, which are not the same ones in each")
    return [(same[0].name, [e.time_range.elapsed_us() / 1e3 for e in same]) for same in zip(*passes, strict=True)]


def count_pairs(tensors: list[Tensor]) -> Work:
    """The work of the rasterizer on a scene."""
    with torch.no_grad():
        _, _, meta = rasterization(*tensors, WIDTH, HEIGHT)
        lists = (WIDTH, HEIGHT, meta["tile_size"], meta["isect_offsets"], meta["flatten_ids"])
        sides = pair_sides(meta["means2d"], meta["conics"], meta["opacities"], *lists)
    return Work(meta["flatten_ids"].numel(), int((sides != SKIPPED).sum()))


def read_bandwidth() -> float:
    """Bytes a second of the sum of a gibibyte."""
    x = torch.ones(2**28, device="cuda")
    ms = milliseconds({"sum": x.sum}, 10)["sum"]
    return x.numel() * x.element_size() / ms * 1e3


def instruction_rate() -> float | None:
    """fp32 instructions a second; None where torch does not tell what it takes."""
    properties = torch.cuda.get_device_properties()
    kilohertz = getattr(properties, "clock_rate", None)
    if torch.version.hip or not kilohertz:
        return None
    return properties.multi_processor_count * NVIDIA_LANES * kilohertz * 1e3


if __name__ == "__main__":
    sys.exit(main())
